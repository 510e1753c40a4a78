"""checkpoint() as an object, in threads, and what checkpoint() and paced() refuse."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from budgets import ITEM, NEVER, NOT_WATCHED, run, work, yields
from kinds import KINDS, kind_fixture

import loopwatch
from loopwatch import checkpoint, paced

kind = kind_fixture(*KINDS, *NOT_WATCHED)


def test_it_may_be_kept_and_awaited_again(kind: str) -> None:
    async def main() -> None:
        check, never = checkpoint(0), checkpoint(NEVER)
        for _ in range(3):
            assert await yields(check)
            assert not await yields(never)
        await asyncio.gather(*(asyncio.ensure_future(check) for _ in range(3)))
        await asyncio.wait_for(check, 60)

    run(kind, main)


def test_outside_of_a_loop() -> None:
    assert list(checkpoint(0).__await__()) == [None, None, None]  # a turn for each
    assert list(checkpoint(NEVER).__await__()) == []
    assert repr(checkpoint(0.5)) == "<loopwatch.checkpoint budget=0.5>"


def test_under_loopwatch_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPWATCH", "0")

    async def main() -> None:
        loopwatch.install()
        await checkpoint(NEVER)
        work(2 * ITEM)
        assert await yields(checkpoint(ITEM))
        assert [item async for item in paced("abc", 0)] == ["a", "b", "c"]

    asyncio.run(main())


class Tickets:
    """An iterator for several threads."""

    def __init__(self, n: int) -> None:
        self.lock, self.next, self.n = threading.Lock(), 0, n

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        with self.lock:
            if self.next == self.n:
                raise StopIteration
            self.next += 1
            return self.next


def test_loops_in_threads_that_share_their_items() -> None:
    """Each item once, whoever takes it."""
    items = paced(Tickets(2000), 0)
    taken: list[int] = []

    async def take() -> None:
        taken.extend([item async for item in items])

    threads = [threading.Thread(target=asyncio.run, args=(take(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1, 2001))


BAD: list[tuple[Any, type[Exception]]] = [
    (True, TypeError),
    ("0.002", TypeError),
    (None, TypeError),
    ([0.002], TypeError),
    (math.nan, ValueError),
    (-0.001, ValueError),
    (math.inf, ValueError),
    (10**400, ValueError),
]


@pytest.mark.parametrize(("value", "error"), BAD)
@pytest.mark.parametrize("call", [checkpoint, lambda budget: paced([], budget)], ids=["checkpoint", "paced"])
def test_a_bad_budget(call: Callable[..., object], value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^budget must be seconds from 0 to 1000000000, not ") as caught:
        call(budget=value)
    assert str(caught.value).endswith(repr(value))


def test_bad_calls() -> None:
    function: Any = checkpoint
    for arguments, options in (((1, 2), {}), ((1,), {"budget": 1}), ((), {"seconds": 1})):
        with pytest.raises(TypeError, match="checkpoint"):
            function(*arguments, **options)
    for items in (5, None, object()):
        with pytest.raises(TypeError, match=r"^items must be an iterable or an async iterable, not "):
            paced(items)  # type: ignore[call-overload]
