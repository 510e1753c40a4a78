"""How late the first look is while C code holds the GIL for seconds.

Two ways to hold it: a C function called without dropping the GIL (usleep through ctypes.PyDLL), and a
regular expression that backtracks. Of each stall: whether a sample lies before the threshold, and how long
after the threshold the first one at or past it was taken.

    python benchmarks/lateness.py [--short]
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import re
import sys
import time
from collections.abc import Callable

from common import begin, parser, share, spread, verdict

import loopwatch

THRESHOLD = 0.1
REPEATS = 15
SECONDS = 2.0
LATEST_MS = 2.0


def hold_in_c(seconds: float) -> None:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def backtracking(seconds: float) -> Callable[[], None]:
    """A regular expression that takes about so long here."""
    pattern = re.compile("(a+)+b")
    n, took = 16, 0.0
    while took < seconds / 2:
        n += 1
        began = time.perf_counter()
        pattern.match("a" * n)
        took = time.perf_counter() - began
    subject = "a" * (n + 1 if took < seconds / 1.4 else n)
    return lambda: void(pattern.match(subject))


def void(_: object) -> None:
    pass


def measure(name: str, hold: Callable[[], None], threshold: float, repeats: int) -> None:
    seen: queue.SimpleQueue[loopwatch.Stall] = queue.SimpleQueue()
    loop = asyncio.SelectorEventLoop()

    async def main() -> None:
        for _ in range(repeats):
            await asyncio.sleep(0.05)
            hold()

    with loopwatch.install(loop, threshold=threshold, log=False, hang_after=None, on_stall=seen.put) as watch:
        loop.run_until_complete(main())
        watch.flush()
    loop.close()
    stalls = [seen.get_nowait() for _ in range(seen.qsize())]
    late_ms, before = [], 0
    for stall in stalls:
        offsets = [sample.offset for sample in stall.samples if sample.frames]
        before += bool(offsets) and offsets[0] < threshold
        late_ms += [(offset - threshold) * 1e3 for offset in offsets if offset >= threshold][:1]
    met = len(stalls) == before == len(late_ms) == repeats and spread(late_ms).median <= LATEST_MS
    seconds = spread([stall.duration for stall in stalls]).median
    print(f"{name}: {len(stalls)} stalls of {repeats}, {seconds:.2f} s each")
    print(f"  seen before the threshold in {before}, after it in {len(late_ms)}")
    if late_ms:
        print(
            f"  first look past the threshold: {spread(late_ms).text()} ms late, "
            f"p95 {share(late_ms, 0.95):.3f}, most {max(late_ms):.3f}: {verdict(met)}"
        )


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--threshold", type=float, default=THRESHOLD)
    args = begin(arguments)
    repeats, seconds = (3, 0.3) if args.short else (REPEATS, SECONDS)
    print(f"threshold {args.threshold * 1e3:g} ms")
    measure("usleep, the GIL held", lambda: hold_in_c(seconds), args.threshold, repeats)
    measure("backtracking regular expression", backtracking(seconds), args.threshold, repeats)
    return 0


if __name__ == "__main__":
    sys.exit(main())
