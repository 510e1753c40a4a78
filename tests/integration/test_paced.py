"""paced(): each item once and in order, whatever the items are and however the loop over them ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import pytest
from budgets import BUDGET, NEVER, NOT_WATCHED, Turns, cancel_this_task, run, work
from kinds import KINDS, kind_fixture

from loopwatch import paced

kind = kind_fixture(*KINDS, *NOT_WATCHED)


async def numbers(n: int = 5) -> AsyncIterator[int]:
    for number in range(n):
        yield number


async def queue_of_five() -> AsyncIterator[int]:
    for number in range(5):
        await asyncio.sleep(0)
        yield number


class OldSequence:
    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise IndexError
        return index


@pytest.mark.parametrize(
    "make",
    [lambda: range(5), lambda: [0, 1, 2, 3, 4], lambda: (i for i in range(5)), lambda: dict.fromkeys(range(5)),
     OldSequence, numbers, queue_of_five],
    ids=["range", "list", "generator", "dict", "old sequence", "async generator", "async and waiting"],
)  # fmt: skip
@pytest.mark.parametrize("budget", [0, NEVER])
def test_each_item_once_in_order(kind: str, make: Callable[[], Any], budget: float) -> None:
    async def main() -> None:
        assert [item async for item in paced(make(), budget)] == [0, 1, 2, 3, 4]

    run(kind, main)


@pytest.mark.parametrize(
    "item", [None, (), (1, 2), StopIteration(3), StopAsyncIteration(), ValueError(), [1]]
)
def test_any_item(item: object) -> None:
    async def main() -> None:
        for budget in (0, NEVER):
            assert [got async for got in paced([item], budget)] == [item]
            assert await anext(aiter(paced([item], budget))) is item

    run("turn", main)


def test_no_items() -> None:
    async def main() -> None:
        for items in ([], (), numbers(0)):
            pace = paced(items, 0)
            assert [item async for item in pace] == []
            assert await anext(pace, "over") == "over"
            with pytest.raises(StopAsyncIteration):
                await anext(pace)

    run("turn", main)


@pytest.mark.parametrize("make", [range, numbers], ids=["range", "async generator"])
def test_the_others_run_between_two_items(kind: str, make: Callable[[int], Any]) -> None:
    async def main() -> None:
        turns = Turns()
        turns.tick()
        async for _ in paced(make(20), BUDGET):
            work()
            turns.items[-1] += 1
        turns.running = False
        await asyncio.sleep(0)
        assert max(turns.items) <= 6
        assert sum(turns.items) == 20

    run(kind, main)


def test_a_cancelled_loop_over_items_can_go_on_later() -> None:
    """A cancellation is delivered before an item is taken: none is lost."""

    async def main() -> None:
        pace = paced(iter(range(4)), NEVER)
        taken = [await anext(pace)]
        cancel_this_task()
        with pytest.raises(asyncio.CancelledError):
            await anext(pace)
        taken += [item async for item in pace]
        assert taken == [0, 1, 2, 3]

    run("turn", main)


class OwnError(Exception):
    pass


def failing(error: BaseException) -> Iterator[int]:
    yield 0
    raise error


async def failing_async(error: BaseException) -> AsyncIterator[int]:
    yield 0
    raise error


@pytest.mark.parametrize("make", [failing, failing_async])
def test_what_the_items_raise_comes_out(make: Callable[[BaseException], Any]) -> None:
    async def main() -> None:
        pace = paced(make(OwnError()))
        assert await anext(pace) == 0
        with pytest.raises(OwnError):
            await anext(pace)
        with pytest.raises(StopAsyncIteration):
            await anext(pace)

    run("turn", main)


@pytest.mark.parametrize("make", [failing, failing_async])
@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration])
def test_no_error_looks_like_the_end(make: Callable[[BaseException], Any], error: type[Exception]) -> None:
    async def main() -> None:
        pace = paced(make(error()))
        await anext(pace)
        with pytest.raises(RuntimeError) as caught:
            await anext(pace)
        assert isinstance(caught.value.__cause__, error)

    run("turn", main)


def closing(log: list[str]) -> Iterator[int]:
    try:
        yield from range(5)
    finally:
        log.append("closed")


async def closing_async(log: list[str]) -> AsyncIterator[int]:
    try:
        for number in range(5):
            yield number
    finally:
        log.append("closed")


def test_left_early_the_items_are_where_they_were() -> None:
    log: list[str] = []

    async def main() -> None:
        source = closing(log)
        async for item in paced(source):
            if item == 1:
                break
        assert next(source) == 2
        assert log == []
        asynchronous = closing_async(log)
        async with contextlib.aclosing(asynchronous):
            async for item in paced(asynchronous):
                if item == 1:
                    break
            assert await anext(asynchronous) == 2
            assert log == []
        assert log == ["closed"]

    run("turn", main)


def test_a_generator_that_only_paced_has_is_closed_with_it() -> None:
    log: list[str] = []

    async def main() -> None:
        async for _ in paced(closing(log)):
            break

    run("turn", main)
    assert log == ["closed"]


def test_iterating_by_hand() -> None:
    items: Iterable[int] = [1]
    step = paced(items, 0).__anext__().__await__()
    assert [next(step) for _ in range(3)] == [None, None, None]
    with pytest.raises(StopIteration) as stopped:
        next(step)
    assert stopped.value.value == 1
