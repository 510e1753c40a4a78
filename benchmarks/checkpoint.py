"""What `await loopwatch.checkpoint()` costs where nothing is due, and how long others wait where it is.

Cost: blocks of checkpoints and of bare `asyncio.sleep(0)` in the same loop, in pairs, CPU time of the thread. The
loop that awaits them is part of both, and counts. Beside it, an item of `paced()` to one of a plain `for` loop.

Lag: one task and three that work in items of a known length, beside one that only wants its turn; how long that
one waits between two turns, by the thread's CPU clock, so that what the machine takes is not counted. Budget, one item
and 1 ms are allowed; each further task in a turn may have one item before it looks.

    python benchmarks/checkpoint.py [--short] [--loop uvloop]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterable

from common import Cost, apart, begin, interval, loops, pairs, parser, spread, verdict

import loopwatch

BLOCK = 5000
PROCESSES, PAIRS, WARM_PAIRS = 4, 30, 5
FIFTH = 0.2
FAR = 1e6  # a budget that no turn uses up
BUDGET, SLACK = 0.002, 0.001
ITEMS, ITEM_LOOPS = 1500, 4000


# --- the cost where nothing is due --------------------------------------------------------------------------


async def sleeps(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def checkpoints(n: int) -> None:
    for _ in range(n):
        await loopwatch.checkpoint(FAR)


async def plain_items(n: int) -> None:
    for _ in range(n):
        pass


async def numbers(n: int) -> AsyncIterable[int]:
    for i in range(n):
        yield i


async def paced_items(n: int) -> None:
    async for _ in loopwatch.paced(range(n), FAR):
        pass


async def paced_async_items(n: int) -> None:
    async for _ in loopwatch.paced(numbers(n), FAR):
        pass


async def async_items(n: int) -> None:
    async for _ in numbers(n):
        pass


ARMS = {
    "checkpoint": (sleeps, checkpoints),
    "paced": (plain_items, paced_items),
    "paced, async": (async_items, paced_async_items),
}


def measure(name: str, arm: str, count: int, block: int, watched: bool) -> list[tuple[Cost, Cost]]:
    loop = loops.new(name)
    if watched:
        loopwatch.install(loop, log=False, dump_to=False)
    first, second = ARMS[arm]
    gc.collect()
    gc.freeze()
    try:
        for n in (WARM_PAIRS, count):
            found = pairs(
                n,
                lambda: loop.run_until_complete(first(block)),
                lambda: loop.run_until_complete(second(block)),
            )
        return found
    finally:
        loop.close()


def report_cost(name: str, args: argparse.Namespace) -> None:
    processes, count, block = (1, 5, 500) if args.short else (PROCESSES, PAIRS, BLOCK)
    for arm in ARMS:
        for watched in (0, 1):
            found: list[tuple[Cost, Cost]] = []
            for _ in range(processes):
                answer = apart("--loop", name, "--arm", arm, "--child", count, block, watched)
                found += [(Cost(*a), Cost(*b)) for a, b in answer]
            each = spread([b.thread / block for _, b in found])
            beside = spread([a.thread / block for a, _ in found])
            line = (
                f"  {arm:13} {'watched' if watched else 'not':8} {each.text(0)} ns, beside {beside.text(0)}"
            )
            if arm == "checkpoint":
                ratios = [b.thread / a.thread for a, b in found]
                low, high = interval(ratios)
                met = verdict(spread(ratios).median <= FIFTH)
                line += f": {spread(ratios).text()}, 95 % interval {low:.3f} to {high:.3f}: {met}"
            print(line, flush=True)


# --- how long others wait -----------------------------------------------------------------------------------


def item() -> None:
    for _ in range(ITEM_LOOPS):
        pass


async def worker(n: int) -> None:
    for _ in range(n):
        item()
        await loopwatch.checkpoint(BUDGET)


async def wait_turns(gaps: list[tuple[float, float]], until: asyncio.Event) -> None:
    """(by the thread's CPU clock, by the wall clock)"""
    while not until.is_set():
        cpu, wall = time.thread_time(), time.perf_counter()
        await asyncio.sleep(0)
        gaps.append((time.thread_time() - cpu, time.perf_counter() - wall))


async def others(tasks: int, n: int) -> list[tuple[float, float]]:
    gaps, over = list[tuple[float, float]](), asyncio.Event()
    waiting = asyncio.create_task(wait_turns(gaps, over))
    await asyncio.gather(*(worker(n) for _ in range(tasks)))
    over.set()
    await waiting
    return gaps


def item_seconds() -> float:
    times = []
    for _ in range(50):
        began = time.thread_time()
        item()
        times.append(time.thread_time() - began)
    return sorted(times)[45]


def report_lag(name: str, args: argparse.Namespace) -> None:
    n = 100 if args.short else ITEMS
    for tasks in (1, 3):
        for watched in (False, True):
            loop = loops.new(name)
            watch = loopwatch.install(loop, log=False, dump_to=False) if watched else None
            one = item_seconds()
            gaps = loop.run_until_complete(others(tasks, n))
            cpu, wall = (max(column) for column in zip(*gaps, strict=True))
            lag = watch.lag if watch else None
            loop.close()
            print(
                f"  {tasks} task{'s' if tasks > 1 else ' '} {'watched' if watched else 'not':8} "
                f"items of {one * 1e3:.2f} ms, {len(gaps)} turns: others waited {cpu * 1e3:.2f} ms of CPU "
                f"at most ({wall * 1e3:.2f} by the wall clock)"
                + (f": {verdict(cpu <= BUDGET + one + SLACK)}" if watched or tasks == 1 else "")
            )
            if lag:
                print(
                    f"    loopwatch: worst turn {lag.max * 1e3:.2f} ms, median {lag.quantile(0.5) * 1e3:.2f}"
                )
    sys.stdout.flush()


def main() -> int:
    arguments = parser(__doc__)
    loops.add_argument(arguments)
    arguments.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    arguments.add_argument("--child", nargs=3, type=int, help=argparse.SUPPRESS)
    early = arguments.parse_args()
    if early.child:
        count, block, watched = early.child
        print(json.dumps(measure(early.loop, early.arm, count, block, bool(watched))))
        return 0
    args = begin(arguments)
    for name in loops.wanted(args):
        print(f"{name}: nothing due, each")
        report_cost(name, args)
        print(f"{name}: a budget of {BUDGET * 1e3:.0f} ms")
        report_lag(name, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
