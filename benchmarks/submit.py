"""What a watch adds to a call in a thread pool: `pool.submit` on one that is watched and on one that is not.

Alternating pairs, CPU time of the thread that submits. Three states of a pool: a worker is free for each call; more
calls are submitted than there are workers, so that they queue; and `await asyncio.to_thread(f)`, the whole way on a
loop that is watched and one that is not (the process's CPU, in which a watched loop's turns are cheaper).

    python benchmarks/submit.py [--short]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from common import begin, parser, spread

import loopwatch

CALLS, PAIRS = 1000, 60
WORKERS = 4


def nothing() -> None:
    pass


def one_after_the_other(pool: ThreadPoolExecutor) -> float:
    """CPU seconds of one submission whose worker waits for it."""
    spent = 0.0
    for _ in range(CALLS):
        began = time.thread_time()
        call = pool.submit(nothing)
        spent += time.thread_time() - began
        call.result()
    return spent / CALLS


def all_at_once(pool: ThreadPoolExecutor) -> float:
    began = time.thread_time()
    calls = [pool.submit(nothing) for _ in range(CALLS)]
    spent = time.thread_time() - began
    wait(calls)
    return spent / CALLS


def to_thread(loop: asyncio.AbstractEventLoop) -> float:
    async def main() -> float:
        began = time.process_time()
        for _ in range(CALLS):
            await asyncio.to_thread(nothing)
        return time.process_time() - began

    return loop.run_until_complete(main()) / CALLS


def compare(name: str, plain: Callable[[], float], watched: Callable[[], float], pairs: int) -> None:
    plain(), watched()
    seen = []
    for index in range(pairs):
        order = (plain, watched) if index % 2 else (watched, plain)
        found = {arm: arm() * 1e6 for arm in order}
        seen.append((found[plain], found[watched]))
    base = statistics.median(first for first, _ in seen)
    added = spread([second - first for first, second in seen])
    print(f"{name:24} unwatched {base:6.2f} us, added {added.text(2)} us", flush=True)


def main() -> int:
    args = begin(parser(__doc__))
    pairs = 6 if args.short else PAIRS
    loops = [asyncio.SelectorEventLoop() for _ in range(2)]
    with (
        ThreadPoolExecutor(WORKERS) as plain,
        ThreadPoolExecutor(WORKERS) as pool,
        loopwatch.install(loops[1], threshold=60.0, log=False) as watch,
    ):
        watch.executor(pool)
        compare(
            "a worker is free", lambda: one_after_the_other(plain), lambda: one_after_the_other(pool), pairs
        )
        compare("the calls queue", lambda: all_at_once(plain), lambda: all_at_once(pool), pairs)
        compare("await to_thread", lambda: to_thread(loops[0]), lambda: to_thread(loops[1]), pairs)
    for loop in loops:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
