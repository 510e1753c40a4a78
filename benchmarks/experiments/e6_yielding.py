"""E6: how often to yield.

40,000 units of about 3 us in one task, beside a task that wants to run every millisecond. A yield after each unit
costs half as much again as the work; none blocks the loop for all of it; every so many is a guess at what a unit
costs. `loopwatch.checkpoint()` yields by elapsed time, so the lag stays near its budget whatever a unit costs,
and the total near that of never.

Total and worst are CPU time of the loop's thread, so that what a busy machine takes is not counted: worst is what
the thread did between two turns of the other task, less the millisecond that this one slept. On a machine of its
own that is the wall clock's figure.

    python benchmarks/experiments/e6_yielding.py [--short]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import begin, parser, verdict

import loopwatch

UNITS, UNIT_SECONDS = 40_000, 3e-6
TICK, BUDGET = 0.001, 0.002
RUNS = 5
PUBLISHED = {"never": "127.5 / 127.6", "every 1": "187.4 / 0.9", "every 10": "143.8 / 0.9"}
PUBLISHED |= {"every 100": "132.7 / 1.2", "every 1000": "135.2 / 11.5"}


# --- the work -----------------------------------------------------------------------------------------------


def unit(loops: int) -> int:
    total = 0
    for number in range(loops):
        total += number
    return total


def loops_of_a_unit() -> int:
    """How many make about 3 us here."""
    loops, best = 60, 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            unit(loops)
        best = min(best, (time.perf_counter() - began) / 100)
    return max(1, round(loops * UNIT_SECONDS / best))


def every(n: int) -> Callable[[int, int], Coroutine[None, None, None]]:
    async def work(units: int, loops: int) -> None:
        for number in range(1, units + 1):
            unit(loops)
            if n and number % n == 0:
                await asyncio.sleep(0)

    return work


async def by_hand(units: int, loops: int) -> None:
    """The budgeted yield in Python."""
    since = time.perf_counter()
    for _ in range(units):
        unit(loops)
        if time.perf_counter() - since >= BUDGET:
            await asyncio.sleep(0)
            since = time.perf_counter()


async def checkpointed(units: int, loops: int) -> None:
    for _ in range(units):
        unit(loops)
        await loopwatch.checkpoint(BUDGET)


async def paced(units: int, loops: int) -> None:
    async for _ in loopwatch.paced(range(units), BUDGET):
        unit(loops)


VARIANTS = {
    "never": every(0),
    "every 1": every(1),
    "every 10": every(10),
    "every 100": every(100),
    "every 1000": every(1000),
    "2 ms, in Python": by_hand,
    "checkpoint()": checkpointed,
    "paced()": paced,
}


# --- one run ------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Milliseconds."""

    total: float
    worst: float
    """How late the other task was at most, by the thread's CPU clock."""
    wall: float
    """The same by the wall clock."""
    lag: float
    """watch.lag.max: loopwatch's account of it."""
    block: float
    """The whole work by the wall clock."""


async def beside(work: Coroutine[None, None, None]) -> tuple[float, float, float, float]:
    """(total, worst) by the CPU clock, (worst, total) by the wall clock."""
    late, late_wall, running = [0.0], [0.0], True

    async def tick() -> None:
        while running:
            cpu, wall = time.thread_time(), time.perf_counter()
            await asyncio.sleep(TICK)
            late.append(time.thread_time() - cpu - TICK)
            late_wall.append(time.perf_counter() - wall - TICK)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(2 * TICK)
    cpu, wall = time.thread_time(), time.perf_counter()
    await work
    total, total_wall = time.thread_time() - cpu, time.perf_counter() - wall
    running = False
    await ticking
    return total, max(late), max(late_wall), total_wall


def run(name: str, units: int, loops: int) -> Run:
    with loopwatch.Runner(log=False, dump_to=False, threshold=0.05) as runner:
        total, worst, wall, block = runner.run(beside(VARIANTS[name](units, loops)))
        assert runner.watch is not None
        lag = runner.watch.lag
    return Run(total * 1e3, worst * 1e3, wall * 1e3, lag.max * 1e3, block * 1e3)


def cancelled_within(loops: int) -> float:
    """Milliseconds from the cancellation to its landing."""
    landed: list[float] = []

    async def endless() -> None:
        try:
            while True:
                unit(loops)
                await loopwatch.checkpoint(BUDGET)
        finally:
            landed.append(time.perf_counter())

    async def main() -> float:
        task = asyncio.create_task(endless())
        await asyncio.sleep(0.01)
        asked = time.perf_counter()
        task.cancel()
        await asyncio.wait([task])
        return landed[0] - asked

    return loopwatch.run(main(), log=False, dump_to=False) * 1e3


def main() -> int:
    args = begin(parser(__doc__))
    units, runs = (4000, 1) if args.short else (UNITS, RUNS)
    loops = loops_of_a_unit()
    print(f"{units} units; total and worst lag, ms; the median run of {runs} by its total")
    print(f"  {'yield':18}{'published':>16}{'total':>9}{'worst':>9}{'by the wall':>13}{'watch.lag.max':>15}")
    best: dict[str, Run] = {}
    for name in VARIANTS:
        made = sorted(run(name, units, loops) for _ in range(runs))
        best[name] = done = made[runs // 2]
        print(
            f"  {name:18}{PUBLISHED.get(name, ''):>16}{done.total:9.1f}{done.worst:9.2f}{done.wall:13.2f}"
            f"{done.lag:15.2f}",
            flush=True,
        )
    never, check = best["never"], best["checkpoint()"]
    landed = min(cancelled_within(loops) for _ in range(5))
    print(f"a cancellation landed after {landed:.2f} ms")
    print(f"checkpoint(): lag within the budget and 1 ms: {verdict(check.worst <= BUDGET * 1e3 + 1)}")
    added, each = check.total - never.total, best["every 1"].total - never.total
    print(f"it adds at most a fifth of what a yield after each adds: {verdict(added <= each / 5)}")
    print(f"loopwatch saw the block of never: {verdict(never.lag >= 0.9 * never.block)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
