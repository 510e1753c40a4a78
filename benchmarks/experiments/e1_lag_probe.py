"""E1: a lag probe beside 5 x 200 ms of blocking work, done in six ways.

A task sleeps 10 ms at a time and records how late it wakes. The five rounds of work have nothing between them that
suspends, so on the loop they are one stall of a second, not five; the probe's median hides it, since it saw one tick
where a hundred were due. In a thread, Python code shares the GIL: each turn waits for the switch interval of 5 ms.
A process or an interpreter with a GIL of its own leaves the loop alone.

loopwatch must show one stall and its line for work on the loop, none for work elsewhere, and for Python code in a
thread a wait for the GIL of about 5 ms a turn, with the worker named as its holder: seen in a second run, whose
threshold is below that wait.

    python benchmarks/experiments/e1_lag_probe.py [--short]
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import begin, free_threaded, parser, verdict

import loopwatch
from loopwatch import Stall, Verdict

ROUNDS, SECONDS, TICK = 5, 0.2, 0.01
THRESHOLD, BELOW_SWITCH = 0.1, 0.003
PUBLISHED = {
    "sleep in the loop": ("5", "0.1 / 0.2", "1000.7 / 1000.8"),
    "sleep in a thread": ("104", "0.1", "7.8 / 2.1"),
    "Python in the loop": ("5", "0.1", "1000.3 / 1000.2"),
    "Python in a thread": ("71 / 69", "5.2", "7.1 / 13.8"),
    "Python in a process pool": ("104", "0.1", "1.3 / 3.7"),
    "Python in an interpreter pool": ("104", "0.1", "1.3 / 1.0"),
}
"""Ticks, median and greatest lateness in ms, CPython 3.15 / 3.14."""


def burn(count: int) -> int:
    total = 0
    for number in range(count):
        total += number ^ 3
    return total


def pause() -> None:
    time.sleep(SECONDS)


def calibrate() -> int:
    """How many rounds of `burn` take so long, by the thread's own clock."""
    count, took = 100_000, 0.0
    while took < SECONDS / 4:
        count *= 2
        began = time.thread_time()
        burn(count)
        took = time.thread_time() - began
    return round(count * SECONDS / took)


# --- six ways to do it --------------------------------------------------------------------------------------

Work = Callable[[], Awaitable[object]]


async def sleep_here() -> None:
    pause()


async def burn_here(count: int) -> None:
    burn(count)


@dataclass(frozen=True)
class Mode:
    """One way; `pool` is warmed up before the clocks run."""

    work: Callable[[concurrent.futures.Executor | None], Work]
    pool: Callable[[], AbstractContextManager[concurrent.futures.Executor | None]] = nullcontext
    on_loop: str = ""
    """The function that blocks the loop."""


def modes(count: int) -> dict[str, Mode]:
    # The pools get source: what an interpreter runs must not be a function of this file, which imports loopwatch.
    source = f"{inspect.getsource(burn)}\nburn({count})"

    def outside(pool: concurrent.futures.Executor | None) -> Work:
        return lambda: asyncio.get_running_loop().run_in_executor(pool, exec, source, {})

    def processes() -> AbstractContextManager[concurrent.futures.Executor | None]:
        return concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    found = {
        "sleep in the loop": Mode(lambda _: sleep_here, on_loop="pause"),
        "sleep in a thread": Mode(lambda _: lambda: asyncio.to_thread(pause)),
        "Python in the loop": Mode(lambda _: lambda: burn_here(count), on_loop="burn"),
        "Python in a thread": Mode(lambda _: lambda: asyncio.to_thread(burn, count)),
        "Python in a process pool": Mode(outside, processes),
    }
    if interpreters := getattr(concurrent.futures, "InterpreterPoolExecutor", None):
        found["Python in an interpreter pool"] = Mode(outside, lambda: interpreters(1))
    return found


# --- one run ------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What the probe saw, and what loopwatch said."""

    late: list[float] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    gil_wait: float | None = None
    """Seconds a turn, while the work was done."""
    turns: int = 0

    @property
    def own(self) -> list[Stall]:
        """Those of the program: what the machine makes is short, or has the program's function as its site."""
        ended = [stall for stall in self.stalls if not stall.ongoing]
        return [
            stall
            for stall in ended
            if stall.verdict is not Verdict.NOT_SCHEDULED or stall.duration > ROUNDS * SECONDS / 2
        ]


async def probe(late: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK)
        late.append(time.perf_counter() - began - TICK)


async def work_beside_probe(run: Run, work: Work, watch: loopwatch.Watch) -> None:
    probing = asyncio.create_task(probe(run.late))
    await asyncio.sleep(2.5 * TICK)
    before = watch.lag
    for _ in range(ROUNDS):
        await work()
    lag = watch.lag - before
    await asyncio.sleep(2.5 * TICK)
    probing.cancel()
    run.turns = lag.turns
    run.gil_wait = None if lag.gil_wait is None or not lag.turns else lag.gil_wait / lag.turns


def measure(mode: Mode, threshold: float) -> Run:
    run = Run()
    with mode.pool() as pool, loopwatch.Runner(threshold=threshold, log=False) as runner:
        if pool is not None:
            pool.submit(abs, 1).result()
        runner.get_loop()
        assert runner.watch is not None
        # The warm-up of the default executor, and of the code, is not the experiment.
        runner.run(asyncio.to_thread(abs, 1))
        runner.watch.add_stall_callback(run.stalls.append)
        runner.run(work_beside_probe(run, mode.work(pool), runner.watch))
        runner.watch.flush()
    return run


def said_of_loop(run: Run, function: str) -> bool:
    """One stall of a second, its function, nothing else; the probe's median hides it."""
    sites = [stall.sites[0][0].qualname if stall.sites else "" for stall in run.own]
    return sites == [function] and run.own[0].duration > 0.8 * ROUNDS * SECONDS


def show_holders(mode: Mode) -> bool:
    """Which thread loopwatch names where each turn waits for the GIL."""
    run = measure(mode, BELOW_SWITCH)
    held = [stall for stall in run.stalls if stall.verdict is Verdict.GIL and stall.holder]
    workers = [stall for stall in held if stall.holder and stall.holder.name.startswith("asyncio_")]
    if not workers:
        print(f"  with a threshold of {BELOW_SWITCH * 1e3:.0f} ms: no stall names the worker")
        return False
    waits = statistics.median(stall.breakdown[Verdict.GIL] for stall in workers) * 1e3
    named = sum(stall.culprit is not None and stall.culprit.qualname == "burn" for stall in workers)
    print(
        f"  with a threshold of {BELOW_SWITCH * 1e3:.0f} ms: {len(held)} stalls name a holder of the GIL, "
        f"{len(workers)} of them the worker; median wait {waits:.1f} ms; {named} name burn"
    )
    print(f"  one of them: {workers[len(workers) // 2].summary}")
    return len(workers) > len(held) / 2 and named > len(workers) / 2


def report(name: str, mode: Mode) -> None:
    run = measure(mode, THRESHOLD)
    ticks, p50, worst = PUBLISHED[name]
    print(name)
    print(f"  {'':10}{'ticks':>10}{'p50, ms':>12}{'max, ms':>18}")
    print(f"  {'published':10}{ticks:>10}{p50:>12}{worst:>18}")
    middle, most = statistics.median(run.late) * 1e3, max(run.late) * 1e3
    print(f"  {'here':10}{len(run.late):>10}{middle:>12.1f}{most:>18.1f}")
    if run.gil_wait is not None:
        print(f"  wait for the GIL: {run.gil_wait * 1e3:.2f} ms a turn, {run.turns} turns")
    print(f"  stalls: {len(run.own)}" + "".join(f"\n    {stall.summary}" for stall in run.own))
    if mode.on_loop:
        print(f"  one stall, its function: {verdict(said_of_loop(run, mode.on_loop))}")
    elif name == "Python in a thread" and not free_threaded():
        holds = show_holders(mode)
        waits = run.gil_wait is None or 0.001 < run.gil_wait < 0.02
        print(
            f"  no stall; about 5 ms a turn; the worker is named: {verdict(holds and waits and not run.own)}"
        )
    else:
        print(f"  no stall: {verdict(not run.own)}")
    print(flush=True)


def main() -> int:
    begin(parser(__doc__))
    found = modes(calibrate())
    for name in PUBLISHED:
        if name in found:
            report(name, found[name])
        else:
            print(f"{name}: not here, interpreter pools are new in CPython 3.14\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
