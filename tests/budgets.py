"""What the tests of checkpoint() and paced() share: loops that are watched and that are not, and work.

No test measures how long something took. An item is at least so long, on whatever machine, so how many of
them a turn can have is known; and where time must not have passed, the test looks whether it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest
from scenario import new_loop, pulse_of, quiet

import loopwatch
from loopwatch import _core, checkpoint

TELLS_THE_TURN = ["turn", "wrapped", "uv"]
NOT_WATCHED = ["no: turn", "no: uv"]
NEVER = 10_000_000.0
ITEM = 0.001
BUDGET = 5 * ITEM
LONG = 0.05
TRIES = 20

Main = Callable[[], Coroutine[Any, Any, Any]]


@contextlib.contextmanager
def a_loop(kind: str) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop watched by the pulse of this name, or "no: " and what could watch it."""
    name = kind.removeprefix("no: ")
    if name == "uv":
        pytest.importorskip("uvloop")
    if kind == "uv" and _core.PORTABLE:
        pytest.skip("the portable build cannot watch uvloop")
    loop = new_loop(name)
    if name == kind:
        loopwatch.install(loop, **quiet(pulse=pulse_of(name)))
    try:
        yield loop
    finally:
        loop.close()


def run(kind: str, main: Main) -> Any:
    with a_loop(kind) as loop:
        return loop.run_until_complete(main())


def work(seconds: float = ITEM) -> None:
    """On whatever machine it takes at least that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def yields(awaited: Awaitable[object]) -> bool:
    """Whether the others get a turn while this is awaited."""
    had: list[bool] = []
    asyncio.get_running_loop().call_soon(had.append, True)
    await awaited
    return bool(had)


async def once_in_time(attempt: Callable[[], Coroutine[Any, Any, bool]], limit: float) -> bool:
    """The answer of the first attempt that took less than `limit`: a machine that stops the process in the
    middle of one makes a yield due."""
    for _ in range(TRIES):
        began = time.monotonic()
        answer = await attempt()
        if time.monotonic() - began < limit:
            return answer
    pytest.skip("this machine is too busy")


class Turns:
    """Counts the items of each turn."""

    def __init__(self) -> None:
        self.items: list[int] = [0]
        self.each: dict[str, list[int]] = {}
        self.running = True

    def tick(self) -> None:
        self.items.append(0)
        if self.running:
            asyncio.get_running_loop().call_soon(self.tick)

    async def worker(self, n: int) -> None:
        for _ in range(n):
            work()
            self.items[-1] += 1
            await checkpoint(BUDGET)

    async def run(self, tasks: int) -> int:
        """The most items of a turn, but for that in which the tasks begin."""
        self.tick()
        await asyncio.gather(*(self.worker(25) for _ in range(tasks)))
        self.running = False
        await asyncio.sleep(0)
        worked = [items for items in self.items if items]
        return max(worked[1:])


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
