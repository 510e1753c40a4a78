"""A copy of what other threads change meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")

_TRIES: Final = 1000


def copy_shared(things: Iterable[T]) -> list[T]:
    """All of a set or a deque at one moment. Without a GIL another thread can change it while it is copied, also
    where the copy is made by one call in C: that is a RuntimeError, and it is tried again, as asyncio.all_tasks does.
    The empty list where that never ends."""
    for _ in range(_TRIES):
        try:
            return list(things)
        except RuntimeError:
            continue
    return []
