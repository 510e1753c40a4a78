"""Which callback of the loop's turn runs, read off asyncio's own frame."""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable
from typing import Any

import pytest

core = pytest.importorskip("loopwatch._testcore")
if reason := core.frames_setup()[1]:
    pytest.skip(f"no raw capture here: {reason}", allow_module_level=True)

NOT_KNOWN = (-1, -1)


@pytest.fixture
def turn() -> Callable[[], tuple[int, int]]:
    snapper = core.frames_snapper()

    def look() -> tuple[int, int]:
        seen: tuple[int, int] = core.frames_snapshot(snapper, core.frames_thread_ref())["turn"]
        return seen

    return look


@pytest.fixture
def loop() -> Any:
    loop = asyncio.SelectorEventLoop()
    yield loop
    loop.close()


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 258, 1000, 70000])
def test_each_callback_of_a_turn_is_counted(loop: asyncio.AbstractEventLoop, turn: Any, n: int) -> None:
    seen: list[tuple[int, tuple[int, int]]] = []
    looked_at = {0, 1, n // 2, 254, 255, 256, 257, 258, n - 2, n - 1} & set(range(n))

    def callback(i: int) -> None:
        if i in looked_at:
            seen.append((i, turn()))

    for i in range(n):
        loop.call_soon(callback, i)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [(i, (n + 1, i)) for i in sorted(looked_at)]


def test_outside_of_a_loop_nothing_is_known(turn: Any) -> None:
    assert turn() == NOT_KNOWN


def test_while_the_loop_waits_nothing_is_known(turn: Any) -> None:
    seen = []

    class Selector(selectors.SelectSelector):
        def select(self, timeout: float | None = None) -> Any:
            seen.append(turn())
            return super().select(timeout)

    loop = asyncio.SelectorEventLoop(Selector())
    loop.call_soon(loop.call_soon, loop.stop)
    loop.run_forever()
    loop.close()
    assert seen
    assert set(seen) == {NOT_KNOWN}


def test_in_a_nested_run_the_inner_turn_is_told(loop: asyncio.AbstractEventLoop, turn: Any) -> None:
    seen = {}

    def inner(other: asyncio.AbstractEventLoop) -> None:
        seen["inner"] = turn()
        other.stop()

    def outer() -> None:
        asyncio.events._set_running_loop(None)
        other = asyncio.SelectorEventLoop()
        for _ in range(4):
            other.call_soon(lambda: None)
        other.call_soon(inner, other)
        other.run_forever()
        other.close()
        asyncio.events._set_running_loop(loop)
        seen["outer"] = turn()

    loop.call_soon(lambda: None)
    loop.call_soon(outer)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == {"inner": (5, 4), "outer": (3, 1)}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
def test_eager_tasks_run_in_their_creators_callback(loop: asyncio.AbstractEventLoop, turn: Any) -> None:
    loop.set_task_factory(asyncio.eager_task_factory)
    seen = []

    async def child() -> None:
        seen.append(turn())

    def parent() -> None:
        loop.create_task(child())
        loop.create_task(child())

    loop.call_soon(lambda: None)
    loop.call_soon(parent)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert seen == [(3, 1), (3, 1)]


def test_awaits_below_a_callback_change_nothing(loop: asyncio.AbstractEventLoop, turn: Any) -> None:
    async def deep(n: int) -> Any:
        return await deep(n - 1) if n else turn()

    async def main() -> Any:
        await asyncio.sleep(0)
        return await deep(50)

    assert loop.run_until_complete(main()) == (1, 0)


def test_another_run_once_is_not_understood(turn: Any) -> None:
    seen = []

    class Loop(asyncio.SelectorEventLoop):
        def _run_once(self) -> None:
            handle = self._ready.popleft()  # type: ignore[attr-defined]
            handle._run()

    loop = Loop()
    loop.call_soon(lambda: seen.append(turn()))
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert seen == [NOT_KNOWN]
