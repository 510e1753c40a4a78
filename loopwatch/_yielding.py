"""paced(): an iterable, with a checkpoint before each item."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TypeVar

from loopwatch import _core
from loopwatch._options import check_budget

T = TypeVar("T")


def paced(items: Iterable[T] | AsyncIterable[T], budget: float = 0.002) -> AsyncIterator[T]:
    """`async for item in paced(items)`: as `items`, with a checkpoint() before each, so that the loop's other tasks get
    their turns once they have waited for `budget` seconds.

    `budget` is from 0 (a turn before each item) to 1e9. What the items raise comes out; a cancellation comes before
    an item is taken. Left early, it leaves the items where they are: closing them is up to who made them. TypeError
    for what cannot be iterated, TypeError or ValueError for a wrong budget."""
    budget = check_budget(budget)
    if isinstance(items, AsyncIterable):
        return _Paced(items, budget)
    if isinstance(items, Iterable) or hasattr(items, "__getitem__"):  # a sequence of the old kind
        return _core.Paced(items, budget)
    raise TypeError(f"items must be an iterable or an async iterable, not {items!r}")


class _Paced(AsyncIterator[T]):
    """As _core.Paced, for an async iterable. No generator: one that is left early has to be closed by a task."""

    __slots__ = ("_check", "_next")

    def __init__(self, items: AsyncIterable[T], budget: float) -> None:
        self._next = aiter(items).__anext__
        self._check = _core.checkpoint(budget)

    async def __anext__(self) -> T:
        await self._check
        return await self._next()
