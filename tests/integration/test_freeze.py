"""freeze_startup() and gc_pauses()."""

from __future__ import annotations

import asyncio
import gc
import os
import sysconfig
import threading
from collections.abc import Iterator

import pytest
from scenario import new_loop, quiet

import loopwatch

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
HEAP = 200_000


@pytest.fixture(autouse=True)
def thaw() -> Iterator[None]:
    """No collection that a test did not ask for, and nothing frozen afterwards."""
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.fixture
def watched() -> Iterator[None]:
    """Collections are stamped while something is watched."""
    loop = new_loop()
    with loopwatch.install(loop, **quiet()):
        yield
    loop.close()


def make_garbage() -> None:
    ring: list[object] = []
    ring.append(ring)


def counts() -> list[int]:
    return [row.count for row in loopwatch.gc_pauses()]


# --- freeze_startup ---


def test_what_it_found() -> None:
    heap: list[list[object]] = [[] for _ in range(HEAP)]
    make_garbage()
    result = loopwatch.freeze_startup()
    assert result.frozen >= len(heap)
    assert gc.get_freeze_count() >= len(heap)
    assert result.collected >= 1
    assert result.pause_before > 0
    assert result.pause_after > 0


@pytest.mark.skipif(FREE_THREADED, reason="without a GIL the collector passes over frozen objects one by one")
def test_full_collections_are_short_afterwards() -> None:
    heap: list[list[object]] = [[] for _ in range(HEAP)]
    for _ in range(5):  # a busy machine may stop the process in the short one
        result = loopwatch.freeze_startup()
        if result.pause_after < result.pause_before:
            break
        gc.unfreeze()
    assert result.pause_after < result.pause_before
    assert heap


def test_twice() -> None:
    heap: list[list[object]] = [[] for _ in range(HEAP)]
    first = loopwatch.freeze_startup()
    later: list[list[object]] = [[] for _ in range(1000)]
    second = loopwatch.freeze_startup()
    assert len(later) <= second.frozen < len(heap) <= first.frozen


@pytest.mark.parametrize("on", [False, True])
def test_the_collector_stays_on_or_off(on: bool) -> None:
    if on:
        gc.enable()
    loopwatch.freeze_startup()
    assert gc.isenabled() == on


@pytest.mark.usefixtures("watched")
def test_its_pauses_do_not_count() -> None:
    before = loopwatch.gc_pauses()
    loopwatch.freeze_startup()
    assert loopwatch.gc_pauses() == before
    gc.collect()
    assert counts()[2] == before[2].count + 1


def test_on_a_watched_loop_the_turn_is_exempt() -> None:
    heap: list[list[object]] = [[] for _ in range(HEAP)]

    async def main() -> None:
        await asyncio.sleep(0)
        loopwatch.freeze_startup()
        await asyncio.sleep(0)

    with loopwatch.Runner(**quiet(threshold=0.001)) as runner:
        runner.run(main())
        watch = runner.watch
    assert watch is not None
    assert watch.stats()["stalls_exempt"] >= 1
    assert not [stall for stall in watch.stalls if stall.evidence.gc_time]
    assert heap


def test_outside_of_any_loop_and_on_one_that_is_not_watched() -> None:
    async def main() -> loopwatch.FreezeResult:
        return loopwatch.freeze_startup()

    assert loopwatch.freeze_startup().frozen > 0
    assert asyncio.run(main()).frozen > 0


def test_under_loopwatch_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """It freezes: the program asked for it. Nothing is measured that nobody watches."""
    monkeypatch.setenv("LOOPWATCH", "0")
    before = loopwatch.gc_pauses()

    async def main() -> loopwatch.FreezeResult:
        loopwatch.install()
        gc.collect()
        return loopwatch.freeze_startup()

    assert asyncio.run(main()).frozen > 0
    assert loopwatch.gc_pauses() == before


def test_it_is_immutable() -> None:
    result = loopwatch.freeze_startup()
    with pytest.raises(AttributeError):
        result.frozen = 0  # type: ignore[misc]


# --- gc_pauses ---


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("generation", [0, 1, 2])
def test_each_collection_counts_in_its_generation(generation: int) -> None:
    heap: list[list[object]] = [[] for _ in range(1000)]
    before = loopwatch.gc_pauses()
    for _ in range(3):
        gc.collect(generation)
    after = loopwatch.gc_pauses()
    for row, old in zip(after, before, strict=True):
        more = 3 if row.generation == generation else 0
        assert row.count - old.count == more
        assert (row.seconds > old.seconds) == bool(more)
        assert row.worst >= old.worst
        assert 0 <= row.worst <= row.seconds
    assert [row.generation for row in after] == [0, 1, 2]
    assert heap


@pytest.mark.usefixtures("watched")
def test_it_is_as_long_as_the_program_measures() -> None:
    spans: list[float] = []

    class Trash:
        def __init__(self) -> None:
            self.ring = self

        def __del__(self) -> None:
            threading.Event().wait(0.05)

    Trash()
    before = loopwatch.gc_pauses()[2]
    spans.append(gc.collect())
    after = loopwatch.gc_pauses()[2]
    assert after.seconds - before.seconds >= 0.05
    assert after.worst >= 0.05
    assert spans[0] >= 1


def test_where_nothing_is_watched_nothing_counts() -> None:
    before = loopwatch.gc_pauses()
    gc.collect()
    assert loopwatch.gc_pauses() == before


@pytest.mark.usefixtures("watched")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_begins_with_none() -> None:
    gc.collect()
    assert counts()[2] > 0
    pid = os.fork()
    if not pid:
        os._exit(0 if counts() == [0, 0, 0] and loopwatch.gc_pauses()[2].worst == 0 else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.usefixtures("watched")
def test_readers_beside_collections_see_nothing_impossible() -> None:
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        last = loopwatch.gc_pauses()
        while not stop.is_set():
            rows = loopwatch.gc_pauses()
            for old, new in zip(last, rows, strict=True):
                if new.count < old.count or new.seconds < old.seconds or new.worst < old.worst:
                    wrong.append((old, new))
            last = rows

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(20 if FREE_THREADED else 500):
        gc.collect(0)
    stop.set()
    thread.join()
    assert wrong == []
