"""The uv pulse of a loop in a hurry: the prepare handle rests, and no turn and no stall is lost."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time

import pytest

from loopwatch import _core
from loopwatch import _testcore as core

if _core.PORTABLE:
    pytest.skip("the portable build has no uv pulse", allow_module_level=True)
uvloop = pytest.importorskip("uvloop")

from uv_loops import RESTS, Blocker, Watched, handles, hurry, off_by, run_program, take_records, watched  # noqa: E402

MS = 1_000_000
SECOND = 1_000 * MS


def not_of_the_machine(records: list[_core.Record]) -> list[_core.Record]:
    """One that is shared takes the CPU away for longer at times, and then it is to blame."""
    causes = [max(record["breakdown"], key=record["breakdown"].__getitem__) for record in records]
    return [
        record
        for record, cause in zip(records, causes, strict=True)
        if cause not in ("not-scheduled", "suspended")
    ]


# --- in a hurry: the prepare handle rests ---


def test_every_hurried_turn_counts() -> None:
    """Over several runs, each of which ends while the handle rests."""
    with watched() as it:
        for runs in range(1, 11):
            before = it.totals["turns"]
            begin = time.monotonic_ns()
            it.run(hurry(10_000 + runs))
            lasted = time.monotonic_ns() - begin
            # The turn that starts the task, and those in which the run ends.
            assert 0 <= it.totals["turns"] - before - (10_000 + runs) <= 5
        assert it.totals["idle_ns"] < 0.2 * it.totals["busy_ns"]
        assert it.totals["max_ns"] <= max(lasted, SECOND)


@pytest.mark.skipif(not RESTS, reason="this libuv does not count its polls")
def test_the_handle_rests() -> None:
    """Else nothing below tests anything: the turns between two stamps are too many for a batch."""
    steps: list[int] = []

    async def main() -> None:
        await hurry(5000)
        for _ in range(5000):
            steps.append(core.beat(it.slot)[0])
            await asyncio.sleep(0)

    with watched() as it:
        it.run(main())
    assert len(set(steps)) < 5000 / 20


def test_two_stalls_in_a_row_stay_two() -> None:
    block = Blocker(0.15)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await hurry(5000)
            block()
            await asyncio.sleep(0)
            block()
            await hurry(5000)
            loop.call_soon(block)
            await asyncio.sleep(0)
            loop.call_soon(block)
            await asyncio.sleep(0)

    with watched(_core, threshold_ns=100 * MS) as it:
        it.run(main())
        it.retire()
        records = [record for record in take_records() if record["slot"] == it.slot.key]
    assert len(records) == len(block.truth) == 12
    before, after = off_by(records, block.truth)
    assert min(before) >= 0
    assert min(after) >= 0
    # Some of them may have lost their CPU at either edge.
    assert statistics.median(before) < 2 * MS
    assert statistics.median(after) < 2 * MS


def test_a_stall_out_of_a_hurry_is_seen_while_it_goes_on() -> None:
    block = Blocker(0.3)
    seen: list[int] = []

    async def main() -> None:
        for _ in range(5):
            await hurry(5000)
            block()

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
        it.run(main())
        done.set()
        thread.join()
    take_records()
    assert len(seen) >= 5
    errors = [min(abs(begin - begin_ns) for begin, _ in block.truth) for begin_ns in seen]
    assert statistics.median(errors) < 2 * MS


def test_a_hurry_is_no_stall() -> None:
    """Turns that are stamped together are not one turn: all of them take half a second, and more where a sanitizer
    watches or the machine is busy."""
    with watched(_core, threshold_ns=80 * MS) as it:
        it.run(hurry(300_000))
        it.retire()
        records = [record for record in take_records() if record["slot"] == it.slot.key]
    assert not_of_the_machine(records) == []


def test_an_idle_loop_stays_asleep_after_a_hurry() -> None:
    turns: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await hurry(5000)
            done = loop.create_future()
            loop.call_later(0.5, done.set_result, None)
            it.slot.exempt()  # ends what is stamped together with this turn, so that `before` lacks none
            await asyncio.sleep(0)
            before, idle_before = it.totals["turns"], it.totals["idle_ns"]
            await done
            await asyncio.sleep(0)
            turns.append(it.totals["turns"] - before)
            idle.append(it.totals["idle_ns"] - idle_before)

    idle: list[int] = []
    with watched() as it:
        it.run(main())
    # One goes to wait, one is woken by the timer of the handle that rests, one by the timer here, one sleeps.
    assert max(turns) <= 4
    assert min(idle) > 400 * MS


def test_a_turn_of_a_hurry_is_exempt_alone() -> None:
    """exempt() covers the turn that enters it, not what is stamped together with it."""

    async def main() -> None:
        await hurry(5000)
        exempted = it.slot.exempt()
        await asyncio.sleep(0)
        turns.append((exempted, it.slot.turn))
        block()

    turns: list[tuple[int, int]] = []
    block = Blocker(0.15)
    with watched(_core, threshold_ns=100 * MS) as it:
        for _ in range(5):
            it.run(main())
        it.retire()
        records = [record for record in take_records() if record["slot"] == it.slot.key]
    assert all(after > exempted for exempted, after in turns)
    assert len(not_of_the_machine(records)) == 5


def test_start_and_stop_on_another_thread_in_a_hurry() -> None:
    it = Watched()
    it.pulse.stop()
    stop = threading.Event()

    async def main() -> None:
        while not stop.is_set():
            await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: it.run(main()))
    thread.start()
    for i in range(100):
        pulse = core.UvPulse(it.slot, it.loop)
        pulse.start()
        time.sleep(0.0015 * (i % 10))  # the handle rests after 5 ms or so
        if i % 4 == 0:
            core.uv_look(it.slot, MS)
        assert pulse.stop() is True
    stop.set()
    thread.join()
    it.run(asyncio.sleep(0.01))
    assert handles(it.loop) == {}
    it.loop.close()
    assert it.loop.is_closed()


def test_stop_and_close_in_a_hurry() -> None:
    for in_run in (True, False):
        complaints: list[object] = []
        it = Watched()
        it.loop.set_exception_handler(lambda _, context, to=complaints: to.append(context))

        async def main(it: Watched = it, in_run: bool = in_run) -> None:
            await hurry(5000)
            if in_run:
                assert it.pulse.stop() is True
                await hurry(5000)

        it.run(main())
        it.loop.close()
        assert it.loop.is_closed()
        assert complaints == []


def test_fork_in_a_hurry() -> None:
    run_program("""
        import asyncio, os, sys
        from loopwatch import _testcore
        from uv_loops import hurry, watched

        async def main(it):
            for i in range(20):
                await hurry(2000)
                pid = os.fork()
                if not pid:
                    well = True
                    if sys.version_info < (3, 14):
                        before = it.totals["turns"]
                        await hurry(2000)
                        well = it.totals["turns"] - before >= 500
                        well = well and not _testcore.is_forked(it.slot) and it.pulse.stop()
                    os._exit(0 if well else 1)
                assert os.waitpid(pid, 0)[1] == 0

        with watched() as it:
            it.run(main(it))
    """)


def test_exit_in_a_hurry() -> None:
    run_program("""
        import asyncio, threading, time
        from uv_loops import Watched, hurry
        it = Watched()
        threading.Thread(target=it.run, args=(hurry(10**9),), daemon=True).start()
        time.sleep(0.1)
    """)
