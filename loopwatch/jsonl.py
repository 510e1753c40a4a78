"""Stalls, saturations, metrics and the seconds of a loop as JSON, a line each.

    JsonLines("/var/log/app/loopwatch.jsonl")

serves every watch of the process, until close(). The schema is in the file that SCHEMA names, and in
docs/exporters.md: each line has "v" (1), "kind" ("stall", "saturation", "metrics" or "loop"), "at", "pid" and
"started", which with "pid" names the process. A reader must leave alone what it does not know: kinds and fields may
be added; where anything else changes, "v" does.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from loopwatch._clock import date
from loopwatch._linefile import LineFile
from loopwatch._look import BOUNDS, Histogram, Value
from loopwatch._loop_line import LoopLines
from loopwatch._metrics import labels_of
from loopwatch._options import check_every
from loopwatch._outlets import Outlet, outlets
from loopwatch._process import Process, process_started
from loopwatch._reading import Reader
from loopwatch._stall import Stall, ThreadInfo

if TYPE_CHECKING:
    from loopwatch._watch import Watch

__all__ = ["SCHEMA", "VERSION", "JsonLines"]

VERSION: Final = 1
SCHEMA: Final = Path(__file__).parent / "jsonl.schema.json"
LINE_MAX: Final = 1 << 20
"""Bytes; of a stall that needs more, the samples are left out."""

_LOOK_AT_ENDED: Final = 60.0
"""Seconds between two looks for loops that have ended, where nothing is written regularly."""
_STATE: Final = (
    "name", "max_workers", "workers", "busy", "queued", "oldest_wait", "saturated", "submitted", "completed",
)  # fmt: skip


class TextFile(Protocol):
    """What JsonLines needs of a file object."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class JsonLines(Outlet):
    """Writes from its construction to close(), on loopwatch's own thread. A context manager."""

    name = "jsonl"

    def __init__(
        self,
        to: str | os.PathLike[str] | TextFile,
        *,
        every: float | None = 60.0,
        max_bytes: int | None = None,
        source: bool = True,
    ) -> None:
        """`to`: a path, opened to append with mode 0600; or a text file, which stays the caller's to close.
        `every`: seconds between two "metrics" and "loop" lines of a process that watches a loop; None: no metrics, and
        of each loop one line at the end. `max_bytes`: a
        path's file that would grow beyond is renamed to `path.1`. `source`: False leaves source lines out. OSError
        where the path cannot be opened; TypeError, ValueError for other values."""
        self._regular = every is not None
        self.every = _LOOK_AT_ENDED if every is None else check_every(every)
        self._source = source
        self._reader = Reader(self.name)
        self._loops = LoopLines()
        self._file: LineFile | None = None
        self._text: TextFile | None = None
        if isinstance(to, (str, os.PathLike)):
            self._file = LineFile(to, _check_max_bytes(max_bytes))
        elif callable(getattr(to, "write", None)) and callable(getattr(to, "flush", None)):
            self._text = to
        else:
            raise TypeError(f"to must be a path or a text file, not {to!r}")
        outlets.add(self)

    def close(self) -> None:
        """With a last line of each loop. Idempotent."""
        if outlets.remove(self):
            outlets.attempt(self.name, self.wind_up)
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def follow(self, watch: Watch) -> None:
        self._loops.follow(watch)

    def renew(self) -> None:
        self._loops.renew()

    # --- the reporter's thread ---

    def stall(self, stall: Stall) -> None:
        self._write(stall_line(stall, source=self._source))

    def saturation(self, saturation: Any) -> None:
        state = saturation.state
        data = {
            "executor": state.name,
            "waited": saturation.waited,
            "state": {name: _finite(getattr(state, name)) for name in _STATE},
            "workers": [_thread(worker) for worker in saturation.workers],
        }
        self._write(line_of("saturation", data))

    def tick(self) -> None:
        if self._regular:
            self._write_metrics()
            self._write_loops(self._loops.all(final=False))
        else:
            self._write_loops(self._loops.ended())

    def _write_metrics(self) -> None:
        points = [
            {
                "name": metric.name,
                "labels": dict(zip(labels_of(metric), values, strict=True)),
                **_value(value),
            }
            for metric, row in self._reader.read()
            for values, value in row
        ]
        self._write(line_of("metrics", {"metrics": points}))

    def wind_up(self) -> None:
        self._write_loops(self._loops.all(final=True))

    def _write_loops(self, loops: list[dict[str, Any]]) -> None:
        for data in loops:
            self._write(line_of("loop", data))

    def _write(self, line: bytes) -> None:
        if self._file is not None:
            self._file.write(line)
        elif self._text is not None:
            self._text.write(line.decode())
            self._text.flush()


def stall_line(stall: Stall, *, source: bool = True, process: Process | None = None) -> bytes:
    data = stall.to_dict()
    if not source:
        data["source"] = []
    line = line_of("stall", {"stall": data}, process=process)
    if len(line) > LINE_MAX:
        line = line_of("stall", {"stall": data | {"samples": [], "frame_table": []}}, process=process)
    return line


def line_of(
    kind: str, data: dict[str, Any], *, process: Process | None = None, at: datetime | None = None
) -> bytes:
    """`process`: another one than this. `at`: where the line is not of now."""
    process = process or Process(os.getpid(), process_started())
    head: dict[str, Any] = {
        "v": VERSION,
        "kind": kind,
        "at": (at or date()).isoformat(),
        "pid": process.pid,
    }
    if process.started:
        head["started"] = process.started
    return json.dumps(head | data, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, Histogram):
        return {"bounds": BOUNDS, "counts": value.counts, "seconds": value.seconds}
    return {"value": _finite(value)}


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _thread(thread: ThreadInfo) -> dict[str, Any]:
    return dataclasses.asdict(thread)


def _check_max_bytes(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"max_bytes must be a whole number or None, not {value!r}")
    if value < 1:
        raise ValueError(f"max_bytes must be at least 1, not {value}")
    return value
