"""install_all() and uninstall_all(): every loop of the process, whoever makes it, in any thread.

A loop says that it runs by calling _asyncio._set_running_loop. That C function is replaced behind its function
object (src/runs/runs.c), which is the one hook of loopwatch that is not on an instance; each loop that begins to run
and has no watch gets one. Loops that run already are found through the threads' states.

The command line and the pytest plugin use watch_all() beside a program that may call install_all() itself, so
there are layers: the one that was put last watches the loops that come, and what it leaves is the others'.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import atexit
import dataclasses
import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

from loopwatch import _core, _env
from loopwatch._failures import quietly
from loopwatch._install import check_capture, put
from loopwatch._options import Options, Settings, make_settings
from loopwatch._registry import DELIVERY_SECONDS, registry
from loopwatch._shared import copy_shared
from loopwatch._status import status_page

if TYPE_CHECKING:
    from loopwatch._watch import Watch

_LOGGER: Final = logging.getLogger("loopwatch")
_PROGRAM: Final = "install_all"


def install_all(**options: Unpack[Options]) -> None:
    """Watch every loop that runs in this process, in any thread, and those that will, until uninstall_all().

    The options are those of install(), without `loop`, and a wrong one is an error here, at once. A loop that cannot do
    the `pulse` named is watched by another. install() takes over from a watch that was put this way, and a loop that
    was uninstalled by name stays alone. What goes wrong at one loop is logged; the loop runs unwatched. A second call
    before uninstall_all() is a RuntimeError.
    """
    watch_all(options, origin=_PROGRAM)


def uninstall_all() -> None:
    """Take off the watches that install_all() put, and its hook. Idempotent, from any thread. Waits, 2 seconds at most,
    until the stalls that have ended are delivered."""
    unwatch_all(_PROGRAM)


class Layer:
    """One call of watch_all()."""

    def __init__(self, origin: str, settings: Settings, on_watch: Callable[[Watch], object] | None) -> None:
        self.origin, self.settings, self.on_watch = origin, settings, on_watch
        self.watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self.failures = 0
        """Loops that it could not watch."""
        self._logged: set[type[BaseException]] = set()  # each kind once

    def note_failure(self, problem: BaseException, loop: object) -> None:
        self.failures += 1
        if type(problem) not in self._logged:
            self._logged.add(type(problem))
            quietly(lambda: _LOGGER.error("loopwatch could not watch %r", loop, exc_info=problem))


_layers: tuple[Layer, ...] = ()
"""The last one is in force. Replaced with the registry's lock; read without."""
_stock_set_running_loop: Callable[[Any], None] | None = None
"""While it is replaced: where asyncio is in Python only."""


def watch_all(
    options: Options,
    *,
    origin: str,
    on_watch: Callable[[Watch], object] | None = None,
    brief: bool = False,
) -> Layer | None:
    """Watch every loop for a tool that names itself by `origin`; RuntimeError where it does already. `options`: as
    install() takes them. `on_watch` gets each new Watch, on the thread of its loop or on this one, before the loop
    goes on. `brief`: as in Settings. None under LOOPWATCH=0."""
    global _layers
    settings = dataclasses.replace(make_settings(origin, {**options}), brief=brief)
    if not _env.enabled():
        return None
    _check(settings)
    layer = Layer(origin, settings, on_watch)
    here = registry()
    with here.lock:
        if watched_by(origin):
            raise RuntimeError(f"every loop is watched already, by {origin}: call uninstall_all() first")
        with settings.naming("status"):
            status_page.join(origin, settings.status)  # it stays between two loops
        here.serve_page()  # a watchdog runs already where loops are watched, and these get no new watch
        if not _layers:
            _put_hook()
            here.held = True
            atexit.register(_at_exit)
        _layers = (*_layers, layer)
    for loop in running_loops():
        _arrived(loop)
    return layer


def unwatch_all(origin: str, timeout: float = DELIVERY_SECONDS) -> None:
    """Undo watch_all(); wait until stalls that have ended are delivered."""
    global _layers
    here = registry()
    with here.lock:
        gone = [layer for layer in _layers if layer.origin == origin]
        if not gone:
            return
        _layers = tuple(layer for layer in _layers if layer not in gone)
        status_page.leave(origin)
        if not _layers:
            _take_hook()
            atexit.unregister(_at_exit)
            here.held = False
            here.left_alone.clear()
    for layer in gone:
        for watch in list(layer.watches):
            watch.detach()
    here.settle(timeout)
    if _layers:
        for loop in running_loops():
            _arrived(loop)


def watched_by(origin: str) -> bool:
    """Whether watch_all() is in force for it."""
    return any(layer.origin == origin for layer in _layers)


def deliver(timeout: float = DELIVERY_SECONDS) -> bool:
    """Wait until every stall that has ended is delivered. False: it took longer."""
    reporter = registry().reporter
    return reporter is None or reporter.is_current or reporter.drain(timeout, _core.pending_stalls)


def _check(settings: Settings) -> None:
    """What would fail at each loop."""
    with settings.naming("capture"):
        check_capture(settings.capture)
    with settings.naming("dump_to"), settings.dump.opened():
        pass


# --- the hook ---


def _put_hook() -> None:
    global _stock_set_running_loop
    if not _core.watch_runs(_arrived):
        _stock_set_running_loop = asyncio.events._set_running_loop
        asyncio.events._set_running_loop = _set_running_loop


def _take_hook() -> None:
    global _stock_set_running_loop
    _core.unwatch_runs()
    if _stock_set_running_loop is not None and asyncio.events._set_running_loop is _set_running_loop:
        asyncio.events._set_running_loop = _stock_set_running_loop
        _stock_set_running_loop = None


def _set_running_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    """asyncio's, where it is in Python only. Who bound the name before does not come here."""
    stock = _stock_set_running_loop
    assert stock is not None
    if loop is None:
        _core.run_ends()
    stock(loop)
    if loop is not None:
        _core.run_begins(loop)


def _arrived(loop: asyncio.AbstractEventLoop) -> None:
    """A loop runs: on its own thread, or by watch_all() on another. Nothing of what goes wrong here is the
    program's, apart from an interruption: that one waits until the loop can end in order."""
    layers = _layers
    if not layers or not isinstance(loop, asyncio.AbstractEventLoop):
        return
    try:
        _watch(loop, layers[-1])
    except Exception as problem:
        if not loop.is_closed():  # else it was on another thread, and has ended
            layers[-1].note_failure(problem, loop)
    except BaseException as interruption:
        if asyncio._get_running_loop() is not loop:
            raise
        if isinstance(loop, asyncio.BaseEventLoop):
            loop._ready.append(_Interruption(_raise, (interruption,), loop))  # type: ignore[attr-defined]
        else:  # it calls what it is given as a handle does: what that keeps back is logged
            loop.call_soon(_raise, interruption)


def _watch(loop: asyncio.AbstractEventLoop, layer: Layer) -> None:
    here = registry()
    known = here.find(loop)
    if (known is not None and not known.inherited) or loop.is_closed() or loop in here.left_alone:
        return
    if here.reporter is not None and here.reporter.is_current:  # a stall of it could not be reported
        return
    settings = layer.settings
    try:
        watch = put(loop, settings, automatic=True)
    except ValueError:
        if settings.pulse == "auto":
            raise
        watch = put(loop, dataclasses.replace(settings, pulse="auto"), automatic=True)
    if not watch.automatic:  # somebody else was faster
        return
    layer.watches.add(watch)
    if layer.on_watch is not None:
        layer.on_watch(watch)
    if (layer not in _layers or loop.is_closed()) and watch.detach():  # meanwhile
        here.settle()


def _raise(problem: BaseException) -> None:
    raise problem


class _Interruption(asyncio.Handle):
    """A handle keeps back what is neither KeyboardInterrupt nor SystemExit, so what a timeout raises on a signal."""

    __slots__ = ()

    def _run(self) -> None:
        self._callback(*self._args)  # type: ignore[attr-defined]


# --- what runs already ---


def running_loops() -> list[asyncio.AbstractEventLoop]:
    """In any thread. Without a GIL: this thread's, and those that have a task."""
    loops = _core.running_loops()
    if loops is None:
        own = asyncio._get_running_loop()
        loops = [*_loops_with_tasks(), *([own] if own is not None else [])]
    found = {id(loop): loop for loop in loops if isinstance(loop, asyncio.AbstractEventLoop)}
    return list(found.values())


def _loops_with_tasks() -> list[asyncio.AbstractEventLoop]:
    tasks: list[Any] = []
    for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks"):  # 3.11; 3.12 on, both
        tasks += copy_shared(getattr(asyncio.tasks, name, ()))
    loops = [task.get_loop() for task in tasks if not task.done()]
    return [loop for loop in loops if loop.is_running()]


def _at_exit() -> None:
    for layer in _layers:
        unwatch_all(layer.origin)
