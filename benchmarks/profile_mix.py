"""How right the profile is, and what it costs: a mix whose shares are known.

Three functions block the loop in turns of 1 to 20 ms, in random order: 60 % of the time goes to one, 30 % to
the second, 10 % to the third. Each share must be met within 3 points after 240 s; the watchdog may take 0.2 %
of one core for it; and the loop must get through as much work as without the profile, in pairs of runs.

    python benchmarks/profile_mix.py [--short] [--seconds 240]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from typing import NamedTuple

from common import apart, begin, loops, parser, spread, verdict

import loopwatch

SHARES = {"a": 0.6, "b": 0.3, "c": 0.1}
SHORTEST, LONGEST = 0.001, 0.020
REACH_POINTS, REACH_CPU = 3.0, 0.2
HERTZ = 20.0
PAIRS, SECONDS_EACH = 12, 4.0


# Three bodies: the profile blames the innermost function of the program.


def a(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(100):
            pass


def b(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(100):
            pass


def c(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(100):
            pass


BLOCKS = {"a": a, "b": b, "c": c}


class Truth(NamedTuple):
    busy: float
    spent: dict[str, float]


async def mix(busy_seconds: float) -> Truth:
    """Blocks of equal length on average, so the chance of each is its share."""
    generator = random.Random(1)
    spent = dict.fromkeys(SHARES, 0.0)
    busy = 0.0
    while busy < busy_seconds:
        name = generator.choices(list(SHARES), list(SHARES.values()))[0]
        began = time.perf_counter()
        BLOCKS[name](generator.uniform(SHORTEST, LONGEST))
        took = time.perf_counter() - began
        spent[name] += took
        busy += took
        await asyncio.sleep(0)
    return Truth(busy, spent)


async def work(seconds: float) -> int:
    """Turns of 0.2 ms of computing: how many fit."""
    end, n = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        sum(number ^ 3 for number in range(3000))
        n += 1
        await asyncio.sleep(0)
    return n


def throughput(hertz: float, seconds: float) -> float:
    """Turns in a second of the process's CPU time, in this process."""
    loop = asyncio.SelectorEventLoop()
    with loopwatch.install(loop, log=False, profile_hz=hertz):
        loop.run_until_complete(work(0.2))
        began, cpu = time.perf_counter(), time.process_time()
        n = loop.run_until_complete(work(seconds))
        cpu, took = time.process_time() - cpu, time.perf_counter() - began
    loop.close()
    return n / cpu if cpu else n / took


def shares(name: str, seconds: float) -> None:
    loop = loops.new(name)
    with loopwatch.install(loop, log=False, profile_hz=HERTZ) as watch:
        loop.run_until_complete(mix(min(5.0, seconds / 10)))
        before, earlier, began = watch.stats(), watch.profile, time.perf_counter()
        truth = loop.run_until_complete(mix(seconds))
        profile = watch.profile - earlier
        after, took = watch.stats(), time.perf_counter() - began
        slow = watch.slow_turns
    loop.close()
    rows = {row.frame.qualname: row for row in profile if row.frame is not None}
    off = {}
    for block in SHARES:
        seen = 100 * rows[block].share if block in rows else 0.0
        true = 100 * truth.spent[block] / truth.busy
        off[block] = seen - true
        print(f"{name:8} {block}: {seen:.2f} % of {true:.2f} %, off by {seen - true:+.2f} points")
    worst = max(abs(points) for points in off.values())
    print(f"{name:8} worst share off by {worst:.2f} points: {verdict(worst <= REACH_POINTS)}")
    cpu = after["watchdog_cpu_time"] - before["watchdog_cpu_time"]
    wakeups = after["watchdog_wakeups"] - before["watchdog_wakeups"]
    print(
        f"{name:8} busy {truth.busy:.1f} s, profile {profile.seconds:.1f} s in {profile.samples} samples, "
        f"slow turns {slow.samples}"
    )
    print(
        f"{name:8} watchdog {100 * cpu / took:.3f} % of one core, {wakeups / took:.0f} wake-ups a second, "
        f"{1e6 * cpu / wakeups:.1f} us each: {verdict(100 * cpu / took <= REACH_CPU)}"
    )


def compare(n: int, seconds: float) -> None:
    ratios = []
    for i in range(n):
        order = [0.0, HERTZ] if i % 2 else [HERTZ, 0.0]
        got = {hertz: float(apart("--child", hertz, "--seconds", seconds)) for hertz in order}
        ratios.append(got[HERTZ] / got[0.0])
    noise = spread(ratios)
    met = noise.low <= 1.0 <= noise.high or noise.median >= 0.998
    print(
        f"asyncio  turns by CPU time, ratio of {HERTZ:g} Hz to none: {noise.text()}, {n} pairs: {verdict(met)}"
    )


def main() -> int:
    arguments = parser(__doc__)
    loops.add_argument(arguments)
    arguments.add_argument("--seconds", type=float, default=240.0)
    arguments.add_argument("--child", type=float, help=argparse.SUPPRESS)
    early = arguments.parse_args()
    if early.child is not None:
        print(json.dumps(throughput(early.child, early.seconds)))
        return 0
    args = begin(arguments)
    for name in loops.wanted(args):
        shares(name, 4.0 if args.short else args.seconds)
    compare(1 if args.short else PAIRS, 0.5 if args.short else SECONDS_EACH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
