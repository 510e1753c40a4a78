"""E8: what the start-up heap costs each full collection, and what freezing it saves.

A program loads 1.5 million objects and then serves: each turn makes objects that live for a while, as requests do,
so the collector comes by itself. Once as it is, once after `loopwatch.freeze_startup()`; each in a process of its
own. The pauses are measured by the program (a clock in gc.callbacks) and told by loopwatch (`gc_pauses()`,
and the stalls that it reports).

    python benchmarks/experiments/e8_gc.py [--short]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import apart, begin, parser, verdict

import loopwatch

HEAP, SHORT_HEAP = 1_500_000, 150_000
TURNS, MADE, KEPT_TURNS = 300, 5000, 40
THRESHOLD = 0.05
PUBLISHED = {"as it is": "155 (3.14), 145 (3.12)", "frozen": "under 1 (3.14), 59 (3.12)"}


class Pauses:
    """The program's own clock."""

    def __init__(self) -> None:
        self.worst = self.worst_cpu = self._began = self._began_cpu = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began, self._began_cpu = time.perf_counter(), time.thread_time()
        else:
            self.worst = max(self.worst, time.perf_counter() - self._began)
            self.worst_cpu = max(self.worst_cpu, time.thread_time() - self._began_cpu)


async def serve(turns: int) -> None:
    living = deque[list[list[int]]](maxlen=KEPT_TURNS)
    for _ in range(turns):
        living.append([[number] for number in range(MADE)])
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


def arm(frozen: bool, objects: int, turns: int) -> dict[str, object]:
    heap = [[number] for number in range(objects)]
    result = loopwatch.freeze_startup() if frozen else None
    own, stalls = Pauses(), list[loopwatch.Stall]()
    gc.callbacks.append(own)
    loopwatch.run(serve(turns), log=False, dump_to=False, threshold=THRESHOLD, on_stall=stalls.append)
    gc.callbacks.remove(own)
    told = loopwatch.gc_pauses()
    blamed = [stall.duration for stall in stalls if (stall.evidence.gc_time or 0.0) >= stall.duration / 2]
    return {
        "objects": len(heap),
        "freeze": [result.frozen, result.pause_before, result.pause_after] if result else None,
        "worst": own.worst,
        "worst CPU": own.worst_cpu,
        "told": [[row.count, row.seconds, row.worst] for row in told],
        "stalls": [len(blamed), max(blamed, default=0.0)],
    }


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--arm", nargs=3, type=int, help=argparse.SUPPRESS)
    early = arguments.parse_args()
    if early.arm:
        frozen, objects, turns = early.arm
        print(json.dumps(arm(bool(frozen), objects, turns)))
        return 0
    args = begin(arguments)
    objects, turns = (SHORT_HEAP, 60) if args.short else (HEAP, TURNS)
    worst, cpu, said = {}, {}, {}
    print(f"a heap of {objects} objects; worst pause, ms")
    print(
        f"  {'':10}{'published':>28}{'CPU':>9}{'wall':>9}{'gc_pauses()':>13}   by generation, count: worst; stalls"
    )
    for frozen, name in enumerate(PUBLISHED):
        done = apart("--arm", frozen, objects, turns)
        worst[name], cpu[name] = done["worst"] * 1e3, done["worst CPU"] * 1e3
        said[name] = max(row[2] for row in done["told"]) * 1e3
        rows = ", ".join(f"{count}: {longest * 1e3:.1f}" for count, _, longest in done["told"])
        number, longest = done["stalls"]
        print(
            f"  {name:10}{PUBLISHED[name]:>28}{cpu[name]:9.1f}{worst[name]:9.1f}{said[name]:13.1f}   {rows}; "
            f"{number}, longest {longest * 1e3:.0f}"
        )
        if done["freeze"]:
            known, before, after = done["freeze"]
            print(
                f"  freeze_startup(): {known} objects frozen; a full collection took {before * 1e3:.1f} ms before, "
                f"{after * 1e3:.3f} ms after"
            )
    right = all(abs(said[name] - worst[name]) <= max(1.0, 0.1 * worst[name]) for name in PUBLISHED)
    print(f"loopwatch's worst is the program's, within 10 % or 1 ms: {verdict(right)}")
    print(f"frozen, the worst is at most half: {verdict(cpu['frozen'] <= cpu['as it is'] / 2)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
