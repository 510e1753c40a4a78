"""Stalls as events of Sentry, by sentry_sdk: `pip install 'loopwatch[sentry]'`.

`install()` once in the process, before or after `sentry_sdk.init`. Sentry counts what comes again by itself, but is
paid by the event, so one is sent for each new fingerprint only.
"""

from __future__ import annotations

import dataclasses
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from loopwatch._options import check_own
from loopwatch._outlets import Outlet, outlets
from loopwatch._paths import is_own, module_name, relative_path
from loopwatch._stall import Frame, Stall

try:
    import sentry_sdk
    from sentry_sdk.integrations import logging as sentry_logging
except ImportError as problem:
    raise ImportError("loopwatch.sentry needs sentry-sdk: pip install 'loopwatch[sentry]'") from problem

if TYPE_CHECKING:
    from sentry_sdk.client import BaseClient

__all__ = ["SentryExporter", "install"]

SEEN_MAX: Final = 4096
"""Fingerprints and, apart from them, stalls going on that are remembered; the oldest is forgotten first."""
OUTERMOST, INNERMOST = 50, 200
"""Frames of a stack that are sent; Sentry keeps 250."""


class SentryExporter(Outlet):
    """Sends from its construction to close(); on loopwatch's own thread, from where sentry_sdk's transport takes
    over."""

    name = "sentry"

    def __init__(
        self, client: BaseClient | None, *, include_source_context: bool, own: tuple[str, ...]
    ) -> None:
        self._client = client
        self._include_source_context, self._own = include_source_context, own
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._reported: OrderedDict[int, None] = OrderedDict()
        # Its own integration makes an event of each ERROR, and such is the log record of a hang.
        self._ignored_before = "loopwatch" in sentry_logging._IGNORED_LOGGERS
        sentry_logging.ignore_logger("loopwatch")
        outlets.add(self)

    def close(self) -> None:
        """Idempotent."""
        if outlets.remove(self) and not self._ignored_before:
            sentry_logging._IGNORED_LOGGERS.discard("loopwatch")

    def stall(self, stall: Stall) -> None:
        client = self._client if self._client is not None else sentry_sdk.get_client()
        if not client.is_active() or not self._is_new(stall):
            return
        event: Any = make_event(stall, self._own, with_source=self._include_source_context)
        if self._client is None:
            sentry_sdk.capture_event(event)  # with what the program said of itself: release, tags
        else:
            client.capture_event(event, scope=sentry_sdk.Scope())

    def _is_new(self, stall: Stall) -> bool:
        """Whether its fingerprint is, and it was not sent already while it went on, perhaps under another one."""
        new = _remember(self._seen, stall.fingerprint)
        if stall.ongoing:
            reported = stall.id in self._reported
            _remember(self._reported, stall.id)
            return new and not reported
        return self._reported.pop(stall.id, 0) is not None and new


def _remember(seen: OrderedDict[Any, None], key: object) -> bool:
    """False: it was there."""
    if key in seen:
        return False
    seen[key] = None
    if len(seen) > SEEN_MAX:
        seen.popitem(last=False)
    return True


def make_event(stall: Stall, own: tuple[str, ...] = (), *, with_source: bool = False) -> dict[str, Any]:
    """The event, as Sentry's protocol has it. No locals; source lines where asked for."""

    def stacktrace(frames: Sequence[Frame]) -> dict[str, Any]:
        cut = len(frames) > OUTERMOST + INNERMOST
        kept = (*frames[:OUTERMOST], *frames[-INNERMOST:]) if cut else frames
        return {"frames": [_frame(frame, stall, own, with_source=with_source) for frame in kept]}

    level = "error" if stall.ongoing else "warning"
    event: dict[str, Any] = {
        "level": level,
        "logger": "loopwatch",
        "platform": "python",
        "timestamp": stall.started_at,
        "fingerprint": ["loopwatch", stall.fingerprint],
        "exception": {
            "values": [
                {
                    "type": f"Stall: {stall.verdict}",
                    "value": stall.summary,
                    "thread_id": stall.native_thread_id,
                    "mechanism": {"type": "loopwatch", "handled": True},
                    "stacktrace": stacktrace(stall.frames),
                }
            ]
        },
        "tags": {"loopwatch.verdict": str(stall.verdict), "loopwatch.thread": stall.thread},
        "contexts": _contexts(stall),
    }
    if stall.culprit is not None:
        event["transaction"] = f"{module_name(stall.culprit.filename)}:{stall.culprit.qualname}"
    event["tags"] |= {f"loopwatch.{name}": text for name, text in stall.labels.items() if name == "route"}
    if stall.holder is not None:
        event["threads"] = {
            "values": [
                {
                    "id": stall.holder.native_thread_id,
                    "name": f"{stall.holder.name} (held the GIL)",
                    "crashed": False,
                    "current": False,
                    "stacktrace": stacktrace(stall.holder.frames),
                }
            ]
        }
    return event


def _frame(frame: Frame, stall: Stall, own: tuple[str, ...], *, with_source: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "filename": relative_path(frame.filename),
        "abs_path": frame.filename,
        "module": module_name(frame.filename),
        "function": frame.qualname,
        "lineno": frame.lineno,
        "in_app": is_own(frame.filename, own),
    }
    line = stall.source.get((frame.filename, frame.lineno))
    if with_source and line is not None:
        made["context_line"] = line
    return made


def _contexts(stall: Stall) -> dict[str, Any]:
    evidence = dataclasses.asdict(stall.evidence)
    contexts: dict[str, Any] = {
        "loopwatch": {
            "id": stall.id,
            "duration": stall.duration,
            "ongoing": stall.ongoing,
            "overdue": stall.overdue,
            "verdict": str(stall.verdict),
            "hint": stall.hint,
            "fingerprint": stall.fingerprint,
            "labels": dict(stall.labels),
            "steps": dict(stall.steps),
            "task": dataclasses.asdict(stall.task) if stall.task is not None else None,
        },
        "loopwatch breakdown": {str(verdict): seconds for verdict, seconds in stall.breakdown.items()},
        "loopwatch evidence": {name: value for name, value in evidence.items() if value is not None},
    }
    if "trace_id" in stall.labels and "span_id" in stall.labels:
        contexts["trace"] = {"trace_id": stall.labels["trace_id"], "span_id": stall.labels["span_id"]}
    return contexts


def install(
    client: BaseClient | None = None,
    *,
    include_source_context: bool = False,
    own: Iterable[str | os.PathLike[str]] = (),
) -> SentryExporter:
    """Send an event for each new fingerprint, of every watch of this process, until close().

    `client`: None: the one that `sentry_sdk.init` made, whenever it does. `include_source_context`: send the source
    line of each frame that the stall's text shows. `own`: as in `loopwatch.install`, for Sentry's `in_app`.
    Meanwhile sentry_sdk's logging integration leaves the logger `loopwatch` alone, so that nothing comes twice.
    """
    return SentryExporter(client, include_source_context=include_source_context, own=check_own(own))
