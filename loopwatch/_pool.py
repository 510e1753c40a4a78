"""One thread pool, seen from outside: what was submitted to it, what waits, what runs.

`submit` is shadowed on the instance; the work is not wrapped. Each submission leaves a stamp and a weak
reference to its future, which says for itself whether it waits, runs or has ended: looked at when somebody
reads, when an alarm is due (_executors.py), and in a submission that finds more calls than workers. The pool's
own account of its idle workers is of no use: on CPython 3.11 its semaphore is released after each call, also
where the next one is taken at once, and from 3.12 on a worker that takes a call meant for another one leaves
it wrong for good.

Nothing here keeps a pool, a future or a result alive.
"""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from loopwatch._clock import monotonic_ns
from loopwatch._shared import copy_shared

ENTRIES_MAX: Final = 4096
"""Calls remembered one by one. Of more that wait at once, every second, fourth... is: the oldest wait is then
short by the time between as many submissions."""

_SUBMIT: Final = "submit"
_WAITS: Final = "PENDING"
_ENDS: Final = ("PENDING", "RUNNING")
"""States of a future that has not ended; of one that was seen running "PENDING" is an asyncio.Future's word."""


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """One look at a thread pool. Times in seconds."""

    name: str
    max_workers: int
    """As many threads as it may have."""
    workers: int
    """Threads that it has started."""
    busy: int
    """Workers that run a call."""
    queued: int
    """Calls that wait for a worker."""
    oldest_wait: float
    """How long the first of them has waited."""
    saturated: float
    """How long altogether a call waited while every worker was busy. Looked at while calls wait, so at most
    a look short for each time the queue ran empty."""
    submitted: int
    """Calls since the pool is watched..."""
    completed: int
    """...and how many of them have ended, or were cancelled."""


Reference = Callable[[], Any]
"""A weak reference to a future."""


def _waits(reference: Reference) -> bool:
    future = reference()
    return future is not None and future._state == _WAITS


def _goes_on(reference: Reference) -> bool:
    future = reference()
    return future is not None and future._state in _ENDS


class Calls:
    """The calls of one pool, for one watch. Any thread.

    `_waiting` are the calls in their order of submission; those at its front that have begun move to
    `_running`. Neither is tidied while there are fewer calls than workers.
    """

    def __init__(self, pool: ThreadPoolExecutor, before: ExecutorState | None = None) -> None:
        self._pool = weakref.ref(pool)
        self._lock = threading.RLock()  # a finalizer may submit wherever something is allocated
        self._waiting: collections.deque[tuple[int, Reference]] = collections.deque()
        self._running: list[Reference] = []
        self._stride = 1
        """One call in so many is remembered."""
        self._now_ns = self._found_ns = monotonic_ns()
        self._found_queued = pool._work_queue.qsize()
        self._found_workers = len(pool._threads)
        """What runs on these was never seen; 0 once there was no more work than workers."""
        self._ran_empty = False
        self._new = 0
        self._before = before.submitted if before else 0
        self._completed = before.completed if before else 0
        self._saturated_ns = round(before.saturated * 1e9) if before else 0
        self._max_workers = pool._max_workers

    def renew(self) -> None:
        """In a forked child: another thread may have held the lock, and no worker came along."""
        self._lock = threading.RLock()
        self._waiting.clear()
        self._running.clear()

    # --- submissions ---

    def began(self, future: object) -> None:
        """A call that was submitted unseen, to a pool without any other."""
        with self._lock:
            self._new += 1
            self._running.append(weakref.ref(future))
            self._found_workers = self._found_queued = 0

    def add(self, pool: ThreadPoolExecutor, at_ns: int, future: object) -> bool:
        """A call was submitted. True: there is more to do than there are workers, as far as known without
        a closer look."""
        with self._lock:
            self._new += 1
            self._max_workers = pool._max_workers
            if self._stride == 1 or self._new % self._stride == 0:
                self._waiting.append((at_ns, weakref.ref(future)))
                if len(self._waiting) > ENTRIES_MAX:
                    self._thin()
            if not self._crowded():
                return False
            if pool._work_queue.qsize() <= 1:
                self._ran_empty = True
            return True

    def take_ran_empty(self) -> bool:
        """Whether a submission found nothing in the queue since this was asked last, however much was known
        to be there."""
        ran_empty, self._ran_empty = self._ran_empty, False
        return ran_empty

    def crowded(self) -> bool:
        """Whether there is more to do than there are workers, after a closer look."""
        with self._lock:
            self._look(monotonic_ns())
            return self._crowded()

    def _crowded(self) -> bool:
        known = len(self._waiting) * self._stride + len(self._running) + self._found_queued
        return known > self._max_workers - self._found_workers

    def _thin(self) -> None:
        """Only what waits stays; where that is too much, half of it."""
        for _, reference in self._waiting:
            if not _waits(reference) and _goes_on(reference):
                self._running.append(reference)
        kept = [entry for entry in self._waiting if _waits(entry[1])]
        self._running = [reference for reference in self._running if _goes_on(reference)]
        if len(kept) > ENTRIES_MAX // 2:
            kept = kept[::2]
            self._stride *= 2
        self._waiting = collections.deque(kept)

    # --- looks ---

    def _look(self, now_ns: int) -> int | None:
        """Brings everything up to date; since when the oldest call waits, None: none does."""
        waiting, running = self._waiting, self._running
        while waiting and not _waits(waiting[0][1]):
            _, reference = waiting.popleft()
            running.append(reference)
        running[:] = [reference for reference in running if _goes_on(reference)]
        if not waiting:
            self._stride = 1
        oldest_ns = self._oldest_ns()
        if oldest_ns is None:
            self._found_workers = 0
        elif self._crowded():
            self._saturated_ns += max(0, now_ns - max(oldest_ns, self._now_ns))
        self._now_ns = max(now_ns, self._now_ns)
        return oldest_ns

    def _oldest_ns(self) -> int | None:
        if self._found_queued and self._queue_size() > self._new:  # calls leave the queue in their order
            return self._found_ns
        self._found_queued = 0
        return self._waiting[0][0] if self._waiting else None

    def _queue_size(self) -> int:
        pool = self._pool()
        return pool._work_queue.qsize() if pool is not None else 0

    def _queued(self) -> int:
        """Without the calls that were cancelled while they waited, and what `shutdown` puts into the queue."""
        if self._found_queued or self._stride > 1:
            return self._queue_size()
        return min(self._queue_size(), sum(_waits(reference) for _, reference in self._waiting))

    def state(self, name: str) -> ExecutorState:
        pool = self._pool()
        now_ns = monotonic_ns()
        with self._lock:
            oldest_ns = self._look(now_ns)
            queued = self._queued() if oldest_ns is not None else 0
            workers = len(pool._threads) if pool is not None else 0
            full = queued > 0 and self._crowded()
            busy = workers if full else min(workers, len(self._running))
            # What is queued and what runs was counted one after the other, so a call may seem to be neither.
            submitted = self._before + self._new
            self._completed = max(self._completed, submitted - queued - busy)
            return ExecutorState(
                name=name,
                max_workers=pool._max_workers if pool is not None else self._max_workers,
                workers=workers,
                busy=busy,
                queued=queued,
                oldest_wait=(now_ns - oldest_ns) / 1e9 if oldest_ns is not None and queued else 0.0,
                saturated=self._saturated_ns / 1e9,
                submitted=submitted,
                completed=self._completed,
            )

    def threads(self) -> list[threading.Thread]:
        """The workers, in the order of their names where these are numbered."""
        pool = self._pool()
        if pool is None:
            return []
        found = [thread for thread in copy_shared(pool._threads) if isinstance(thread, threading.Thread)]
        return sorted(found, key=lambda thread: (len(thread.name), thread.name))


Seen = Callable[[ThreadPoolExecutor, int, object], None]
"""Told of a submission: the pool, when it began, the future."""


class Submit:
    """Shadows `submit` of one pool, for every watch that sees it. It does not keep the pool alive: where only
    a bound `pool.submit` was kept, the pool goes, as it would not without us."""

    __slots__ = ("_pool", "_previous", "_submit", "seen")

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = weakref.ref(pool)
        self._previous: Any = pool.__dict__.get(_SUBMIT)
        self._submit: Any = type(pool).submit
        self.seen: tuple[Seen, ...] = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        pool = self._pool()
        if pool is None:
            raise RuntimeError("cannot schedule new futures: the pool is gone")
        at_ns = monotonic_ns()
        previous = self._previous
        future = previous(*args, **kwargs) if previous else self._submit(pool, *args, **kwargs)
        for seen in self.seen:
            seen(pool, at_ns, future)
        return future

    def __repr__(self) -> str:
        return f"<watched submit of {self._pool()!r}>"

    def remove(self) -> None:
        """Where somebody has put something over it, it stays below, and does nothing."""
        pool = self._pool()
        if pool is None or pool.__dict__.get(_SUBMIT) is not self:
            return
        if self._previous is None:
            del pool.submit
        else:
            pool.submit = self._previous  # type: ignore[method-assign]


def watch_submit(pool: ThreadPoolExecutor, seen: Seen) -> Submit:
    """Tell `seen` of each submission, from now on; it must not raise."""
    hook = pool.__dict__.get(_SUBMIT)
    if not isinstance(hook, Submit):
        hook = Submit(pool)
        pool.submit = hook  # type: ignore[method-assign]
    hook.seen = (*hook.seen, seen)
    return hook


def unwatch_submit(hook: Submit, seen: Seen) -> None:
    hook.seen = tuple(known for known in hook.seen if known != seen)
    if not hook.seen:
        hook.remove()
