"""Inside the process that `loopwatch attach` and `detach` were called for, on a thread of its own."""

from __future__ import annotations

from typing import Any, Final

from loopwatch import __version__, _everywhere
from loopwatch._options import Options
from loopwatch._registry import registry
from loopwatch.jsonl import JsonLines

ORIGIN: Final = "loopwatch attach"

_lines: list[JsonLines] = []


def attach(threshold: float | None, report: str | None) -> dict[str, Any]:
    if _everywhere.watched_by(ORIGIN):
        raise RuntimeError(f"every loop is watched already, by {ORIGIN}: loopwatch detach ends that")
    options: Options = {"status": True}
    if threshold is not None:
        options["threshold"] = threshold
    layer = _everywhere.watch_all(options, origin=ORIGIN)
    if layer is None:
        raise RuntimeError("LOOPWATCH=0 is set there: it watches nothing")
    if report is not None:
        try:
            _lines.append(JsonLines(report))
        except BaseException:
            _everywhere.unwatch_all(ORIGIN)
            raise
    return {"loops": len(registry().watches()), "failures": layer.failures, "version": __version__}


def detach() -> dict[str, Any]:
    attached = _everywhere.watched_by(ORIGIN)
    _everywhere.unwatch_all(ORIGIN)
    while _lines:
        _lines.pop().close()
    return {"attached": attached, "left": len(registry().watches())}
