"""loopwatch side by side with what else there is: what each adds to a turn of `await asyncio.sleep(0)`.

    loopwatch          installed, log off
    debug mode         loop.set_debug(True): names a slow callback once it is over
    python watchdog    a thread that looks every 50 ms whether the loop's heartbeat (call_later) is late, and
                       would then take sys._current_frames(): what many libraries and services have
    faulthandler       dump_traceback_later, armed after each wait and cancelled before the next: the standard
                       library's own watchdog; it makes a thread each time

One loop for each, all in one process, run blocks of turns in alternation with an unwatched loop. Figures
are of the CPU time of the whole process, and of wall time.

    python benchmarks/alternatives.py [--short]
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from common import begin, parser, spread

import loopwatch

THRESHOLD = 0.1
TICK = 0.05
PAIRS = 60

Put = Callable[[asyncio.SelectorEventLoop, ExitStack], None]


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


# --- what is put on a loop ----------------------------------------------------------------------------------


def put_nothing(loop: asyncio.SelectorEventLoop, cleanup: ExitStack) -> None:
    """What the method itself shows."""


def put_loopwatch(loop: asyncio.SelectorEventLoop, cleanup: ExitStack) -> None:
    cleanup.enter_context(loopwatch.install(loop, threshold=THRESHOLD, log=False))


def put_debug(loop: asyncio.SelectorEventLoop, cleanup: ExitStack) -> None:  # noqa: ARG001
    loop.set_debug(True)
    loop.slow_callback_duration = THRESHOLD


def put_python_watchdog(loop: asyncio.SelectorEventLoop, cleanup: ExitStack) -> None:
    stop = threading.Event()
    last = time.monotonic()
    me = threading.get_ident()
    stacks: list[Any] = []

    def beat() -> None:
        nonlocal last
        last = time.monotonic()
        loop.call_later(TICK, beat)

    def watch() -> None:
        while not stop.wait(TICK):
            if loop.is_running() and time.monotonic() - last > THRESHOLD + TICK:
                stacks.append(sys._current_frames().get(me))
                stacks.clear()

    thread = threading.Thread(target=watch, daemon=True)
    loop.call_soon(beat)
    thread.start()
    cleanup.callback(thread.join)
    cleanup.callback(stop.set)


def put_faulthandler(loop: asyncio.SelectorEventLoop, cleanup: ExitStack) -> None:
    selector: Any = loop._selector  # type: ignore[attr-defined]
    original = selector.select

    def select(timeout: float | None = None) -> Any:
        faulthandler.cancel_dump_traceback_later()
        events = original(timeout)
        faulthandler.dump_traceback_later(THRESHOLD)
        return events

    selector.select = select
    cleanup.callback(faulthandler.cancel_dump_traceback_later)


ARMS: dict[str, tuple[Put, int]] = {  # name: (what to put, turns of a block)
    "loopwatch": (put_loopwatch, 5000),
    "debug mode": (put_debug, 2000),
    "python watchdog": (put_python_watchdog, 5000),
    "faulthandler": (put_faulthandler, 200),
}


# --- measuring ----------------------------------------------------------------------------------------------


def block(loop: asyncio.SelectorEventLoop, n: int) -> tuple[float, float]:
    """(CPU, wall) microseconds a turn."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    loop.run_until_complete(turns(n))
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    faulthandler.cancel_dump_traceback_later()
    return cpu / n / 1e3, wall / n / 1e3


def measure(put: Put, n: int, count: int) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Pairs of (unwatched, watched)."""
    plain, watched = asyncio.SelectorEventLoop(), asyncio.SelectorEventLoop()
    found = []
    with ExitStack() as cleanup:
        cleanup.callback(plain.close)
        cleanup.callback(watched.close)
        put(watched, cleanup)
        gc.collect()
        for i in range(-3, count):
            if i % 2:
                after, before = block(watched, n), block(plain, n)
            else:
                before, after = block(plain, n), block(watched, n)
            if i >= 0:
                found.append((before, after))
    return found


def main() -> int:
    args = begin(parser(__doc__))
    print(f"{'':18}{'CPU, ratio to unwatched':>30}{'added us a turn: CPU':>24}{'wall':>10}")
    for name, (put, n) in {"nothing": (put_nothing, 5000), **ARMS}.items():
        n, count = (n // 10, 9) if args.short else (n, PAIRS)
        found = measure(put, n, count)
        ratio = spread([watched[0] / plain[0] for plain, watched in found])
        cpu = spread([watched[0] - plain[0] for plain, watched in found])
        wall = spread([watched[1] - plain[1] for plain, watched in found])
        print(f"{name:18}{ratio.text():>30}{cpu.median:24.3f}{wall.median:10.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
