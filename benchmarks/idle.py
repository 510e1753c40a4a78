"""What an idle process pays: CPU time and context switches of all its threads, beyond an unwatched one.

Four processes side by side, each with one loop that waits: asyncio and uvloop, watched and not.

    python benchmarks/idle.py [--short] [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from common import begin, loops, parser, verdict

import loopwatch

REPEATS = 9
SETTLE = 1.0
REACH = {"asyncio": (2.0, 10), "uvloop": (4.0, 120)}  # milliseconds of CPU, context switches, in 10 s


class Usage(NamedTuple):
    cpu_ms: float
    switches: int


def usage() -> Usage:
    """Of every thread of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Usage(time.process_time() * 1e3, used.ru_nvcsw + used.ru_nivcsw)


async def idle(seconds: float) -> Usage:
    await asyncio.sleep(SETTLE)
    before = usage()
    await asyncio.sleep(seconds)
    after = usage()
    return Usage(after.cpu_ms - before.cpu_ms, after.switches - before.switches)


def child(name: str, seconds: float, watched: bool) -> None:
    loop = loops.new(name)
    if watched:
        loopwatch.install(loop, log=False)
    print(json.dumps(loop.run_until_complete(idle(seconds))))
    loop.close()


def side_by_side(names: list[str], seconds: float) -> dict[str, tuple[Usage, Usage]]:
    """By loop (unwatched, watched)."""
    begun = {
        (name, watched): subprocess.Popen(
            [sys.executable, __file__, "--loop", name, "--child", str(watched), "--seconds", str(seconds)],
            stdout=subprocess.PIPE,
            env=os.environ,
        )
        for name in names
        for watched in (0, 1)
    }
    ended = {key: Usage(*json.loads(process.communicate()[0])) for key, process in begun.items()}
    return {name: (ended[name, 0], ended[name, 1]) for name in names}


def main() -> int:
    arguments = parser(__doc__)
    loops.add_argument(arguments)
    arguments.add_argument("--seconds", type=float, default=10.0)
    arguments.add_argument("--child", type=int, help=argparse.SUPPRESS)
    early = arguments.parse_args()
    if early.child is not None:
        child(early.loop, early.seconds, bool(early.child))
        return 0
    args = begin(arguments)
    seconds, repeats = (1.0, 1) if args.short else (args.seconds, REPEATS)
    names = loops.wanted(args)
    rounds = [side_by_side(names, seconds) for _ in range(repeats)]
    print(f"{seconds:g} s, {repeats} times")
    for name in names:
        cpu = [watched.cpu_ms - plain.cpu_ms for plain, watched in (each[name] for each in rounds)]
        switches = [watched.switches - plain.switches for plain, watched in (each[name] for each in rounds)]
        most_ms, most = REACH[name]
        met = statistics.median(cpu) <= most_ms and statistics.median(switches) <= most
        print(
            f"{name:8} watched beyond unwatched: "
            f"CPU {statistics.median(cpu):.2f} ms ({min(cpu):.2f} to {max(cpu):.2f}), context switches "
            f"{statistics.median(switches):g} ({min(switches)} to {max(switches)}): {verdict(met)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
