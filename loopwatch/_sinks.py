"""Where one watch's stalls go: its history, the log, the callbacks; with what is left out and counted."""

from __future__ import annotations

import asyncio
import collections
import fnmatch
from collections.abc import Callable
from typing import TYPE_CHECKING

from loopwatch import _core
from loopwatch._build import Context, build_stall
from loopwatch._callbacks import Callbacks
from loopwatch._capture import Captured, HasTurn, capture
from loopwatch._failures import Failures, Redaction
from loopwatch._log import StallLog
from loopwatch._options import Ignore, Settings
from loopwatch._outlets import outlets
from loopwatch._paths import is_main, module_name
from loopwatch._requests import Requests
from loopwatch._shared import copy_shared
from loopwatch._stall import Stall
from loopwatch._windows import StallCounts

if TYPE_CHECKING:
    from loopwatch._core import Record

HISTORY = 256
CAPTURED_MAX = 512


class Sinks:
    """Called on the reporter's thread, apart from what says otherwise."""

    def __init__(
        self, slot: HasTurn, settings: Settings, find_loop: Callable[[], asyncio.AbstractEventLoop | None]
    ) -> None:
        self._slot, self._settings, self._find_loop = slot, settings, find_loop
        given = (settings.on_stall,) if settings.on_stall else ()
        self.callbacks: Callbacks[Stall] = Callbacks("stall callback", *given)
        self._captured: collections.deque[Captured] = collections.deque(maxlen=CAPTURED_MAX)
        self.history: collections.deque[Stall] = collections.deque(maxlen=HISTORY)
        self.totals = StallCounts()
        self.counters: collections.Counter[str] = collections.Counter(
            stalls_suppressed=0, stalls_ignored=0, callback_errors=0, requests_unseen=0
        )
        self.failures = Failures(settings.log, self.counters)
        self.redact = Redaction(settings.redact, self.failures)
        self.requests = Requests(self.redact, self.counters, self.failures.note)
        self._log = self._new_log()

    def _new_log(self) -> StallLog | None:
        logger = self._settings.log
        return None if logger is None else StallLog(logger, self._settings.log_every, self.counters)

    def renew(self) -> None:
        """In a forked child: the reporter may have held a lock; what it captured or held back is not of here."""
        self._captured.clear()
        self._log = self._new_log()
        self.callbacks.renew()
        self.failures.renew()
        self.totals.renew()
        self.requests.renew()

    # --- any thread ---

    @property
    def holds_back(self) -> bool:
        """The log has yet to tell of stalls."""
        return self._log is not None and self._log.limiter.holds_back

    def build(self, record: Record) -> Stall:
        """The Stall of a record, redacted."""
        settings = self._settings
        captured = tuple(look for look in copy_shared(self._captured) if look.turn == record["turn"])
        labels = self.requests.labels(record)
        return build_stall(record, Context(self._find_loop(), settings.own, self.redact, captured, labels))

    # --- the reporter's thread ---

    def capture(self, record: Record) -> None:
        look = capture(record, self._slot, self._find_loop())
        if look is not None:
            if self._captured and self._captured[-1].turn != look.turn:
                self._captured.clear()
            self._captured.append(look)

    def take(self, record: Record) -> None:
        """History, log, callbacks, exporters, in this order."""
        if self._debugged(record):
            self.counters["stalls_debugged"] += record["kind"] == "ended"
            return
        stall = self.build(record)
        token = record["token"]
        # Only urgent records have a token, and only they can have been written to dump_to already.
        unclaimed = not token or _core.claim(token)
        if self._ignored(stall):
            self.counters["stalls_ignored"] += not stall.ongoing
            return
        if not stall.ongoing:
            self.history.append(stall)
            self.totals.add(stall.verdict, record["end_ns"] - record["begin_ns"], record["end_ns"])
            self.requests.note(record, stall)
        if self._log is not None and unclaimed:
            self._log.take(stall)
            _core.delivered(token)
        self.callbacks.call(stall, self.failures)
        outlets.tell(stall)

    def wind_up(self) -> None:
        """The watch is over."""
        if self._log is not None:
            self._log.limiter.tell_all()

    def _debugged(self, record: Record) -> bool:
        """Where the watchdog reads frames itself, it sees that itself."""
        return any(look.debugger for look in self._captured if look.turn == record["turn"])

    def _ignored(self, stall: Stall) -> bool:
        return any(self._matches(entry, stall) for entry in self._settings.ignore)

    def _matches(self, entry: Ignore, stall: Stall) -> bool:
        if isinstance(entry, str):
            return matches(entry, stall)
        try:
            return bool(entry(stall))
        except Exception as problem:
            self.failures.note(problem, f"ignore callable {entry!r}")
            return False


def matches(pattern: str, stall: Stall) -> bool:
    """Whether "module:qualname", with wildcards, names the culprit; without a colon, its module."""
    if stall.culprit is None:
        return False
    module, colon, qualname = pattern.partition(":")
    modules = [module_name(stall.culprit.filename)]
    if is_main(stall.culprit.filename):
        modules.append("__main__")
    return any(fnmatch.fnmatchcase(name, module) for name in modules) and (
        not colon or fnmatch.fnmatchcase(stall.culprit.qualname, qualname)
    )
