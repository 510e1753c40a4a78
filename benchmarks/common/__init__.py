"""What the benchmarks share: their arguments, what they say of the machine, pairs and their spread.

Two arms are compared in pairs that follow each other at once, the order within a pair changing, so that
what a shared machine does to one it does to the other. A ratio is taken within each pair; its median is the
figure, its quartiles the spread. CPU time, not wall time, unless a program says otherwise. Where objects
lie in memory moves a ratio by some percent for the whole life of a process, so the pairs come from several
processes.

glibc raises its threshold for mmap when a large block is freed, so that an arm pays for what the one before
it did: each program runs itself again with the threshold pinned.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import loopwatch

PINNED = {"MALLOC_MMAP_THRESHOLD_": "131072", "PYTHONHASHSEED": "0"}
RESAMPLES = 4000


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--short", action="store_true", help="a smoke test: figures too coarse to quote")
    return made


def begin(arguments: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, in a process whose allocator is pinned, after a heading: where and how this was run."""
    parsed = arguments.parse_args()
    if any(os.environ.get(name) != value for name, value in PINNED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | PINNED)
    command = " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    print(f"$ {command}")
    print(f"CPython {platform.python_version()}{free_threaded()}, loopwatch {loopwatch.__version__}")
    print(f"{processor()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, load {load}")
    if parsed.short:
        print("short: too coarse to quote")
    print(flush=True)
    return parsed


def apart(*arguments: object) -> Any:
    """What this program prints, as JSON, in a process of its own with other arguments."""
    command = [sys.executable, sys.argv[0], *map(str, arguments)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def free_threaded() -> str:
    return "" if getattr(sys, "_is_gil_enabled", lambda: True)() else " free-threaded"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


# --- two arms -----------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """Nanoseconds."""

    thread: int
    """CPU time of the thread that ran it."""
    process: int
    """CPU time of the process: the watchdog's and the reporter's too."""


def cost_of(work: Callable[[], object]) -> Cost:
    thread, process = time.thread_time_ns(), time.process_time_ns()
    work()
    return Cost(time.thread_time_ns() - thread, time.process_time_ns() - process)


def pairs(n: int, plain: Callable[[], object], watched: Callable[[], object]) -> list[tuple[Cost, Cost]]:
    """n times (cost of plain, cost of watched)."""
    costs = []
    for i in range(n):
        if i % 2:
            second, first = cost_of(watched), cost_of(plain)
        else:
            first, second = cost_of(plain), cost_of(watched)
        costs.append((first, second))
    return costs


# --- figures ------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    low: float
    """First quartile."""
    median: float
    high: float
    """Third quartile."""

    def text(self, digits: int = 3) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    return (
        Spread(*statistics.quantiles(values, n=4, method="inclusive"))
        if len(values) > 1
        else Spread(*values * 3)
    )


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Of the median, by resampling the pairs."""
    generator = random.Random(1)
    medians = sorted(statistics.median(generator.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = round(RESAMPLES * (1 - confidence) / 2)
    return medians[tail], medians[-1 - tail]


def share(values: Sequence[float], q: float) -> float:
    """The value that a share q of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def verdict(met: bool) -> str:
    if "--short" in sys.argv:
        return "not judged"
    return "reached" if met else "MISSED"
