"""How far Stall.duration is from the blocked code's own clock: the turn pulse, one callback in the turn.

Every other stall sleeps, every other one computes. The error holds what is no error, too: what the loop
does around the callback, and the wait for the GIL after it while the report of the stall before is written.

    python benchmarks/duration.py [--short]
"""

from __future__ import annotations

import asyncio
import queue
import random
import sys
import time

from common import begin, parser, share, spread, verdict

import loopwatch

THRESHOLD = 0.02
LENGTHS = (0.022, 0.040)
STALLS = 400
GAP = 0.02
MEDIAN_MS, P95_MS = 0.1, 2.0


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--threshold", type=float, default=THRESHOLD)
    arguments.add_argument("--lengths", type=float, nargs=2, default=LENGTHS, metavar=("LEAST", "MOST"))
    args = begin(arguments)
    wanted = 20 if args.short else STALLS
    seen: queue.SimpleQueue[loopwatch.Stall] = queue.SimpleQueue()
    own: list[float] = []
    lengths = [random.Random(i).uniform(*args.lengths) for i in range(wanted)]
    loop = asyncio.SelectorEventLoop()
    done = loop.create_future()

    def block() -> None:
        """The only callback of its turn. All that it does is within its own clock."""
        began = time.perf_counter()
        seconds = lengths[len(own)]
        if len(own) + 1 < wanted:
            loop.call_later(seconds + GAP, block)
        else:
            loop.call_later(seconds + GAP, done.set_result, None)
        (spin if len(own) % 2 else time.sleep)(seconds)
        own.append(time.perf_counter() - began)

    with loopwatch.install(loop, threshold=args.threshold, log=False, on_stall=seen.put) as watch:
        loop.call_later(GAP, block)
        loop.run_until_complete(done)
        watch.flush()
    loop.close()
    stalls = [seen.get_nowait() for _ in range(seen.qsize())]
    print(f"{len(own)} blocked turns of {args.lengths[0] * 1e3:g} to {args.lengths[1] * 1e3:g} ms, "
          f"threshold {args.threshold * 1e3:g} ms: {len(stalls)} stalls")  # fmt: skip
    if len(stalls) != len(own):
        print("MISSED: not each of them is a stall, or others are")
        return 0
    errors = [abs(stall.duration - seconds) * 1e3 for stall, seconds in zip(stalls, own, strict=True)]
    for name, of in (("all", errors), ("asleep", errors[::2]), ("computing", errors[1::2])):
        median, p95 = spread(of).median, share(of, 0.95)
        print(
            f"error of the duration, {name:10} median {spread(of).text()} ms, p95 {p95:.3f}, "
            f"most {max(of):.3f}: {verdict(median <= MEDIAN_MS and p95 <= P95_MS)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
