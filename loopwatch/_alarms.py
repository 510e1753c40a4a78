"""Calls that the reporter makes at a time: between two records, on its thread, never on a loop's.

Nothing wakes for an alarm that nobody set, so an idle process stays idle.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from loopwatch._clock import monotonic_ns


class Alarm:
    """A call to come. cancel() from any thread; idempotent."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    @property
    def pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        self._callback = None

    def take(self) -> Callable[[], object] | None:
        """What to call, once."""
        callback, self._callback = self._callback, None
        return callback


class Alarms:
    """Those of one process: after a fork the child has none, and whoever wants one sets it again."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._lock = threading.RLock()  # a finalizer may set an alarm while this thread sets one
        self._heap: list[tuple[int, int, Alarm]] = []
        self._order = itertools.count()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Alarm:
        """Call it once, `seconds` from now or a little later; what it raises is the caller's to catch."""
        alarm = Alarm(callback)
        when_ns = monotonic_ns() + round(seconds * 1e9)
        with self._lock:
            heapq.heappush(self._heap, (when_ns, next(self._order), alarm))
            first = self._heap[0][2] is alarm
        if first:
            self._wake()
        return alarm

    def wait_ns(self) -> int | None:
        """From now to the next; None where there is none."""
        with self._lock:
            while self._heap and not self._heap[0][2].pending:
                heapq.heappop(self._heap)
            return max(0, self._heap[0][0] - monotonic_ns()) if self._heap else None

    def clear(self) -> None:
        """Nobody is there any more to make the calls."""
        with self._lock:
            for _, _, alarm in self._heap:
                alarm.cancel()
            self._heap.clear()

    def due(self) -> list[Callable[[], object]]:
        """Takes out those whose time has come, in their order."""
        now_ns = monotonic_ns()
        found: list[Alarm] = []
        with self._lock:
            while self._heap and self._heap[0][0] <= now_ns:
                found.append(heapq.heappop(self._heap)[2])
        return [callback for alarm in found if (callback := alarm.take()) is not None]
