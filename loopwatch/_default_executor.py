"""The loop's default executor: how it is found, which differs from loop to loop.

A stock loop makes it at the first call, and nothing tells when. Shadowing `run_in_executor` would show it, but
there is no room for another attribute (_hooks.py). So the loop gets the same pool while it runs that it would
make itself; the pool has no thread until the first call. Where there was none it is taken back at the end of
the run, and before shutdown_default_executor(): that starts a thread to shut the executor down, and an
interpreter that shuts down has none to give.

uvloop has it where only the garbage collector sees it, and room for attributes: two of its methods are
shadowed.
"""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopwatch._executors import Executors


def is_stock(loop: asyncio.AbstractEventLoop) -> bool:
    """It makes its default executor as asyncio's own loops do."""
    stock = vars(asyncio.BaseEventLoop)["run_in_executor"]
    return getattr(type(loop), "run_in_executor", None) is stock


def default_of(loop: asyncio.AbstractEventLoop) -> ThreadPoolExecutor | None:
    """None where there is none yet. uvloop has it where only the garbage collector sees it."""
    try:
        pool = loop._default_executor  # type: ignore[attr-defined]
    except AttributeError:
        own = set(map(id, getattr(loop, "__dict__", {}).values()))
        pools = (thing for thing in gc.get_referents(loop) if isinstance(thing, ThreadPoolExecutor))
        pool = next((thing for thing in pools if id(thing) not in own), None)
    return pool if isinstance(pool, ThreadPoolExecutor) else None


def make_spare(loop: asyncio.AbstractEventLoop) -> ThreadPoolExecutor | None:
    """What a stock loop would make at its first call; None: it makes something else, or nothing any more."""
    stock: Any = loop
    if not is_stock(loop) or stock._executor_shutdown_called:
        return None
    return ThreadPoolExecutor(thread_name_prefix="asyncio")


def give(loop: asyncio.AbstractEventLoop, spare: ThreadPoolExecutor) -> None:
    """To a loop that has no default executor."""
    stock: Any = loop
    if stock._default_executor is None and not stock._executor_shutdown_called:
        stock._default_executor = spare


def take(loop: asyncio.AbstractEventLoop, spare: ThreadPoolExecutor) -> bool:
    """Have it back. False: it was used, or there is another one."""
    stock: Any = loop
    if spare._threads or spare._shutdown or stock._default_executor is not spare:
        return False
    stock._default_executor = None
    return True


def shuts_down(loop: asyncio.AbstractEventLoop) -> bool:
    """It starts to run for no more than that its default executor ends, as asyncio.Runner closes it."""
    code = asyncio.BaseEventLoop.shutdown_default_executor.__code__
    return any(getattr(task.get_coro(), "cr_code", None) is code for task in asyncio.all_tasks(loop))


class RunInExecutor:
    """Shadows `run_in_executor` of a loop, which makes its default executor at the first call."""

    __slots__ = ("_call", "_executors", "_loop")

    def __init__(self, executors: Executors, loop: asyncio.AbstractEventLoop) -> None:
        self._executors, self._call = executors, loop.run_in_executor
        self._loop: Any = loop

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if (args[0] if args else kwargs.get("executor")) is not None:
            return self._call(*args, **kwargs)
        executors = self._executors
        known = executors.default_pool()
        if known is not None and (executors.is_told or self._loop._default_executor is known):
            return self._call(*args, **kwargs)
        found = executors.find_default()
        future = self._call(*args, **kwargs)
        if not found:
            executors.find_default(future)
        return future


class SetDefaultExecutor:
    """Shadows `set_default_executor` of a loop that does not show its default executor: uvloop."""

    __slots__ = ("_call", "_executors")

    def __init__(self, executors: Executors, loop: asyncio.AbstractEventLoop) -> None:
        self._executors, self._call = executors, loop.set_default_executor

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        result = self._call(*args, **kwargs)
        self._executors.set_default(args[0] if args else kwargs.get("executor"))
        return result
