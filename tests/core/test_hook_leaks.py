"""Nothing is left of hooks and calls: as much memory in use after many rounds as after a few."""

import asyncio
import gc
import selectors
import sys
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from hooking import needs_turn_select, new_slot, socket_pairs

from loopwatch import _testcore as core

ROUNDS = 300


class OneTimer:
    """A loop whose timers the test fires itself."""

    def call_later(self, _delay: float, callback: Callable[[], object]) -> "OneTimer":
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = print

    def is_running(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False


def turn_select(slot: Any) -> None:
    needs_turn_select()
    with selectors.EpollSelector() as selector, socket_pairs(2) as pairs:
        hook = core.TurnSelect(slot, selector)
        for ours, _ in pairs:
            selector.register(ours, selectors.EVENT_WRITE)
        hook()
        hook(0)
        hook(0.5)
        hook(timeout=0)
        hook(Decimal(0))
        for bad in ("x", float("nan"), 10**400):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                hook(bad)
    with pytest.raises(ValueError, match="closed"):
        hook(0)
    with pytest.raises(TypeError):
        core.TurnSelect(slot, pairs)
    selector.select = hook  # type: ignore[method-assign]  # a cycle, as an installer makes it


def wrapped_select(slot: Any) -> None:
    hook = core.WrappedSelect(slot, lambda timeout=None: timeout, 7)
    for timeout in (None, 0, 1.5, "x"):
        hook(timeout)
        hook(timeout=timeout)
    with pytest.raises(TypeError):
        hook(1, 2)
    with pytest.raises(TypeError):
        core.WrappedSelect(slot, None, -1)


def run_edge(slot: Any) -> None:
    def fail() -> None:
        raise ValueError

    core.RunEdge(slot, list)()
    with pytest.raises(ValueError):  # noqa: PT011
        core.RunEdge(slot, fail)()
    with pytest.raises(TypeError):
        core.RunEdge(slot, None)
    loop = asyncio.SelectorEventLoop()
    loop.run_forever = core.RunEdge(slot, loop.run_forever)  # type: ignore[method-assign]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del loop.run_forever


def heartbeat(slot: Any) -> None:
    loop = OneTimer()
    heart = core.Heartbeat(slot, loop, 0.5)
    heart.start()
    loop.callback()
    loop.callback()
    heart.stop()
    heart.start()  # dropped while armed: a cycle through the timer
    with pytest.raises(ValueError, match="tick"):
        core.Heartbeat(slot, loop, -1)


def step(_slot: Any) -> None:
    one = core.Step("leaks")
    with one, one, one, core.Step("leaks"):
        repr(one)
    for bad in ("", "a\0b", 1):
        with pytest.raises((TypeError, ValueError)):
            core.Step(bad)


NAMES = ("TurnSelect", "WrappedSelect", "RunEdge", "Heartbeat", "Step")
HOOKS = tuple(getattr(core, name) for name in NAMES if hasattr(core, name))


def many(what: Callable[[Any], None], slot: Any) -> tuple[int, ...]:
    """Blocks of memory in use, and how often the things that hooks refer to are referred to."""
    for _ in range(ROUNDS):
        what(slot)
    gc.collect()
    return (sys.getallocatedblocks(), *(sys.getrefcount(thing) for thing in (*HOOKS, slot, list)))


@pytest.mark.parametrize("what", [turn_select, wrapped_select, run_edge, heartbeat, step])
def test_no_leak(what: Callable[[Any], None]) -> None:
    slot = new_slot()
    counts = [many(what, slot) for _ in range(5)]
    # A leak of one object a round is ROUNDS each time; what the interpreter keeps for reuse levels off.
    for kind in zip(*counts, strict=True):
        assert min(after - before for before, after in pairwise(kind)) < ROUNDS / 4
