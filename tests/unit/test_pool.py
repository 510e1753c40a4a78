"""What is known of a pool's calls without a pool: their states are set by hand."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest

from loopwatch import _pool
from loopwatch._pool import ENTRIES_MAX, Calls


class Call:
    """A future, as far as it matters here; a million of them must fit."""

    __slots__ = ("__weakref__", "_state")

    def __init__(self, state="PENDING"):
        self._state = state


class Queue:
    size = 0

    def qsize(self):
        return self.size


class Pool:
    def __init__(self, max_workers=2, workers=0, queued=0):
        self._max_workers = max_workers
        self._threads = set(range(workers))
        self._work_queue = Queue()
        self._work_queue.size = queued


class Clock:
    now_ns = 0

    def monotonic_ns(self):
        return self.now_ns

    def sleep(self, seconds):
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_pool, "monotonic_ns", clock.monotonic_ns)
    return clock


class Bench:
    """A pool of two workers, each of which takes the next call when it is told to."""

    def __init__(self, clock, max_workers=2):
        self.clock, self.pool = clock, Pool(max_workers)
        self.calls = Calls(self.pool)
        self.queue, self.running = [], []

    def submit(self):
        call = Call()
        if len(self.pool._threads) < self.pool._max_workers:
            self.pool._threads.add(len(self.pool._threads))
        self.queue.append(call)
        crowded = self.calls.add(self.pool, self.clock.now_ns, call)
        self.settle()
        return call, crowded

    def settle(self):
        while self.queue and len(self.running) < self.pool._max_workers:
            call = self.queue.pop(0)
            if call._state == "PENDING":
                call._state = "RUNNING"
                self.running.append(call)
        self.pool._work_queue.size = len(self.queue)

    def finish(self, call):
        call._state = "FINISHED"
        self.running.remove(call)
        self.settle()

    @property
    def state(self):
        return self.calls.state("pool")


@pytest.fixture
def bench(clock):
    return Bench(clock)


def test_what_runs_and_what_waits(bench, clock):
    first, _ = bench.submit()
    assert (bench.state.busy, bench.state.queued, bench.state.workers) == (1, 0, 1)
    bench.submit()
    clock.sleep(1)
    bench.submit()
    clock.sleep(2)
    bench.submit()
    clock.sleep(4)
    state = bench.state
    assert (state.busy, state.queued, state.max_workers, state.workers) == (2, 2, 2, 2)
    assert state.oldest_wait == pytest.approx(6)
    bench.finish(first)
    assert bench.state.oldest_wait == pytest.approx(4)
    assert (bench.state.submitted, bench.state.completed, bench.state.queued) == (4, 1, 1)


def test_a_worker_is_there_for_each(bench):
    crowded = [bench.submit()[1] for _ in range(3)]
    assert crowded == [False, False, True]
    for call in list(bench.running):
        bench.finish(call)
    assert not bench.calls.crowded()
    assert bench.submit()[1] is False


def test_many_calls_one_after_the_other_are_never_too_many_for_long(bench):
    for _ in range(100):
        call, crowded = bench.submit()
        bench.finish(call)
        assert not (crowded and bench.calls.crowded())
    state = bench.state
    assert (state.submitted, state.completed, state.busy, state.saturated) == (100, 100, 0, 0.0)


def test_cancelled_calls_wait_no_longer(bench, clock):
    running = [bench.submit()[0] for _ in range(2)]
    given_up = [bench.submit()[0] for _ in range(3)]
    clock.sleep(1)
    waiting, _ = bench.submit()
    clock.sleep(1)
    for call in given_up:
        call._state = "CANCELLED"
    assert (bench.state.queued, bench.state.oldest_wait) == (1, pytest.approx(1))
    waiting._state = "CANCELLED"
    assert (bench.state.queued, bench.state.oldest_wait, bench.state.busy) == (0, 0.0, 2)
    assert bench.state.completed == 4
    assert running


def test_saturated_is_the_time_in_which_a_call_waited(bench, clock):
    first, _ = bench.submit()
    second, _ = bench.submit()
    clock.sleep(10)
    assert bench.state.saturated == 0.0  # everybody works, nobody waits
    third, _ = bench.submit()
    clock.sleep(3)
    assert bench.state.saturated == pytest.approx(3)
    bench.submit()
    clock.sleep(1)
    assert bench.state.saturated == pytest.approx(4)  # two wait, and the time counts once
    bench.finish(first)
    bench.finish(second)
    clock.sleep(5)
    assert bench.state.saturated == pytest.approx(4)
    assert third._state == "RUNNING"


def test_results_are_not_kept(clock):
    class Result:
        pass

    class Holds(Call):
        __slots__ = ("result",)

    pool = Pool(max_workers=8)
    calls, call = Calls(pool), Holds()
    calls.add(pool, clock.now_ns, call)
    call.result = Result()
    call._state = "FINISHED"
    result = weakref.ref(call.result)
    del call
    assert result() is None


def test_neither_is_the_pool(clock):
    pool = Pool()
    calls = Calls(pool)
    call = Call("RUNNING")
    calls.add(pool, clock.now_ns, call)
    gone = weakref.ref(pool)
    del pool
    assert gone() is None
    state = calls.state("pool")
    assert (state.max_workers, state.workers, state.queued, state.busy) == (2, 0, 0, 0)
    assert (state.submitted, state.completed) == (1, 1)


def test_memory_is_bounded_however_many_wait(clock):
    pool = Pool(max_workers=2, workers=2)
    calls = Calls(pool)
    waiting = [Call() for _ in range(300_000)]
    gc.collect()
    before, most = sys.getallocatedblocks(), 0
    for index, call in enumerate(waiting):
        clock.now_ns = index * 1_000
        calls.add(pool, clock.now_ns, call)
        if index % 10_000 == 0:
            most = max(most, sys.getallocatedblocks() - before)
    pool._work_queue.size = len(waiting)
    assert most < 8 * ENTRIES_MAX
    state = calls.state("pool")
    assert (state.queued, state.submitted) == (300_000, 300_000)
    assert state.oldest_wait == pytest.approx(0.3, rel=0.01)
    for call in waiting[:150_000]:
        call._state = "FINISHED"
    pool._work_queue.size = 150_000
    state = calls.state("pool")
    assert state.oldest_wait == pytest.approx(0.15, rel=0.02)
    assert (state.queued, state.busy, state.completed) == (150_000, 2, 150_000 - 2)
    for call in waiting[150_000:]:
        call._state = "FINISHED"
    pool._work_queue.size = 0
    assert calls.state("pool").completed == 300_000
    call = Call()
    calls.add(pool, clock.now_ns, call)  # each call is remembered again
    assert calls._waiting[-1][1]() is call


def test_calls_that_were_there_before(clock):
    pool = Pool(max_workers=2, workers=2, queued=3)
    calls = Calls(pool)
    clock.sleep(1)
    state = calls.state("pool")
    assert (state.queued, state.busy, state.submitted) == (3, 2, 0)
    assert state.oldest_wait == pytest.approx(1)
    mine = Call()
    assert calls.add(pool, clock.now_ns, mine)
    pool._work_queue.size = 4
    clock.sleep(1)
    assert calls.state("pool").oldest_wait == pytest.approx(2)
    pool._work_queue.size = 1  # the three have begun
    assert calls.state("pool").oldest_wait == pytest.approx(1)
    mine._state = "FINISHED"
    pool._work_queue.size = 0
    assert not calls.crowded()
    assert calls.state("pool").completed == 1


def test_the_call_that_made_the_pool():
    pool = Pool(max_workers=2, workers=1)
    calls, future = Calls(pool), Call()  # an asyncio.Future: never "RUNNING"
    calls.began(future)
    assert (calls.state("pool").busy, calls.state("pool").submitted) == (1, 1)
    future._state = "FINISHED"
    assert (calls.state("pool").busy, calls.state("pool").completed) == (0, 1)


def test_counts_go_on_with_another_pool(bench, clock):
    for _ in range(3):
        bench.submit()
    clock.sleep(1)
    before = bench.state
    pool = Pool()
    state = Calls(pool, before).state("pool")
    assert (state.submitted, state.saturated) == (3, pytest.approx(1))
    assert state.completed >= before.completed


def test_completed_never_falls(bench, clock):
    seen = [bench.state.completed]
    calls = [bench.submit()[0] for _ in range(6)]
    for call in calls:
        seen.append(bench.state.completed)
        bench.finish(call)
        clock.sleep(1)
        seen.append(bench.state.completed)
    assert seen == sorted(seen)
    assert seen[-1] == 6
