"""Requests for the tests of them: coroutines of so many steps, and a driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hooking import MS


def nowhere(_scope: object) -> None:
    """The route is not known."""


def burn(ms: int) -> None:
    end = time.thread_time_ns() + ms * MS
    while time.thread_time_ns() < end:
        pass


class Pause:
    """Suspends once."""

    def __await__(self) -> Any:
        yield self


async def steps(*parts: Callable[[], object]) -> None:
    for part in parts:
        part()
        await Pause()


def drive(stepper: Any) -> None:
    for _ in stepper:
        pass
