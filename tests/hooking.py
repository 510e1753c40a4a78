"""What the tests of the hooks share: slots, hooked selectors and loops."""

import asyncio
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from loopwatch import _testcore as core

MS = 1_000_000
HOUR_NS = 3_600_000 * MS


def new_slot(loop: object = None, pulse: str = "turn") -> Any:
    """A slot that is not started, with a threshold that no test reaches."""
    return core.Slot(
        loop=loop,
        threshold_ns=HOUR_NS,
        hang_after_ns=None,
        capture="off",
        pulse=pulse,
        dump_fd=-1,
        dump_names=True,
    )


@contextmanager
def watched(loop: object = None, pulse: str = "turn") -> Iterator[Any]:
    """A slot that is active. The watchdog thread ends with it."""
    slot = new_slot(loop, pulse)
    slot.start()
    try:
        yield slot
    finally:
        slot.retire(10**9)
        core.stop_watchdog(10**9)


def running(check: Callable[[Any], object]) -> None:
    """Calls check(slot) inside a run of a watched loop."""
    with watched() as slot:
        core.RunEdge(slot, lambda: check(slot))()


def spend(ms: int) -> None:
    """Busy or not does not matter: steps are wall-clock time."""
    end = time.monotonic_ns() + ms * MS
    while (left := end - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


def needs_turn_select() -> None:
    if not hasattr(core, "TurnSelect"):
        pytest.skip("the portable build wraps each selector's own select", allow_module_level=True)


@contextmanager
def hooked_selector() -> Iterator[tuple[selectors.EpollSelector, Any, Any]]:
    """(selector, hook, slot); the selector's own select stays what it was."""
    needs_turn_select()
    slot = new_slot()  # not started: stamps need no watchdog
    with selectors.EpollSelector() as selector:
        yield selector, core.TurnSelect(slot, selector), slot


@contextmanager
def hooked_loop() -> Iterator[tuple[asyncio.SelectorEventLoop, Any]]:
    """A stock loop as the turn pulse hooks it, and its slot."""
    needs_turn_select()
    selector = selectors.EpollSelector()
    loop = asyncio.SelectorEventLoop(selector)
    with watched(loop) as slot:
        selector.select = core.TurnSelect(slot, selector)  # type: ignore[method-assign]
        loop.run_forever = core.RunEdge(slot, loop.run_forever)  # type: ignore[method-assign]
        try:
            yield loop, slot
        finally:
            loop.close()
            vars(loop).pop("run_forever", None)
            vars(selector).pop("select", None)


@contextmanager
def socket_pairs(n: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    pairs = [socket.socketpair() for _ in range(n)]
    try:
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
        yield pairs
    finally:
        for pair in pairs:
            for end in pair:
                end.close()
