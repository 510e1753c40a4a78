"""What a scrape by Prometheus costs: python benchmarks/scrape.py [--short].

A loop whose turns are spread over three decades is watched; then the collector is read, as a scrape does, and the
page is made of it by prometheus_client. CPU time of the thread, median and worst, at growing numbers of histogram
buckets in use: those are what a scrape has to look at.
"""

import asyncio
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable

import prometheus_client

import loopwatch
from loopwatch import prometheus

TURNS = (100, 1000, 10_000)
SCRAPES = 200


def cpu_ms(call: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(SCRAPES):
        began = time.thread_time()
        call()
        taken.append((time.thread_time() - began) * 1e3)
    return taken


async def turns(count: int, chance: random.Random) -> None:
    for _ in range(count):
        end = time.perf_counter() + 10 ** chance.uniform(-5.5, -2.5)
        while time.perf_counter() < end:
            pass
        await asyncio.sleep(0)


async def main() -> None:
    registry = prometheus_client.CollectorRegistry()
    collector = prometheus.collector(registry)
    chance = random.Random(1)
    with loopwatch.install(log=False) as watch:
        for count in TURNS[:2] if "--short" in sys.argv else TURNS:
            await turns(count, chance)
            read, page = cpu_ms(lambda: list(collector.collect())), cpu_ms(lambda: registry_page(registry))
            print(
                f"| {count} more turns, {len(watch.lag.buckets)} buckets "
                f"| {statistics.median(read):.2f} ms, worst {max(read):.2f} "
                f"| {statistics.median(page):.2f} ms, worst {max(page):.2f} |"
            )
    collector.close()


def registry_page(registry: prometheus_client.CollectorRegistry) -> bytes:
    return prometheus_client.generate_latest(registry)


if __name__ == "__main__":
    print(f"CPython {platform.python_version()}, prometheus_client, {SCRAPES} scrapes each\n")
    print("| after | reading | reading and making the page |\n|---|---|---|")
    asyncio.run(main())
