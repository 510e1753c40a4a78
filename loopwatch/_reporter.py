"""The reporter: the one Python thread that takes records from the native half and tells the sinks.

It waits without the GIL. A record goes to the log first; then the watchdog is told that it was delivered, and
the callbacks run. Whatever a sink does, raise or never return, touches this thread only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from loopwatch import _core
from loopwatch._alarms import Alarms
from loopwatch._clock import monotonic
from loopwatch._failures import quietly
from loopwatch._outlets import outlets

if TYPE_CHECKING:
    from loopwatch._watch import Watch

NAME = "loopwatch-reporter"
_DRAIN_LOOK_SECONDS = 0.0002, 0.005  # the first nap; each is twice as long as the one before, up to
_UNUSED_LOOK_NS = 20_000_000  # nothing is watched any more, but a stall that ended may still be written


class Watches(Protocol):
    """What the reporter needs of the registry."""

    alarms: Alarms

    @property
    def unused(self) -> bool: ...

    @property
    def winding_up(self) -> bool: ...

    def wind_up(self) -> None: ...

    def by_key(self, key: int) -> Watch | None: ...

    def housekeep(self, reporter: Reporter) -> bool: ...


class Reporter:
    """One thread, from the first install to the last uninstall."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._stopping = False
        self._fences = 0
        self._dealt = 0
        self._taken_before = _core.taken()
        self._ended = False
        self._threadless = False
        self._passed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    @property
    def alive(self) -> bool:
        return self._threadless or self._thread.is_alive()

    @property
    def idle(self) -> bool:
        """It has dealt with every record that it took."""
        return _core.taken() - self._taken_before == self._dealt

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """RuntimeError where the system gives no thread. An interpreter that shuts down (3.12 on) gives none
        either, and yet runs loops: of threads that it waits for, in atexit. There, whoever waits for a
        delivery makes it."""
        try:
            self._thread.start()
        except RuntimeError as problem:
            if "interpreter shutdown" not in str(problem):
                raise
            self._threadless = True

    def stop(self, timeout: float) -> bool:
        """Let it end and, from any other thread, wait for that. A sink that never returns keeps the (daemon)
        thread: then False, and when the sink does return the thread ends without taking another record."""
        self._stopping = True
        if self._threadless:
            return True
        _core.stop_reporter()
        if self.is_current:
            return True
        return self.join(timeout)

    def join(self, timeout: float) -> bool:
        """Wait until the thread is gone, for the kernel too. Not on the reporter's own thread."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout)
        if self.alive:
            return False
        if self._thread.native_id is not None:
            _core.await_gone(self._thread.native_id)
        return True

    def drain(self, timeout: float, pending: Callable[[], int] | None = None) -> bool:
        """Wait until every stall that has ended is delivered. Not on the reporter's own thread.

        pending() says 0 once the reporter has *taken* the last record. It has dealt with it when it has counted
        as many, or when next_record() is called again, which the None that stop_reporter() puts there proves.
        """
        deadline = monotonic() + timeout
        nap, longest_nap = _DRAIN_LOOK_SECONDS
        count = _core.pending if pending is None else pending
        while count():
            if self._threadless and (record := _core.next_record(_UNUSED_LOOK_NS)) is not None:
                self._deal_with(record)
                continue
            if not self.alive or monotonic() >= deadline:
                return False
            time.sleep(nap)
            nap = min(2 * nap, longest_nap)
        if self._threadless:
            self._watches.wind_up()
            return True
        if self.idle and not self._watches.winding_up:
            return True
        with self._passed:
            fence = self._fences
            _core.stop_reporter()
            left = max(0.0, deadline - monotonic())
            return self._passed.wait_for(lambda: self._has_passed(fence), left)

    def _has_passed(self, fence: int) -> bool:
        return self._ended or (self._fences != fence and not self._watches.winding_up)

    def _run(self) -> None:
        try:
            self._serve()
            outlets.end(self)
        finally:
            with self._passed:
                self._ended = True
                self._passed.notify_all()

    def _serve(self) -> None:
        while not self._stopping:
            record = _core.next_record(self._patience_ns())
            if record is not None:
                self._deal_with(record)
            for call in self._watches.alarms.due():
                quietly(call)
            if not self._stopping and not self._watches.housekeep(self):
                break
            with self._passed:
                self._fences += record is None
                self._passed.notify_all()

    def _patience_ns(self) -> int | None:
        """How long to wait for a record where none comes."""
        alarm_ns = self._watches.alarms.wait_ns()
        if not self._watches.unused:
            return alarm_ns
        return _UNUSED_LOOK_NS if alarm_ns is None else min(alarm_ns, _UNUSED_LOOK_NS)

    def _deal_with(self, record: _core.Record) -> None:
        watch = self._watches.by_key(record["slot"])
        if watch is None:
            _core.claim(record["token"])
            _core.delivered(record["token"])
            self._dealt += 1
            return
        try:
            if record["kind"] == "capture":
                watch.sinks.capture(record)
            elif record["kind"] in ("profile", "slow"):
                watch.profiler.take(record)
            elif record["kind"] == "look":
                watch.profiler.look(record, watch.loop)
            else:
                watch.sinks.take(record)
        except BaseException as problem:
            watch.sinks.failures.note(problem, "building a report")
        finally:
            _core.delivered(record["token"])
            self._dealt += 1
