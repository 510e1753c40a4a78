"""What one sample of a stall costs, all of it: CPU time of the watchdog's thread for each look at a late turn.

The frames and the task, every clock and file of the evidence, where another thread holds the GIL that one's
frames too, and the watchdog's share of waking up. A thread that runs is looked at four times in quick
succession, to tell Python from C, which the watchdog mostly sleeps through. Nothing of this is on the loop's
thread.

    python benchmarks/sample.py [--short]
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable

from common import begin, parser, share, spread, verdict

import loopwatch

REPEATS = 20
SECONDS = 0.5
REACH_US = 150
ITEMS = list(range(3_000_000))


def compute() -> None:
    until = time.monotonic() + SECONDS
    total = 0
    while time.monotonic() < until:
        total += sum(i * i for i in range(100))


def digest() -> None:
    until = time.monotonic() + SECONDS
    data = bytes(60_000_000)
    while time.monotonic() < until:
        hashlib.sha256(data).digest()


def wait_for_a_holder() -> None:
    thread = threading.Thread(target=json.dumps, args=(ITEMS,))
    thread.start()
    thread.join()


STALLS: dict[str, Callable[[], object]] = {
    "in time.sleep": lambda: time.sleep(SECONDS),
    "running Python": compute,
    "running C, no GIL": digest,
    "another has the GIL": wait_for_a_holder,
}


def measure(name: str, block: Callable[[], object], depth: int, repeats: int) -> None:
    costs: list[float] = []
    loop = asyncio.SelectorEventLoop()

    def deep(levels: int) -> object:
        return deep(levels - 1) if levels else block()

    async def main(watch: loopwatch.Watch) -> None:
        for _ in range(repeats):
            await asyncio.sleep(0.1)
            before = watch.stats()
            deep(depth)
            await asyncio.sleep(0.1)
            after = watch.stats()
            samples = after["samples"] - before["samples"]
            costs.append((after["watchdog_cpu_time"] - before["watchdog_cpu_time"]) / samples * 1e6)

    with loopwatch.install(loop, log=False, hang_after=None) as watch:
        loop.run_until_complete(main(watch))
    loop.close()
    met = spread(costs).median <= REACH_US
    print(f"{name:<20}  {spread(costs).text(0)} us a sample, p95 {share(costs, 0.95):.0f}: {verdict(met)}")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--depth", type=int, default=30, help="own frames on the stack")
    args = begin(arguments)
    print(f"{args.depth} frames below the loop's own, threshold 100 ms")
    for name, block in STALLS.items():
        measure(name, block, args.depth, 3 if args.short else REPEATS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
