"""Callables that a program adds to a watch, for its stalls or its full executors: from any thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from loopwatch._failures import Failures, quietly

T = TypeVar("T")


class Callbacks(Generic[T]):
    """`what` they are, for the log where one raises."""

    def __init__(self, what: str, *callbacks: Callable[[T], object]) -> None:
        self._what = what
        self._lock = threading.RLock()  # a finalizer may add one while this thread does
        self._callbacks = callbacks

    def renew(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.RLock()

    def add(self, callback: Callable[[T], object]) -> None:
        """Added twice, it is called twice."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

    def remove(self, callback: Callable[[T], object]) -> int:
        """All that are equal to it; how many these were."""
        with self._lock:
            kept = tuple(known for known in self._callbacks if known != callback)
            removed = len(self._callbacks) - len(kept)
            self._callbacks = kept
        return removed

    def call(self, report: T, failures: Failures) -> None:
        """Each with the report; what one raises is a failure, and the next is called."""
        for callback in self._callbacks:
            if problem := quietly(functools.partial(callback, report)):
                failures.note(problem, f"the {self._what} {callback!r}")
