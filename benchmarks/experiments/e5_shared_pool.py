"""E5: the shared pool is a limit too.

40 calls of `asyncio.to_thread`, each of which waits 200 ms. On the default executor of the 8 CPUs of the published
measurement, which has 12 threads, they take four rounds; on 40 threads one. The loop is never blocked: a probe
that sleeps 10 ms at a time is on time throughout, so whatever watches the loop alone has nothing to say. loopwatch
says that the executor is full: its workers, how many are busy, how many calls wait and how long, and what the
workers do.

    python benchmarks/experiments/e5_shared_pool.py [--short]
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import begin, parser, verdict

import loopwatch

CALLS, SECONDS, THRESHOLD, TICK = 40, 0.2, 0.1, 0.01
WIDTHS = {12: "0.80", 40: "0.21", None: ""}
"""Threads, None: the default executor of this machine; and the seconds that were published."""


@dataclass
class Run:
    """What one pool did, by the program's own clocks and by loopwatch."""

    seconds: float = 0.0
    late: float = 0.0
    """The probe's worst tick."""
    states: list[loopwatch.ExecutorState] = field(default_factory=list)
    saturations: list[loopwatch.Saturation] = field(default_factory=list)
    stalls: list[loopwatch.Stall] = field(default_factory=list)

    @property
    def fullest(self) -> loopwatch.ExecutorState:
        return max(self.states, key=lambda state: (state.queued, state.busy))

    @property
    def longest(self) -> float:
        return max(state.oldest_wait for state in self.states)


def query() -> None:
    time.sleep(SECONDS)


async def probe(run: Run, executor: loopwatch.Executor) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK)
        run.late = max(run.late, time.perf_counter() - began - TICK)
        run.states.append(executor.state())


async def call_all(run: Run, watch: loopwatch.Watch, width: int | None) -> None:
    if width is not None:
        pool = ThreadPoolExecutor(width, thread_name_prefix="asyncio")
        asyncio.get_running_loop().set_default_executor(pool)
    watch.add_saturation_callback(run.saturations.append)
    probing = asyncio.create_task(probe(run, watch.executor()))
    await asyncio.sleep(5 * TICK)
    began = time.perf_counter()
    await asyncio.gather(*(asyncio.to_thread(query) for _ in range(CALLS)))
    run.seconds = time.perf_counter() - began
    await asyncio.sleep(5 * TICK)
    probing.cancel()


def measure(width: int | None) -> Run:
    run = Run()
    with loopwatch.Runner(threshold=THRESHOLD, on_stall=run.stalls.append) as runner:
        runner.get_loop()
        assert runner.watch is not None
        runner.run(call_all(run, runner.watch, width))
        run.states.append(runner.watch.executor().state())
    return run


def right(run: Run) -> bool:
    """Full where there are fewer workers than calls, and never a stall of the program's own."""
    state, machine = run.fullest, loopwatch.Verdict.NOT_SCHEDULED
    if any(stall.verdict is not machine for stall in run.stalls):
        return False
    if state.max_workers >= CALLS:
        return not run.saturations
    full = state.busy == state.workers == state.max_workers and state.queued == CALLS - state.workers
    named = all(report.culprit and report.culprit.qualname == "query" for report in run.saturations)
    waits = (CALLS - 1) // state.max_workers * SECONDS
    return full and named and bool(run.saturations) and abs(run.longest - waits) < SECONDS


def main() -> int:
    begin(parser(__doc__))
    logging.basicConfig(format="logged: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.setFormatter(OneLine("  logged: %(message)s"))
    for width, published in WIDTHS.items():
        run = measure(width)
        state, last = run.fullest, run.states[-1]
        print(f"{CALLS} calls of {SECONDS * 1e3:.0f} ms on {width or 'the default number of'} threads")
        print(f"  seconds: {run.seconds:.2f}" + (f" (published: {published})" if published else ""))
        print(f"  the loop's worst tick: {run.late * 1e3:.1f} ms late; stalls: {len(run.stalls)}")
        print(
            f"  fullest: {state.workers} workers, {state.busy} busy, {state.queued} queued; the oldest waited "
            f"{run.longest:.2f} s at most; saturated for {last.saturated:.2f} s"
        )
        for report in run.saturations:
            print(f"  said: {report.summary}")
        print(f"  said what happened: {verdict(right(run))}\n", flush=True)
    return 0


class OneLine(logging.Formatter):
    """Without the stacks."""

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        return f"          [{len(stack_info.splitlines())} lines of details]"


if __name__ == "__main__":
    sys.exit(main())
