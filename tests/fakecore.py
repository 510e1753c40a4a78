"""The reporter's side of loopwatch._core in plain Python: tests put the records in by hand."""

from __future__ import annotations

import queue
import threading
from typing import Any


class FakeCore:
    """Stands in for the module where the reporter and the sinks look it up."""

    def __init__(self) -> None:
        self.claimed_by_watchdog: set[int] = set()
        self.delivered_tokens: list[int] = []
        self._records: queue.Queue[Any] = queue.Queue()
        self._taken = 0
        self._stops = threading.Event()
        self._wake = threading.Condition()

    def put(self, record: Any) -> None:
        with self._wake:
            self._records.put(record)
            self._wake.notify_all()

    def next_record(self, timeout_ns: int | None) -> Any:
        timeout = None if timeout_ns is None else timeout_ns / 1e9
        with self._wake:
            self._wake.wait_for(lambda: self._stops.is_set() or not self._records.empty(), timeout)
            if self._stops.is_set():
                self._stops.clear()
                return None
            if self._records.empty():
                return None
            self._taken += 1
            return self._records.get()

    def stop_reporter(self) -> None:
        with self._wake:
            self._stops.set()
            self._wake.notify_all()

    def pending(self) -> int:
        return self._records.qsize()

    def taken(self) -> int:
        return self._taken

    def await_gone(self, native_thread_id: int) -> None:
        pass

    def claim(self, token: int) -> bool:
        return token not in self.claimed_by_watchdog

    def delivered(self, token: int) -> None:
        if token not in self.delivered_tokens:
            self.delivered_tokens.append(token)
