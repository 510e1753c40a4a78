"""Thread pools: the loop's default executor and those that the program names, and what is said of a full one.

A pool that is full looks like ordinary latency: the loop turns, and whoever awaits a call waits. What is known
of a pool's calls is _pool.py's; here is whose pools they are, and when somebody looks.

Nothing wakes while every call has a worker. A submission that finds more calls than workers sets one alarm on
the reporter's thread, for when the oldest call will have waited for the threshold; while calls wait it is set
again, and a call that has waited that long is reported: once, again at each tenfold wait, and anew after the
oldest wait was below the threshold.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from loopwatch._callbacks import Callbacks
from loopwatch._default_executor import (
    RunInExecutor,
    SetDefaultExecutor,
    default_of,
    give,
    is_stock,
    make_spare,
    shuts_down,
    take,
)
from loopwatch._names import unused_name
from loopwatch._options import Settings
from loopwatch._pool import Calls, ExecutorState, Submit, unwatch_submit, watch_submit
from loopwatch._registry import registry
from loopwatch._saturation import Saturation, SaturationLog, build_saturation
from loopwatch._workers import read_frames

if TYPE_CHECKING:
    from loopwatch._alarms import Alarm
    from loopwatch._watch import Watch

DEFAULT: Final = "default"
LOOK_MIN, LOOK_MAX = 0.05, 1.0
"""Seconds between two looks at a full pool."""

SaturationCallback = Callable[[Saturation], object]


class Executor:
    """A thread pool as a watch sees it. It does not keep the pool alive."""

    def __init__(self, watched: Executors, name: str) -> None:
        self._watched = watched
        self._name = name
        self._find_pool: Callable[[], ThreadPoolExecutor | None] = lambda: None
        self._calls: Calls | None = None
        self._hook: Submit | None = None
        self._alarm: Alarm | None = None
        self._report_at = 0.0

    @property
    def name(self) -> str:
        """No two of a watch have the same."""
        return self._name

    @property
    def pool(self) -> ThreadPoolExecutor | None:
        """None once it is gone, and where the loop has made no default executor yet."""
        return self._find_pool()

    @property
    def seen(self) -> bool:
        """False under LOOPWATCH=0, and where it was asked for after uninstall()."""
        return self._calls is not None

    def state(self) -> ExecutorState:
        """How it is now; from any thread. All 0 where there is no pool yet, and under LOOPWATCH=0."""
        if self._calls is None:
            return ExecutorState(self._name, 0, 0, 0, 0, 0.0, 0.0, 0, 0)
        return self._calls.state(self._name)

    def __repr__(self) -> str:
        return f"<Executor {self._name!r} of {self.pool!r}>"

    # --- which pool: with the lock of the watch's executors ---

    def bind(self, pool: ThreadPoolExecutor, gone: Callable[[object], object], *, see: bool) -> None:
        """This pool from now on; what was counted of another one stays counted."""
        before = self.state() if self._calls is not None else None
        self.release()
        self._find_pool = weakref.ref(pool, gone)
        if not see:
            return
        self._calls = Calls(pool, before)
        self._hook = watch_submit(pool, self._seen)
        if self._calls.crowded():
            self._wait(self._watched.threshold)

    def release(self) -> None:
        """See it no longer."""
        hook, self._hook = self._hook, None
        if hook is not None:
            unwatch_submit(hook, self._seen)
        if (alarm := self._alarm) is not None:
            alarm.cancel()
        self._alarm = None

    def rename(self, name: str) -> None:
        self._name = name

    def renew(self) -> None:
        """In a forked child: the parent's alarm is the parent's."""
        self._alarm = None
        if self._calls is not None:
            self._calls.renew()

    def began(self, future: object) -> None:
        """A call that was submitted before the pool could be bound, and made it."""
        if self._calls is not None:
            self._calls.began(future)

    # --- submissions: any thread ---

    def _seen(self, pool: ThreadPoolExecutor, at_ns: int, future: object) -> None:
        try:
            calls = self._calls
            if calls is None or not calls.add(pool, at_ns, future) or self._waits():
                return
            if calls.crowded():
                self._wait(self._watched.threshold)
        except Exception as problem:  # who submits must not feel it
            self._watched.note_failure(problem, f"looking at executor {self._name!r}")

    def _waits(self) -> bool:
        return (alarm := self._alarm) is not None and alarm.pending

    def _wait(self, seconds: float) -> None:
        """Two threads at once set two alarms. Then both looks are made, and the second sets no other one. An
        alarm may go off before it is assigned here, so it is asked whether it did."""
        if self._waits():
            return
        self._alarm = registry().alarms.call_later(min(max(seconds, 0.001), LOOK_MAX), self._look)

    # --- looks: the reporter's thread ---

    def _look(self) -> None:
        try:
            if self._hook is not None and self._calls is not None:
                self._look_at(self._calls, self._watched.threshold)
        except Exception as problem:
            self._watched.note_failure(problem, f"looking at executor {self._name!r}")

    def _look_at(self, calls: Calls, threshold: float) -> None:
        state = calls.state(self._name)
        waited = state.oldest_wait
        if calls.take_ran_empty() or waited < threshold:
            self._report_at = 0.0
        if not state.queued:
            return
        if waited >= max(threshold, self._report_at):
            self._report_at = max(self._report_at, threshold)
            while self._report_at <= waited:
                self._report_at *= 10
            self._watched.report(self, state, calls.threads())
        due = max(self._report_at, threshold) - waited
        self._wait(min(due, max(threshold, LOOK_MIN)) if due > 0 else LOOK_MIN)


class Executors:
    """Those of one watch."""

    def __init__(self, watch: Watch, settings: Settings) -> None:
        self._find_watch = weakref.ref(watch)  # which refers to us
        self._settings, self._counters = settings, watch.sinks.counters
        self._lock = threading.RLock()
        self._by_pool: dict[int, Executor] = {}  # by the id of the pool, while it lives
        self._default = Executor(self, DEFAULT)
        self._spare: ThreadPoolExecutor | None = None
        """The default executor of a stock loop that made none itself, while the loop has it not."""
        self._lent: Callable[[], ThreadPoolExecutor | None] = lambda: None
        """The same while the loop has it, until it is used or replaced; its end then shows at once."""
        self.is_told = False
        """set_default_executor tells when the loop gets another one."""
        self.callbacks: Callbacks[Saturation] = Callbacks("saturation callback")
        self._log = self._new_log()

    def _new_log(self) -> SaturationLog | None:
        logger = self._settings.log
        return None if logger is None else SaturationLog(logger, self._settings.log_every, self._counters)

    @property
    def threshold(self) -> float:
        watch = self._find_watch()
        return watch.threshold if watch is not None else self._settings.threshold

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        watch = self._find_watch()
        return watch.loop if watch is not None else None

    @property
    def _installed(self) -> bool:
        watch = self._find_watch()
        return watch is not None and watch.installed

    def renew(self) -> None:
        """In a forked child: another thread may have held the lock; what was held back is the parent's."""
        self._lock = threading.RLock()
        self._log = self._new_log()
        self.callbacks.renew()
        for executor in self._list():
            executor.renew()

    # --- which there are: any thread ---

    def executor(self, pool: Any, name: Any) -> Executor:
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeError(f"name must be a str that is not empty, or None, not {name!r}")
        if pool is not None:
            _check_pool(pool)
        with self._lock:
            self.find_default()
            executor = self._default_one() if pool is None else self._of(pool)
            if executor is None:
                executor = Executor(self, self._free_name(name, pool))
                self._bind(executor, pool)
            elif name is not None and name != executor.name:
                executor.rename(self._free_name(name, pool))
            return executor

    def _default_one(self) -> Executor:
        """The program may have named the pool itself."""
        loop = self._loop
        pool = default_of(loop) if loop is not None else None
        return (self._of(pool) if pool is not None else None) or self._default

    def known(self) -> tuple[Executor, ...]:
        """The default one first; without those whose pool is gone."""
        self.find_default()
        found = [executor for executor in self._list() if executor.seen]
        return tuple(sorted(found, key=lambda executor: executor is not self._default))

    def _list(self) -> list[Executor]:
        return [executor for executor in list(self._by_pool.values()) if executor.pool is not None]

    def _of(self, pool: ThreadPoolExecutor) -> Executor | None:
        executor = self._by_pool.get(id(pool))
        return executor if executor is not None and executor.pool is pool else None

    def _free_name(self, name: str | None, pool: ThreadPoolExecutor | None) -> str:
        taken = {DEFAULT, self._default.name, *(executor.name for executor in self._list())}
        if name is None:
            return unused_name(getattr(pool, "_thread_name_prefix", None) or "executor", taken)
        if name in taken:
            raise ValueError(f"name must be one that no other executor of this watch has, not {name!r}")
        return name

    def _bind(self, executor: Executor, pool: ThreadPoolExecutor) -> None:
        key = id(pool)
        self._by_pool[key] = executor
        by_pool = weakref.ref(self)

        def gone(_: object) -> None:
            if (executors := by_pool()) is not None:
                executors._by_pool.pop(key, None)
                executors._lost_one()

        executor.bind(pool, gone, see=self._installed)

    def _lost_one(self) -> None:
        """It may have been the default one of a stock loop, for which there is another now. Called in the middle
        of anything, so it waits for no lock, and uvloop's referents, of which one is being freed, are not
        asked for: whoever reads next finds it."""
        loop = self._loop
        if loop is not None and is_stock(loop) and self._lock.acquire(blocking=False):
            try:
                self.find_default()
            finally:
                self._lock.release()

    def detach(self) -> None:
        """See none of them any more."""
        with self._lock:
            for executor in self._list():
                executor.release()
            self._default.release()
            self.take_back()
            self._spare = None

    # --- the loop's default one ---

    def default_pool(self) -> ThreadPoolExecutor | None:
        return self._default._find_pool()

    def find_default(self, first: object = None) -> bool:
        """Bind the loop's default executor where it is another than before; False: there is none yet.
        `first`: the asyncio.Future of the call for which the loop made it just now."""
        loop = self._loop
        if loop is None or not self._installed:
            return False
        known = self._default.pool
        if known is not None and self.is_told:
            return True
        try:
            pool = default_of(loop)
            if pool is not None and pool is not known:
                self.set_default(pool, first)
        except Exception as problem:  # who submits must not feel it
            self.note_failure(problem, "finding the default executor")
            return True
        return pool is not None

    def set_default(self, pool: object, first: object = None) -> None:
        with self._lock:
            if isinstance(pool, ThreadPoolExecutor) and self._installed and self._of(pool) is None:
                self._forget(self._default)
                self._bind(self._default, pool)
                if first is not None:
                    self._default.began(first)

    def _forget(self, executor: Executor) -> None:
        for key, known in list(self._by_pool.items()):
            if known is executor:
                del self._by_pool[key]

    def shadow(self, loop: asyncio.AbstractEventLoop, put: Callable[[object, str, Any], None]) -> None:
        """Put on a loop that is not a stock one what shows its default executor from the first call on."""
        if is_stock(loop) or self._settings.brief:
            return
        put(loop, "run_in_executor", RunInExecutor(self, loop))
        if not hasattr(loop, "_default_executor"):
            self.is_told = True
            put(loop, "set_default_executor", SetDefaultExecutor(self, loop))

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop is watched: a stock one gets its default executor now."""
        if self._settings.brief:
            return
        if not self.find_default() and (pool := self._spare or make_spare(loop)) is not None:
            give(loop, pool)
            self._spare, self._lent = None, weakref.ref(pool)
            self.find_default()

    def run_begins(self) -> None:
        if (loop := self._loop) is None or not self._installed or (self._spare or self._lent()) is None:
            return
        if shuts_down(loop):
            self.take_back()
        elif self._spare is not None:
            self.begin(loop)

    def take_back(self) -> None:
        """What begin() gave and nobody used: shutting it down would start a thread, and a loop that does not run is
        to look as if it were not watched. One that runs in another thread may be about to use it, or to shut it
        down: it keeps it."""
        if (loop := self._loop) is None or (loop.is_running() and asyncio._get_running_loop() is not loop):
            return
        if (pool := self._lent()) is not None:
            self._spare, self._lent = (pool if take(loop, pool) else None), lambda: None

    # --- reports: the reporter's thread ---

    def report(self, executor: Executor, state: ExecutorState, threads: list[threading.Thread]) -> None:
        if (watch := self._find_watch()) is None:
            return
        settings, sinks = self._settings, watch.sinks
        frames = read_frames(threads, watch.capture, watch.slot)
        saturation = build_saturation(executor, state, (threads, frames), settings.own, sinks.redact)
        if self._log is not None:
            self._log.take(saturation)
        self.callbacks.call(saturation, sinks.failures)

    @property
    def holds_back(self) -> bool:
        """The log has yet to tell of full executors. Any thread."""
        return self._log is not None and self._log.limiter.holds_back

    def wind_up(self) -> None:
        """The watch is over."""
        if self._log is not None:
            self._log.limiter.tell_all()

    def note_failure(self, problem: BaseException, where: str) -> None:
        if (watch := self._find_watch()) is not None:
            watch.sinks.failures.note(problem, where)


def _check_pool(pool: object) -> None:
    if isinstance(pool, ThreadPoolExecutor):
        return
    why = ""
    if isinstance(pool, concurrent.futures.ProcessPoolExecutor):  # found there, multiprocessing is imported
        why = " (its workers are other processes: what they do cannot be seen from this one)"
    raise TypeError(f"pool must be a concurrent.futures.ThreadPoolExecutor or None, not {pool!r}{why}")
