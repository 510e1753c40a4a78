"""E4: a watchdog that names the line.

A handler parses 4000 lines, each with a sleep of 0.1 ms: one blocked stretch of the better part of a second.
A watchdog with a heartbeat of 50 ms and a threshold of 250 ms said "blocked for 251 ms at ... parse_report",
as soon as it knew. loopwatch names the line and the whole duration, in one report, through logging.

    python benchmarks/experiments/e4_report.py [--short]
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import begin, parser, verdict

import loopwatch

LINES, PAUSE, THRESHOLD = 4000, 0.0001, 0.25


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def parse_report(lines: list[str]) -> int:
    total = 0
    for line in lines:
        total += int(line)
        time.sleep(PAUSE)
    return total


async def handle(lines: list[str]) -> float:
    await asyncio.sleep(0.05)
    began = time.perf_counter()
    parse_report(lines)
    took = time.perf_counter() - began
    await asyncio.sleep(0.05)
    return took


def main() -> int:
    begin(parser(__doc__))
    kept, stalls = Kept(), list[loopwatch.Stall]()
    logger = logging.getLogger("loopwatch")
    logger.addHandler(kept)
    logger.propagate = False
    lines = [str(number) for number in range(LINES)]
    took = loopwatch.run(handle(lines), threshold=THRESHOLD, hang_after=5.0, on_stall=stalls.append)
    reports = [record.getMessage() for record in kept.records]
    print(
        f"published: one report, blocked for 251 ms at parse_report; here it was blocked for {took * 1e3:.0f} ms"
    )
    for report in reports:
        print(f"logged: {report}")
    culprits = [stall.culprit.qualname for stall in stalls if stall.culprit]
    right = len(reports) == 1 and culprits == ["parse_report"]
    right = right and abs(stalls[0].duration - took) <= 0.01
    print(f"one report, its function, the whole duration: {verdict(right)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
