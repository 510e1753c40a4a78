"""What is put on a loop: instance attributes that shadow methods, and how they come off again.

    loop._selector.select   the turn pulse: stamps before and after the wait
    loop._selector.close    with it: the watch ends when the loop is closed, which closes its selector
    loop.close              with any other pulse: the watch ends before the loop does (libuv must not be asked
                            after that)
    loop.run_forever        the run edge: a loop that does not run is not stalled
    loop.run_in_executor    not on a stock loop: shows the default executor, which the first call makes
    loop.set_default_executor   with it, where the loop does not show which one it has (uvloop)

No class is touched. An attribute is removed only while it is still ours: what others put there stays. The
hook on `close` keeps the Hooks alive as long as the loop, not longer.

A stock loop gets one attribute, and nobody asks it for its __dict__. CPython keeps the attributes of an
instance in the instance until there are more than 30 (3.13, 3.14: asyncio's own are 26 or 27) or, on 3.12,
until somebody asks for the dict (and each loop that is made takes one from the 30, until one is left); then each
access to any of them is slower for good, 0.2 to 0.6 us a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from loopwatch import _core
from loopwatch._registry import registry

if TYPE_CHECKING:
    from loopwatch._watch import Watch

_PROBE: Final = "_loopwatch"
_NOTHING: Final = object()
_STOP_SECONDS: Final = 2.0
_TICK_MIN, _TICK_MAX = 0.001, 0.05

_Epoll: Final[Any] = getattr(selectors, "EpollSelector", ())  # (): a system without it, nothing is one

NativePulse = Literal["turn", "wrapped", "uv", "heartbeat"]


class Beat(Protocol):
    """A pulse that is started and stopped: UvPulse, Heartbeat."""

    def start(self) -> object: ...

    def stop(self) -> bool | None:
        """Idempotent. False: it did not end yet, and must be stopped again before the loop is closed."""


def selector_of(loop: asyncio.AbstractEventLoop) -> selectors.BaseSelector | None:
    """The selector that each turn of this loop goes through, where it is one of asyncio's selector loops."""
    stock = vars(asyncio.BaseEventLoop)["_run_once"]
    selector = getattr(loop, "_selector", None)
    if getattr(type(loop), "_run_once", None) is not stock or not isinstance(
        selector, selectors.BaseSelector
    ):
        return None
    return selector if type(selector).__dictoffset__ else None


def takes_attributes(loop: asyncio.AbstractEventLoop) -> bool:
    if not type(loop).__dictoffset__:
        return False
    if type(loop).__setattr__ is not object.__setattr__:
        try:
            setattr(loop, _PROBE, None)
            delattr(loop, _PROBE)
        except (AttributeError, TypeError):
            return False
    return True


def own_attribute(owner: object, name: str) -> Any:
    """What the instance itself has under this name, or _NOTHING. A class's method is bound anew each time."""
    value = getattr(owner, name, _NOTHING)
    if value is not getattr(owner, name, _NOTHING) or value is getattr(type(owner), name, _NOTHING):
        return _NOTHING
    return value


def is_uvloop(loop: asyncio.AbstractEventLoop) -> bool:
    return any(
        base.__module__.partition(".")[0] == "uvloop" and base.__name__ == "Loop"
        for base in type(loop).__mro__
    )


def tick_for(threshold: float) -> float:
    """How often a heartbeat beats."""
    return min(max(threshold / 8, _TICK_MIN), _TICK_MAX)


@dataclass(frozen=True, slots=True)
class _Shadow:
    """An attribute of ours, known by its id: holding the hook itself would keep the loop alive."""

    owner: object
    name: str
    hook_id: int
    previous: object
    """What somebody had put there before; _NOTHING: the class's own was in use."""

    def remove(self) -> None:
        if id(own_attribute(self.owner, self.name)) != self.hook_id:
            return
        if self.previous is _NOTHING:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.previous)


class Hooks:
    """Everything on one loop. The loop owns it; the Watch only refers to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slot: _core.Slot, watch: Watch) -> None:
        self._loop, self._slot, self._watch = loop, slot, watch
        self._shadows: list[_Shadow] = []
        self._beat: Beat | None = None
        self._close: Callable[[], None] = loop.close
        self.loop_refuses = not takes_attributes(loop)
        """It takes no attributes: only a heartbeat can watch it, and nothing tells that it closes."""
        self.measures_gil_wait = False

    # --- on ---

    def put(self, pulse: NativePulse, tick: float) -> None:
        """Put everything on, or nothing: an exception leaves the loop as it was."""
        try:
            if not self.loop_refuses:
                closes_with_loop = selector_of(self._loop) if pulse in ("turn", "wrapped") else self._loop
                assert closes_with_loop is not None
                self._close = closes_with_loop.close
                self._shadow(closes_with_loop, "close", self.close)
                pools = self._watch.pools
                run_edge = _core.RunEdge(
                    self._slot, self._loop.run_forever, pools.run_begins, pools.take_back
                )
                self._shadow(self._loop, "run_forever", run_edge)
                pools.shadow(self._loop, self._shadow)
            self._put_pulse(pulse, tick)
        except BaseException:
            self._take_off()
            raise

    def _shadow(self, owner: object, name: str, hook: Any) -> None:
        previous = own_attribute(owner, name)
        setattr(owner, name, hook)
        self._shadows.append(_Shadow(owner, name, id(hook), previous))

    def _put_pulse(self, pulse: NativePulse, tick: float) -> None:
        if pulse == "uv":
            self._beat = _core.UvPulse(self._slot, self._loop)
        elif pulse == "heartbeat":
            self._beat = _core.Heartbeat(self._slot, self._loop, tick)
        else:
            selector = selector_of(self._loop)
            assert selector is not None
            hook: object
            if pulse == "turn":
                hook = _core.TurnSelect(self._slot, selector)
                self.measures_gil_wait = True
            else:
                fileno = selector.fileno() if isinstance(selector, _Epoll) else -1
                hook = _core.WrappedSelect(self._slot, selector.select, fileno)
            self._shadow(selector, "select", hook)

    def begin(self) -> None:
        """The watchdog looks: start the beat, and where the loop runs already, say so on its thread."""
        running = self._loop.is_running()
        if asyncio._get_running_loop() is self._loop:
            self._begin_here()
        elif running:
            self._loop.call_soon_threadsafe(self._begin_here)
        elif self._beat is not None:
            self._beat.start()

    def _begin_here(self) -> None:
        if self._watch.installed:
            if self._beat is not None:
                self._beat.start()
            self._slot.here()

    # --- off ---

    def remove(self, *, may_wait: bool) -> None:
        """Take everything off. A beat of a loop that runs elsewhere is stopped on that loop's thread, which
        is waited for where `may_wait`; until then only the hook on `close` stays, which would stop it."""
        loop = self._loop
        elsewhere = loop.is_running() and asyncio._get_running_loop() is not loop
        if self._beat is None or not elsewhere or loop.is_closed():
            self._take_off()
            return
        self._remove_shadows(but="close")
        done = threading.Event()

        def stop() -> None:
            self._take_off()
            done.set()

        try:
            loop.call_soon_threadsafe(stop)
        except RuntimeError:  # closed in the meantime: close() has taken everything off
            return
        if may_wait:
            done.wait(_STOP_SECONDS)

    def _take_off(self) -> None:
        """Whoever closes the loop while another thread is in here stops the beat too: so it stays, with the hook on
        `close`, until it has ended."""
        if self._beat is not None and self._beat.stop() is False:
            self._remove_shadows(but="close")
            return
        self._beat = None
        self._remove_shadows()

    def _remove_shadows(self, but: str = "") -> None:
        shadows, self._shadows = self._shadows, [shadow for shadow in self._shadows if shadow.name == but]
        for shadow in shadows:
            if shadow.name != but:
                shadow.remove()

    def close(self) -> None:
        """Shadows `close` of the loop or its selector. A running loop refuses to close, and stays watched."""
        if self._loop.is_running():
            self._close()
            return
        detached = False

        def settle() -> None:
            if detached and self._watch.automatic:
                registry().settle_later()
            elif detached:
                registry().settle()

        with contextlib.ExitStack() as stack:  # from the last to the first, also where an interruption comes
            stack.callback(settle)
            stack.callback(self._close)
            stack.callback(self._take_off)
            detached = self._watch.detach(closing=True)


def is_stock_epoll(selector: selectors.BaseSelector) -> bool:
    """Exactly selectors.EpollSelector, and nobody has put a `select` of their own on it; the portable build has
    no epoll and wraps it."""
    return not _core.PORTABLE and type(selector) is _Epoll and own_attribute(selector, "select") is _NOTHING
