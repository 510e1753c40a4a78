"""When collections ran, and on which thread."""

from __future__ import annotations

import gc
import os
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

core = pytest.importorskip("loopwatch._testcore")


# Without a GIL there is one generation: each collection looks at everything.
MANY = 250 if sysconfig.get_config_var("Py_GIL_DISABLED") else 15000


@pytest.fixture
def clock() -> Iterator[None]:
    """Stamps, and no collection that the test did not ask for."""
    before = list(gc.callbacks)
    gc.disable()
    core.gc_clock(True)
    yield
    core.gc_clock(False)
    gc.enable()
    assert gc.callbacks == before
    assert not core.gc_runs()


def me() -> int:
    return threading.get_ident()


def total(ident: int | None = None) -> int:
    ns: int = core.gc_ns(me() if ident is None else ident, time.monotonic_ns())
    return ns


class Trash:
    """A ring that runs something when it is collected."""

    def __init__(self, end: Callable[[], object]) -> None:
        self.ring, self.end = self, end

    def __del__(self) -> None:
        self.end()


def collect(end: Callable[[], object]) -> None:
    Trash(end)
    gc.collect()


def test_off_nothing_is_there() -> None:
    before = list(gc.callbacks)
    core.gc_clock(False)
    assert gc.callbacks == before
    assert not core.gc_runs()


def test_on_and_off_are_idempotent() -> None:
    before = list(gc.callbacks)
    core.gc_clock(True)
    core.gc_clock(True)
    assert core.gc_runs()
    assert len(gc.callbacks) == len(before) + 1
    core.gc_clock(False)
    core.gc_clock(False)
    assert gc.callbacks == before
    assert not core.gc_runs()


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_collection_is_stamped(generation: int) -> None:
    frame = 0
    seen: Any = None

    def end() -> None:
        nonlocal seen
        seen = core.gc_current(me())

    def allocate() -> None:
        nonlocal frame
        Trash(end)
        frame = core.frames_top_here()
        gc.collect(generation)

    before_ns = time.monotonic_ns()
    allocate()
    after_ns = time.monotonic_ns()
    assert seen is not None
    begin_ns, end_ns, ident, top, stamped = seen
    assert before_ns < begin_ns < after_ns
    assert end_ns == 2**64 - 1
    assert ident == me()
    assert top == frame
    assert stamped == generation
    assert core.gc_current(me()) is None
    ns, highest = core.gc_within(me(), before_ns, after_ns)
    assert 0 < ns <= after_ns - before_ns
    assert highest == generation


@pytest.mark.usefixtures("clock")
def test_a_finalizers_frame_is_above_the_one_that_collected() -> None:
    if core.frames_setup()[1]:
        pytest.skip("no raw capture here")
    tops: list[Any] = []
    snapper = core.frames_snapper()

    def end() -> None:
        top = core.frames_snapshot(snapper, core.frames_thread_ref())["top_frame"]
        tops.append((top, core.gc_current(me())[3], core.frames_top_here()))

    collect(end)
    [(snapshot, collected, here)] = tops
    assert snapshot == here != collected != 0


@pytest.mark.usefixtures("clock")
def test_a_finalizer_that_sleeps_lets_others_run_but_it_is_its_threads_collection() -> None:
    began, other = threading.Event(), threading.Event()

    def end() -> None:
        began.set()
        assert other.wait(30)

    thread = threading.Thread(target=collect, args=(end,))
    thread.start()
    assert began.wait(30)
    assert core.gc_current(me()) is None
    assert core.gc_current(thread.ident) is not None
    assert gc.collect() == 0  # there is one already
    assert core.gc_current(thread.ident) is not None
    mine, first = total(), total(thread.ident)
    time.sleep(0.01)
    assert total(thread.ident) - first >= 10_000_000
    assert total() == mine
    other.set()
    thread.join()
    assert core.gc_current(thread.ident) is None


@pytest.mark.usefixtures("clock")
def test_totals_are_those_that_a_callback_of_our_own_measures() -> None:
    measured = 0
    begin_ns = 0

    def own(phase: str, _info: dict[str, int]) -> None:
        nonlocal measured, begin_ns
        if phase == "start":
            begin_ns = time.monotonic_ns()
        else:
            measured += time.monotonic_ns() - begin_ns

    before, before_ns = total(), time.monotonic_ns()
    kept = [[] for _ in range(20000)]  # something to look at
    gc.callbacks.append(own)
    try:
        for i in range(MANY // 20):
            gc.collect(0 if i % 100 else 2)
    finally:
        gc.callbacks.remove(own)
    stamped = total() - before
    # Ours is called before the other at both ends: the same length, but for where the two calls lie,
    # which a busy machine can draw out.
    assert stamped == pytest.approx(measured, rel=0.25)
    assert stamped < time.monotonic_ns() - before_ns
    assert len(kept) == 20000


@pytest.mark.usefixtures("clock")
def test_reading_all_the_time_sees_nothing_impossible() -> None:
    core.gc_spy_start(me())
    for i in range(MANY):
        gc.collect(0 if i % 1000 else 1)
    reads, wrong = core.gc_spy_stop()
    assert reads > 100
    assert wrong == 0


@pytest.mark.usefixtures("clock")
def test_what_lies_within_is_cut_to_it() -> None:
    collect(lambda: time.sleep(0.02))
    end_ns = time.monotonic_ns()
    assert core.gc_within(me(), end_ns - 5_000_000, end_ns)[0] <= 5_000_000
    whole, generation = core.gc_within(me(), 0, end_ns)
    assert whole >= 20_000_000
    assert generation == 2
    assert core.gc_within(0, 0, end_ns)[0] >= whole  # of any thread
    assert core.gc_within(me() + 1, 0, end_ns) == (0, -1)
    assert core.gc_within(me(), end_ns, end_ns + 10**9) == (0, -1)


@pytest.mark.usefixtures("clock")
def test_totals_never_go_back_with_more_threads_than_are_kept() -> None:
    before = total()
    gc.collect()
    mine = total()
    assert mine > before
    gates = threading.Barrier(151)
    threads = [threading.Thread(target=lambda: (gc.collect(0), gates.wait())) for _ in range(150)]
    for thread in threads:  # all alive at once: no ident is used twice
        thread.start()
    gates.wait()
    for thread in threads:
        thread.join()
    assert total() >= mine
    gc.collect()
    assert total() > mine


@pytest.mark.parametrize("keep", [False, True])
def test_a_program_that_clears_the_callbacks_is_noticed(keep: bool) -> None:
    saved = list(gc.callbacks)
    core.gc_clock(True)
    kept = list(gc.callbacks) if keep else None
    gc.callbacks.clear()
    gc.collect()
    assert not core.gc_runs()
    assert core.gc_current(me()) is None
    core.gc_clock(False)  # nothing to take out
    core.gc_clock(True)
    del kept  # the end of the old one is not that of the new one
    assert core.gc_runs()
    core.gc_clock(False)
    assert gc.callbacks == []
    assert not core.gc_runs()
    gc.callbacks[:] = saved


def test_off_is_off_where_the_program_keeps_the_stamp() -> None:
    def own(_phase: str, _info: dict[str, int]) -> None:
        pass

    core.gc_clock(True)
    gc.callbacks.append(own)
    kept = list(gc.callbacks)
    core.gc_clock(False)
    assert not core.gc_runs()
    gc.callbacks.remove(own)
    del kept


def test_callbacks_cleared_in_a_collection_end_it() -> None:
    saved = list(gc.callbacks)
    core.gc_clock(True)
    collect(gc.callbacks.clear)
    assert not core.gc_runs()
    assert core.gc_current(me()) is None
    gc.callbacks[:] = saved
    core.gc_clock(True)  # what it did not see the stop of is forgotten
    assert core.gc_current(me()) is None
    before = total()
    gc.collect()
    assert 0 < total() - before < 10**9
    core.gc_clock(False)
    assert gc.callbacks == saved


@pytest.mark.usefixtures("clock")
def test_strange_calls_of_the_stamp_are_ignored() -> None:
    stamp: Any = gc.callbacks[-1]
    before = total()
    for arguments in ((), (1,), ("start",), ("stop", {}), ("pause", {}), (b"start", {}), ("a", "b", "c")):
        stamp(*arguments)
    assert core.gc_current(me()) is None
    stamp("start", None)
    assert core.gc_current(me())[4] == -1
    stamp("start", {"generation": "x"})
    stamp("start", {"generation": 1 << 80})
    stamp("stop", None)
    assert core.gc_current(me()) is None
    assert 0 <= total() - before < 10**9


@pytest.mark.usefixtures("clock")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_amid_a_collection() -> None:
    """The collection of the thread that forks goes on in the child; another thread's is over there."""
    status = []

    def fork(expected: int, ident: int) -> None:
        pid = os.fork()
        if not pid:
            os._exit(0 if (core.gc_current(ident) is not None) == expected else 1)
        status.append(os.waitpid(pid, 0)[1])

    collect(lambda: fork(True, me()))
    began, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=collect, args=(lambda: (began.set(), over.wait(30)),))
    thread.start()
    assert began.wait(30)
    fork(False, thread.ident or 0)
    over.set()
    thread.join()
    assert status == [0, 0]


@pytest.mark.usefixtures("clock")
def test_a_stamp_costs_microseconds() -> None:
    """About 1 us for both; the bound is for busy machines."""
    stamp: Any = gc.callbacks[-1]
    info = {"generation": 0, "collected": 0, "uncollectable": 0}
    times = []
    for _ in range(2000):
        begin_ns = time.perf_counter_ns()
        stamp("start", info)
        stamp("stop", info)
        times.append(time.perf_counter_ns() - begin_ns)
    assert sorted(times)[len(times) // 2] < 20_000
