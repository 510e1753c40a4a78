"""checkpoint(): when it yields, on loops that are watched and on those that are not, and how cancellation lands."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable

import pytest
from budgets import (
    BUDGET,
    ITEM,
    LONG,
    NEVER,
    NOT_WATCHED,
    TELLS_THE_TURN,
    Turns,
    a_loop,
    cancel_this_task,
    once_in_time,
    run,
    work,
    yields,
)
from kinds import KINDS, kind_fixture

from loopwatch import checkpoint

kind = kind_fixture(*KINDS, *NOT_WATCHED)


# --- when it yields ---


def test_nothing_is_due(kind: str) -> None:
    async def main() -> None:
        work()
        for _ in range(3):
            assert not await yields(checkpoint(NEVER))
            await asyncio.sleep(0)

    run(kind, main)


def test_a_turn_that_was_busy_for_the_budget(kind: str) -> None:
    async def main() -> None:
        await checkpoint(NEVER)  # where nobody sees turns, the clock starts here
        for _ in range(3):
            work(2 * ITEM)
            assert await yields(checkpoint(ITEM))
            work(2 * ITEM)
            assert await yields(checkpoint(budget=ITEM))
            await asyncio.sleep(0)

    run(kind, main)


def test_the_default_is_two_milliseconds(kind: str) -> None:
    async def main() -> None:
        await checkpoint(NEVER)
        work(0.002)
        assert await yields(checkpoint())

    run(kind, main)


def test_a_budget_of_nothing_always_yields(kind: str) -> None:
    async def main() -> None:
        for _ in range(5):
            assert await yields(checkpoint(0))
            assert await yields(checkpoint(0.0))

    run(kind, main)


def test_after_a_yield_the_budget_begins_anew(kind: str) -> None:
    async def attempt() -> bool:
        work(LONG)
        assert await yields(checkpoint(LONG))
        return await yields(checkpoint(LONG))

    async def main() -> None:
        await checkpoint(NEVER)
        assert not await once_in_time(attempt, 2 * LONG)

    run(kind, main)


@pytest.mark.parametrize("kind", [*KINDS[:2], "heartbeat", "uv", "no: turn"])
def test_a_task_that_awaited_something_else(kind: str) -> None:
    """Not "no: uv": nobody sees the turns of such a loop, and one yield too many is what is promised."""

    async def attempt() -> bool:
        await asyncio.sleep(LONG)
        return await yields(checkpoint(LONG))

    async def main() -> None:
        if kind == "heartbeat":
            kept = asyncio.get_running_loop().create_task(asyncio.sleep(60))  # other timers change nothing
        await checkpoint(NEVER)
        assert not await once_in_time(attempt, 2 * LONG)
        if kind == "heartbeat":
            kept.cancel()

    run(kind, main)


def test_at_most_one_yield_for_each_budget_where_nobody_sees_turns() -> None:
    async def attempt() -> bool:
        await asyncio.sleep(LONG)
        await checkpoint(LONG)
        return await yields(checkpoint(LONG))

    run("no: uv", lambda: once_in_time(attempt, 2 * LONG))


@pytest.mark.parametrize("kind", TELLS_THE_TURN)
def test_it_is_the_turn_that_has_a_budget(kind: str) -> None:
    """Also what others did in it counts."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await asyncio.sleep(0.002)
            loop.call_soon(work, 2 * ITEM)
            await asyncio.sleep(0)  # resumed after the work, in the same turn
            assert await yields(checkpoint(2 * ITEM))

    run(kind, main)


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("kind", TELLS_THE_TURN)
def test_others_wait_for_the_budget_and_an_item(kind: str, tasks: int) -> None:
    """Five items make a budget."""
    turns = Turns()
    assert run(kind, lambda: turns.run(tasks)) <= 6
    assert sum(turns.items) == 25 * tasks


@pytest.mark.parametrize("kind", TELLS_THE_TURN)
def test_tasks_of_one_loop_have_equal_shares(kind: str) -> None:
    """Whoever is first in the loop's queue: the others would have an item each time the first has its budget."""

    async def main() -> None:
        done = [0, 0, 0]

        async def worker(index: int) -> None:
            while sum(done) < 120:
                work()
                done[index] += 1
                await checkpoint(BUDGET)

        await asyncio.gather(*(worker(index) for index in range(3)))
        assert min(done) >= 20

    run(kind, main)


@pytest.mark.parametrize("kind", [*KINDS, *NOT_WATCHED])
def test_what_was_waiting_is_served_before_the_task_goes_on(kind: str) -> None:
    """A timer that came due during the work wakes its task in the second turn after it."""

    async def main() -> None:
        order: list[str] = []

        async def sleeper() -> None:
            await asyncio.sleep(ITEM)
            order.append("woken")

        await checkpoint(NEVER)
        task = asyncio.get_running_loop().create_task(sleeper())
        await asyncio.sleep(0)
        work(5 * ITEM)
        await checkpoint(ITEM)
        order.append("on")
        await task
        assert order == ["woken", "on"]

    run(kind, main)


@pytest.mark.parametrize("kind", TELLS_THE_TURN)
def test_a_stream_of_new_tasks_keeps_nobody_waiting(kind: str) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        loop, stop = asyncio.get_running_loop(), False

        async def once() -> None:
            await checkpoint(0)

        def start() -> None:
            tasks.append(loop.create_task(once()))
            if not stop:
                loop.call_soon(start)

        start()
        for _ in range(20):
            await checkpoint(0)
        stop = True
        await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    run(kind, main)


@pytest.mark.parametrize("kind", TELLS_THE_TURN)
def test_one_that_is_cancelled_while_it_waits_keeps_nobody_waiting(kind: str) -> None:
    """Also where what it awaited lives on."""

    async def main() -> None:
        kept = [checkpoint(0) for _ in range(5)]

        async def wait(check: Awaitable[None]) -> None:
            await check

        for check in kept:
            first = asyncio.get_running_loop().create_task(wait(check))
            await asyncio.sleep(0)
            first.cancel()
            await checkpoint(0)
            with pytest.raises(asyncio.CancelledError):
                await first

    run(kind, main)


@pytest.mark.parametrize("kind", ["heartbeat", *NOT_WATCHED])
def test_where_nobody_sees_turns_each_task_has_the_budget(kind: str) -> None:
    """And the one item before the first look, where the clock only starts."""
    assert run(kind, lambda: Turns().run(1)) <= 6
    assert run(kind, lambda: Turns().run(3)) <= 3 * 6


@pytest.mark.parametrize("kind", [*TELLS_THE_TURN, "no: turn", "no: uv"])
def test_tasks_that_the_items_start_do_not_keep_it_from_yielding(kind: str) -> None:
    """Each item enters a context, and another task looks in it."""
    if sys.version_info < (3, 12):
        pytest.skip("no eager tasks")

    async def item() -> None:
        work()
        await checkpoint(NEVER)

    async def main() -> None:
        turns = Turns()
        turns.tick()
        loop = asyncio.get_running_loop()
        for _ in range(20):
            await asyncio.Task(item(), loop=loop, eager_start=True)
            turns.items[-1] += 1
            await checkpoint(BUDGET)
        turns.running = False
        await asyncio.sleep(0)
        assert max(turns.items) <= 6

    run(kind, main)


# --- cancellation ---


async def forever(budget: float = ITEM) -> None:
    for _ in range(10_000):
        work()
        await checkpoint(budget)
    pytest.fail("it was not cancelled")


def test_a_time_limit_lands(kind: str) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3 * ITEM):
                await forever()

    run(kind, main)


def test_another_task_cancels(kind: str) -> None:
    async def main() -> None:
        task = asyncio.get_running_loop().create_task(forever())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(kind, main)


def test_a_task_cancelled_while_it_runs_learns_it_at_the_next_check(kind: str) -> None:
    """Due or not. What it awaits afterwards is not disturbed."""

    async def main() -> None:
        cancel_this_task()
        with pytest.raises(asyncio.CancelledError):
            await checkpoint(NEVER)
        assert not await yields(checkpoint(NEVER))

    run(kind, main)


def test_a_signal_cancels(kind: str) -> None:
    """As Ctrl-C does under asyncio.run: the handler runs in the middle of the work."""

    async def main() -> None:
        task = asyncio.current_task()
        assert task
        before = signal.signal(signal.SIGUSR1, lambda *_: task.cancel())
        try:
            signal.raise_signal(signal.SIGUSR1)
            with pytest.raises(asyncio.CancelledError):
                await checkpoint(NEVER)
        finally:
            signal.signal(signal.SIGUSR1, before)

    run(kind, main)


def test_tasks_in_pure_python(kind: str) -> None:
    class Task(asyncio.tasks._PyTask):  # type: ignore[name-defined,misc]
        pass

    async def main() -> None:
        work(2 * ITEM)
        assert await yields(checkpoint(ITEM))
        if kind in TELLS_THE_TURN:
            assert not await yields(checkpoint(NEVER))

    with a_loop(kind) as loop:
        loop.set_task_factory(lambda loop, coro, **options: Task(coro, loop=loop, **options))
        loop.run_until_complete(checkpointed_once())
        loop.run_until_complete(main())


async def checkpointed_once() -> None:
    await checkpoint(NEVER)


def test_a_subclass_of_task_is_cancelled_too() -> None:
    class Task(asyncio.Task):  # type: ignore[type-arg]
        pass

    async def main() -> None:
        cancel_this_task()
        with pytest.raises(asyncio.CancelledError):
            await checkpoint(NEVER)

    with a_loop("turn") as loop:
        loop.set_task_factory(lambda loop, coro, **options: Task(coro, loop=loop, **options))
        loop.run_until_complete(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no eager tasks")
def test_an_eager_task(kind: str) -> None:
    """Its first part runs in its creator's step; what it yields there goes on in the next turn."""

    async def eager() -> bool:
        work(2 * ITEM)
        return await yields(checkpoint(ITEM))

    async def main() -> None:
        await checkpoint(NEVER)
        task = asyncio.Task(eager(), loop=asyncio.get_running_loop(), eager_start=True)
        assert not task.done()
        assert await task
        cancelled = asyncio.Task(to_itself(), loop=asyncio.get_running_loop(), eager_start=True)
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    async def to_itself() -> None:
        cancel_this_task()
        await checkpoint(NEVER)

    run(kind, main)
