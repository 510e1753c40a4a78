"""No public call leaves memory behind, and none is missing here."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from leak_measurement import CALLS, LIBC, TELLS, leaks
from scenario import new_loop, quiet

import loopwatch
from loopwatch import asgi
from loopwatch.asgi import LoopwatchMiddleware, counted

FEW_CALLS = {"freeze_startup": 8}
"""It collects all that pytest has, three times a call."""


# --- what is called ---


@pytest.fixture(scope="module")
def stall() -> loopwatch.Stall:
    async def main() -> None:
        time.sleep(0.05)

    with loopwatch.Runner(**quiet(threshold=0.02)) as runner:
        runner.run(main())
        watch = runner.watch
    assert watch is not None
    return watch.stalls[0]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = new_loop()
    yield loop
    loop.close()


async def short_stall() -> None:
    time.sleep(0.003)


def watched(
    loop: asyncio.AbstractEventLoop, use: Callable[[loopwatch.Watch], object], **options: Any
) -> None:
    with loopwatch.install(loop, **quiet(**options)) as watch:
        use(watch)


def run_in(loop: asyncio.AbstractEventLoop, use: Callable[[], object]) -> None:
    async def main() -> None:
        use()

    loop.run_until_complete(main())


def use_exempt(loop: asyncio.AbstractEventLoop, watch: loopwatch.Watch) -> None:
    def use() -> None:
        with watch.exempt("leak test"):
            pass

    run_in(loop, use)


def use_step(loop: asyncio.AbstractEventLoop) -> None:
    def use() -> None:
        with loopwatch.step("one"), loopwatch.step("two"):
            pass

    run_in(loop, use)


def use_checkpoints(loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        for budget in (0, 1000):
            await loopwatch.checkpoint(budget)
            await loopwatch.checkpoint(budget=budget)

    loop.run_until_complete(main())
    with pytest.raises(ValueError, match="budget"):
        loopwatch.checkpoint(-1)


def use_paced(loop: asyncio.AbstractEventLoop) -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    async def main() -> None:
        for budget in (0, 1000):
            async for _ in loopwatch.paced([object()], budget):
                pass
            async for _ in loopwatch.paced(numbers(), budget):
                pass
            async for _ in loopwatch.paced([1, 2], budget):
                break
        ring: list[object] = []
        ring.append(loopwatch.paced(ring))
        with pytest.raises(ZeroDivisionError):
            await anext(loopwatch.paced((1 // 0 for _ in range(1)), 0))

    loop.run_until_complete(main())


def freeze_and_thaw() -> None:
    loopwatch.freeze_startup()
    gc.unfreeze()


async def answer(scope: Any, _receive: Any, _send: Any) -> None:
    scope["loopwatch.route"] = "/leak"
    await asyncio.sleep(0)
    await counted(asyncio.sleep(0))


async def abandoned(_scope: Any, _receive: Any, _send: Any) -> None:
    await asyncio.get_running_loop().create_future()


def use_middleware(loop: asyncio.AbstractEventLoop, watch: loopwatch.Watch) -> None:
    async def main() -> None:
        await LoopwatchMiddleware(answer)({"type": "http", "method": "GET"}, None, None)  # type: ignore[arg-type]
        await LoopwatchMiddleware(answer)({"type": "websocket"}, None, None)  # type: ignore[arg-type]
        call = LoopwatchMiddleware(abandoned)({"type": "websocket"}, None, None)  # type: ignore[arg-type]
        call.send(None)
        call.close()

    loop.run_until_complete(main())
    assert len(watch.routes) == 3


def install_all(loop: asyncio.AbstractEventLoop) -> None:
    loopwatch.install_all(**quiet())
    loop.run_until_complete(asyncio.sleep(0))
    asyncio.run(asyncio.sleep(0))
    loopwatch.uninstall_all()


def refused(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(ValueError, match="pulse"):
        loopwatch.install(loop, pulse="uv")


def closed() -> None:
    loop = new_loop()
    loopwatch.install(loop, **quiet())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def dropped() -> None:
    loop = new_loop()
    loopwatch.install(loop, **quiet())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del loop
        gc.collect()


def use_executor(watch: loopwatch.Watch) -> None:
    with ThreadPoolExecutor(1) as pool:
        executor = watch.executor(pool, name="leak test")
        for _ in range(3):
            pool.submit(int)
        executor.state()


def use_default_executor(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(asyncio.to_thread(int))
    loop.run_until_complete(loop.shutdown_default_executor())


def fill_executor(watch: loopwatch.Watch) -> None:
    reported = threading.Event()
    watch.add_saturation_callback(lambda saturation: (saturation.format(), reported.set()))
    with ThreadPoolExecutor(1) as pool:
        watch.executor(pool)
        for _ in range(2):
            pool.submit(reported.wait, 10)


def default_executor() -> None:
    loop = new_loop()
    with loopwatch.install(loop, **quiet()) as watch:
        use_default_executor(loop)
        watch.executors[0].state()
    loop.close()


def set_threshold(watch: loopwatch.Watch) -> None:
    watch.threshold = watch.threshold


def cases(loop: asyncio.AbstractEventLoop, stall: loopwatch.Stall) -> dict[str, Callable[[], object]]:
    def with_watch(use: Callable[[loopwatch.Watch], object], **options: Any) -> Callable[[], object]:
        return lambda: watched(loop, use, **options)

    def stalled(_watch: loopwatch.Watch) -> None:
        loop.run_until_complete(short_stall())

    def slow_turn(watch: loopwatch.Watch) -> None:
        run_in(loop, lambda: time.sleep(0.013))
        watch.slow_turns.to_dict()

    frame, lag = stall.frames[0], loopwatch.Lag
    record = stall.to_dict()
    return {
        "install": with_watch(lambda _: None),
        "install refused": lambda: refused(loop),
        "install heartbeat": with_watch(
            lambda _: loop.run_until_complete(asyncio.sleep(0)), pulse="heartbeat"
        ),
        "install and close": closed,
        "install and drop": dropped,
        "uninstall": lambda: (loopwatch.install(loop, **quiet()), loopwatch.uninstall(loop)),
        "install_all": lambda: install_all(loop),
        "uninstall_all": loopwatch.uninstall_all,
        "run": lambda: loopwatch.run(asyncio.sleep(0), **quiet()),
        "Runner": lambda: loopwatch.Runner(**quiet()).close(),
        "step": lambda: use_step(loop),
        "checkpoint": lambda: use_checkpoints(loop),
        "checkpoint on a watched loop": with_watch(lambda _: use_checkpoints(loop)),
        "paced": lambda: use_paced(loop),
        "freeze_startup": freeze_and_thaw,
        "gc_pauses": loopwatch.gc_pauses,
        "FreezeResult": lambda: loopwatch.FreezeResult(1, 2, 3.0, 4.0),
        "GcPauses": lambda: loopwatch.GcPauses(0, 1, 2.0, 3.0),
        "asgi.LoopwatchMiddleware": with_watch(lambda watch: use_middleware(loop, watch)),
        "asgi.counted": lambda: loop.run_until_complete(counted(asyncio.sleep(0))),
        "RouteStats": lambda: loopwatch.RouteStats("GET /", 1, 1.0, 1.0, 0.0, 0.0).ceiling,
        "doctor": lambda: str(loopwatch.doctor()),
        "a stall": with_watch(stalled, threshold=0.001),
        "a stall read by the reporter": with_watch(stalled, threshold=0.001, capture="gil"),
        "Watch.current": with_watch(lambda watch: watch.current),
        "Watch.loop": with_watch(lambda watch: watch.loop),
        "Watch.threshold": with_watch(set_threshold),
        "Watch.pulse": with_watch(lambda watch: watch.pulse),
        "Watch.capture": with_watch(lambda watch: watch.capture),
        "Watch.stalls": with_watch(lambda watch: watch.stalls),
        "Watch.routes": with_watch(lambda watch: watch.routes),
        "Watch.lag": with_watch(lambda watch: watch.lag - watch.lag),
        "Watch.profile": with_watch(lambda watch: watch.profile - watch.profile),
        "Watch.slow_turns": with_watch(lambda watch: watch.slow_turns),
        "a slow turn": with_watch(slow_turn, threshold=0.05, profile_hz=1000.0),
        "Watch.stats": with_watch(lambda watch: watch.stats()),
        "Watch.flush": with_watch(lambda watch: watch.flush()),
        "Watch.exempt": with_watch(lambda watch: use_exempt(loop, watch)),
        "Watch.add_stall_callback": with_watch(lambda watch: watch.add_stall_callback(print)),
        "Watch.remove_stall_callback": with_watch(lambda watch: watch.remove_stall_callback(print)),
        "Watch.executor": with_watch(use_executor),
        "Watch.executors": with_watch(lambda watch: watch.executors),
        "Watch.add_saturation_callback": with_watch(lambda watch: watch.add_saturation_callback(print)),
        "Watch.remove_saturation_callback": with_watch(lambda watch: watch.remove_saturation_callback(print)),
        "the default executor": default_executor,
        "a full executor": with_watch(fill_executor, threshold=0.001),
        "a full executor read by the reporter": with_watch(fill_executor, threshold=0.001, capture="gil"),
        "Watch.window": with_watch(lambda watch: watch.window(60)),
        "Watch.cells": with_watch(lambda watch: watch.cells()),
        "Watch.stall_totals": with_watch(lambda watch: watch.stall_totals),
        "Watch.uninstall": with_watch(lambda watch: watch.uninstall()),
        "Stall.format": stall.format,
        "Stall.summary": lambda: stall.summary,
        "Stall.to_dict": stall.to_dict,
        "Stall.from_dict": lambda: loopwatch.Stall.from_dict(record),
        "Frame": lambda: loopwatch.Frame(frame.filename, frame.lineno, frame.qualname),
        "Sample": lambda: loopwatch.Sample(0.0, 1.0, (frame,), stall.verdict, 1, "exact"),
        "TaskInfo": lambda: loopwatch.TaskInfo("name", "coroutine"),
        "ThreadInfo": lambda: loopwatch.ThreadInfo("name", 1, (frame,)),
        "Evidence": loopwatch.Evidence,
        "ExecutorState": lambda: loopwatch.ExecutorState("name", 1, 1, 1, 0, 0.0, 0.0, 1, 0),
        "Profile": lambda: loopwatch.Profile(1.0, 1, tasks={"main": 1.0}).to_dict(),
        "ProfileRow": lambda: loopwatch.ProfileRow(frame, 1.0, 1.0, 20).to_dict(),
        "Lag": lambda: lag([(1, 2)], turns=2, busy_ns=2, idle_ns=2, gil_wait_ns=2, max_ns=2).quantile(0.5),
    }


NAMES = sorted(
    cases(None, type("Any", (), {"frames": [0], "to_dict": dict, "format": None, "verdict": None}))
)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_no_leak(name: str, loop: asyncio.AbstractEventLoop, stall: loopwatch.Stall) -> None:
    assert leaks(cases(loop, stall)[name], FEW_CALLS.get(name, CALLS)) == []


def test_no_descriptor_is_left(loop: asyncio.AbstractEventLoop) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        watched(loop, lambda _: loop.run_until_complete(short_stall()), threshold=0.001)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- nothing is missing ---


def public_callables() -> set[str]:
    """Functions and classes of the package, and what a Watch and a Stall can do."""
    only_types = {
        "Cell",
        "Check",
        "Executor",
        "Report",
        "Saturation",
        "Stall",
        "StallTotal",
        "Verdict",
        "Watch",
        "Window",
    }  # made by loopwatch, not by its users
    names = {name for name in loopwatch.__all__ if callable(getattr(loopwatch, name))} - only_types
    names |= {f"asgi.{name}" for name in asgi.__all__}
    names |= {f"Watch.{name}" for name in CONTRACT_OF_WATCH}
    methods = inspect.getmembers(
        loopwatch.Stall, lambda member: inspect.isroutine(member) or isinstance(member, property)
    )
    return names | {
        f"Stall.{name}" for name, _ in methods if name in ("format", "summary", "to_dict", "from_dict")
    }


CONTRACT_OF_WATCH = (
    "loop", "threshold", "pulse", "capture", "current", "stalls", "lag", "stats", "flush", "exempt",
    "add_stall_callback", "remove_stall_callback", "uninstall", "executor", "executors",
    "add_saturation_callback", "remove_saturation_callback", "window", "cells", "stall_totals", "routes",
    "profile", "slow_turns",
)  # fmt: skip


def test_every_public_callable_is_here() -> None:
    assert public_callables() - set(NAMES) == set()


def test_a_leak_would_be_found() -> None:
    kept: list[bytes] = []
    assert leaks(lambda: kept.append(bytes(100)))
    LIBC.malloc.restype = ctypes.c_void_p
    if TELLS:
        assert leaks(lambda: LIBC.malloc(64) and None)
