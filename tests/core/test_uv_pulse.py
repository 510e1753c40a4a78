"""The uv pulse: uvloop's turns through its libuv, and nothing left in the loop, whoever ends first."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time

import hooking
import pytest

from loopwatch import _core
from loopwatch import _testcore as core

if _core.PORTABLE:
    pytest.skip("the portable build has no uv pulse", allow_module_level=True)
uvloop = pytest.importorskip("uvloop")

from uv_loops import Blocker, block_in_every_way, off_by, take_records, watched  # noqa: E402

MS = 1_000_000
SECOND = 1_000 * MS


# --- what it sees ---


def test_stalls_begin_and_end_with_the_blocked_code() -> None:
    block = Blocker(0.3)
    with watched(_core, threshold_ns=100 * MS) as it:
        it.run(block_in_every_way(block))
        it.retire()
        records = [record for record in take_records() if record["slot"] == it.slot.key]
    truth = block.truth
    assert len(truth) == 5
    if len(records) == 4:  # a libuv that runs timers after the poll: reader and timer are in one turn then
        truth = [*truth[:3], (truth[3][0], truth[4][1])]
    before, after = off_by(records, truth)
    assert min(before) >= 0
    assert min(after) >= 0
    # One of the five may have lost its CPU on the way from the wait to the blocked code.
    assert statistics.median(before) < 2 * MS
    assert statistics.median(after) < 2 * MS


def test_a_stall_is_seen_while_it_goes_on() -> None:
    block = Blocker(0.3)
    seen: list[int] = []
    with watched(_core, threshold_ns=50 * MS) as it:

        def look() -> None:
            while not done.is_set():
                record = it.slot.current(SECOND)
                if record:
                    seen.append(record["begin_ns"])
                time.sleep(0.01)

        done = threading.Event()
        thread = threading.Thread(target=look)
        thread.start()
        it.run(block_in_every_way(block))
        done.set()
        thread.join()
    take_records()
    assert len(seen) >= 5
    for begin_ns in seen:
        assert any(begin_ns <= begin and end - begin_ns < 600 * MS for begin, end in block.truth)
    errors = [min(abs(begin - begin_ns) for begin, _ in block.truth) for begin_ns in seen]
    assert statistics.median(errors) < 2 * MS


def test_times_add_up_and_agree_with_the_work() -> None:
    block = Blocker(0.05)
    with watched() as it:
        begin = time.monotonic_ns()
        it.run(block_in_every_way(block))
        lasted = time.monotonic_ns() - begin
        totals = it.totals
    blocked = sum(end - begin for begin, end in block.truth)
    assert blocked <= totals["busy_ns"] <= lasted
    # Of 210 ms that it slept some 90: timers start in the middle of turns, and blocks lie within the rest.
    assert totals["idle_ns"] >= 0.08 * SECOND
    assert 0.95 * lasted <= totals["busy_ns"] + totals["idle_ns"] <= lasted
    assert totals["gil_wait_ns"] == 0
    assert totals["max_ns"] >= max(end - begin for begin, end in block.truth)


def test_agrees_with_a_heartbeat() -> None:
    """Both on one loop, so that they see the same stalls, and the same lack of CPU."""
    tick_ns = 5 * MS
    with watched() as it, hooking.watched(it.loop, pulse="heartbeat") as slot:
        heartbeat = core.Heartbeat(slot, it.loop, tick_ns / SECOND)
        heartbeat.start()
        it.run(block_in_every_way(Blocker(0.1)))
        heartbeat.stop()
        by_turn, by_beat = it.totals["max_ns"], slot.histogram()[1]["max_ns"]
    # The heartbeat misses up to a tick, and libuv's timers a millisecond; several turns in a row are one gap, and where
    # a turn has two blocks it may fire between them.
    assert 0.1 * SECOND - tick_ns - MS <= by_beat <= 2 * by_turn


def test_every_turn_counts() -> None:
    async def spin() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    with watched() as it:
        it.run(spin())
        assert 1000 <= it.totals["turns"] <= 1010
        assert it.totals["idle_ns"] < it.totals["busy_ns"]


def test_an_idle_loop_is_idle() -> None:
    looked = []
    with watched() as it:

        async def main() -> None:
            looker = asyncio.to_thread(core.uv_look, it.slot, 500 * MS)
            looked.append(await looker)

        it.run(main())
        totals = it.totals
    looks, back = looked[0]
    assert looks > 1000
    # Back while the thread was started, and where the loop's thread lost its CPU before the poll.
    assert back < looks / 4
    assert totals["idle_ns"] > 3 * totals["busy_ns"]


def test_a_busy_loop_is_back() -> None:
    looked = []
    with watched() as it:

        async def main() -> None:
            looker = threading.Thread(target=lambda: looked.append(core.uv_look(it.slot, 300 * MS)))
            await asyncio.sleep(0.05)
            looker.start()
            time.sleep(0.5)
            looker.join()

        it.run(main())
    looks, back = looked[0]
    assert back > 0.9 * looks > 1000


def test_the_time_between_runs_is_nobodys() -> None:
    with watched() as it:
        for _ in range(3):
            it.run(asyncio.sleep(0.01))
            assert core.beat(it.slot)[1] == "off"
            time.sleep(0.2)
        assert it.totals["max_ns"] < 150 * MS
        assert it.totals["busy_ns"] + it.totals["idle_ns"] < 150 * MS
