"""What a watched turn of the loop costs: `await asyncio.sleep(0)`, CPU time, watched to unwatched.

Two loops in one process, one of them watched, run blocks of turns alternately; in every other process the
watched one is made first. The ratio counts the loop's thread; the second one the whole process, the
watchdog included.

    python benchmarks/turns.py [--short] [--loop uvloop] [--null]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys

from common import Cost, apart, begin, interval, loops, pairs, parser, spread, verdict

import loopwatch

BLOCK = 5000
PROCESSES, PAIRS = 8, 30  # pairs of each process
WARM_PAIRS = 5
REACH = {"asyncio": 1.02, "uvloop": 1.03}  # 1.00 and 0.02 of noise; 1.03


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


def measure(name: str, count: int, block: int, watched_first: bool, null: bool) -> list[tuple[Cost, Cost]]:
    """Pairs of (unwatched, watched), in this process."""
    made = [loops.new(name), loops.new(name)]
    plain, watched = reversed(made) if watched_first else made
    if not null:
        loopwatch.install(watched, log=False)
    gc.collect()
    gc.freeze()

    def run_plain() -> None:
        plain.run_until_complete(turns(block))

    def run_watched() -> None:
        watched.run_until_complete(turns(block))

    try:
        pairs(WARM_PAIRS, run_plain, run_watched)
        return pairs(count, run_plain, run_watched)
    finally:
        plain.close()
        watched.close()


def report(name: str, args: argparse.Namespace) -> None:
    processes, count, block = (2, 5, 500) if args.short else (PROCESSES, PAIRS, BLOCK)
    options = ["--loop", name, *(["--null"] if args.null else [])]
    found: list[tuple[Cost, Cost]] = []
    for i in range(processes):
        found += [(Cost(*a), Cost(*b)) for a, b in apart(*options, "--child", count, block, i % 2)]
    ratios = [watched.thread / plain.thread for plain, watched in found]
    low, high = interval(ratios)
    print(f"{name}, {len(found)} pairs of blocks of {block} turns, {processes} processes")
    print(f"  an unwatched turn   {spread([plain.thread / block for plain, _ in found]).text(0)} ns of CPU")
    print(
        f"  the loop's thread   {spread(ratios).text()} watched to unwatched, "
        f"95 % interval {low:.3f} to {high:.3f}: {verdict(spread(ratios).median <= REACH[name])}"
    )
    more = [(watched.thread - plain.thread) / block for plain, watched in found]
    print(f"  that is             {spread(more).text(0)} ns more a turn")
    whole = [watched.process / plain.process for plain, watched in found]
    print(f"  the whole process   {spread(whole).text()}", flush=True)


def main() -> int:
    arguments = parser(__doc__)
    loops.add_argument(arguments)
    arguments.add_argument("--null", action="store_true", help="watch neither: what the method itself shows")
    arguments.add_argument("--child", nargs=3, type=int, help=argparse.SUPPRESS)
    early = arguments.parse_args()
    if early.child:
        count, block, watched_first = early.child
        print(json.dumps(measure(early.loop, count, block, bool(watched_first), early.null)))
        return 0
    args = begin(arguments)
    for name in loops.wanted(args):
        report(name, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
