"""The buckets of a histogram that are in use: (number, count) of each, ascending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from loopwatch._core import Columns

BUCKETS: Final = 4224
"""That the native histogram has, in use or not."""


class NativeBuckets(Sequence[tuple[int, int]]):
    """As the native half counted them. There may be thousands, a scrape has several histograms, and of most it
    needs the totals alone: so they are unpacked when asked for."""

    __slots__ = ("_packed",)

    def __init__(self, packed: Columns) -> None:
        self._packed = packed

    def columns(self) -> tuple[list[int], list[int]]:
        numbers, counts = self._packed
        return memoryview(numbers).cast("H").tolist(), memoryview(counts).cast("Q").tolist()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(*self.columns(), strict=True)

    def __len__(self) -> int:
        return len(self._packed[0]) // 2

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NativeBuckets):
            return self._packed == other._packed
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def columns(buckets: Sequence[tuple[int, int]]) -> tuple[Sequence[int], Sequence[int]]:
    """(numbers, counts)"""
    if isinstance(buckets, NativeBuckets):
        return buckets.columns()
    numbers, counts = zip(*buckets, strict=True) if buckets else ((), ())
    return numbers, counts
