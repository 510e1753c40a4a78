"""Stalls whose truth is known: does the breakdown say it?

Each mix is one stall of one to three parts of 60 to 250 ms, in random order: Python code, a call into C
(a regular expression, a sort, a hash), a sleep, a lock, a wait for the GIL (a worker holds it in C), a
garbage collection. The program reads the clocks itself around each part: what the thread's CPU clock moved
by it computed, what the kernel says of the run queue the machine took away, what the clock in gc.callbacks
says it collected, and the rest it waited.

A mix is near where each cause is within 10 % of the duration, or 5 ms, of its true value. It is clear where
the largest cause leads by more than 10 % of the duration: then the verdict and the culprit must be right.

    python benchmarks/mixes.py [--short] [--mixes N] [--seed N] [--show]
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import hashlib
import queue
import random
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from common import begin, parser, verdict

import loopwatch
from loopwatch import Stall, Verdict

MIXES = 200
SHORTEST, LONGEST = 0.06, 0.25
STALL = 0.12
"""A mix is a stall with some room, so that the threshold of 100 ms takes none away."""
HEAP = 300_000
GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


# --- the truth ----------------------------------------------------------------------------------------------


@dataclass
class Clocks:
    wall: float
    cpu: float
    lost: float
    collected: float


@dataclass
class Truth:
    """Seconds of each cause, and which function they were spent in."""

    begin: float
    began_at: float
    """The same by the wall clock."""
    end: float = 0.0
    seconds: dict[Verdict, float] = field(default_factory=lambda: defaultdict(float))
    functions: dict[Verdict, dict[str, float]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )

    @property
    def duration(self) -> float:
        return self.end - self.begin

    def add(self, cause: Verdict, seconds: float, function: str) -> None:
        self.seconds[cause] += seconds
        self.functions[cause][function] += seconds

    def ranking(self) -> list[Verdict]:
        return sorted(Verdict, key=lambda cause: -self.seconds[cause])

    def clear(self) -> bool:
        first, second = (self.seconds[cause] for cause in self.ranking()[:2])
        return first - second > 0.1 * self.duration

    def culprit(self) -> str | None:
        cause = self.ranking()[0]
        if cause in (Verdict.NOT_SCHEDULED, Verdict.SUSPENDED):
            return None
        functions = self.functions[cause]
        return max(functions, key=functions.__getitem__)


class Meter:
    """Reads the clocks of the calling thread around each part."""

    def __init__(self) -> None:
        self._collected = 0.0
        self._began = 0.0
        try:
            self._file = Path("/proc/thread-self/schedstat").open("rb", buffering=0)  # noqa: SIM115
        except OSError:
            sys.exit("there is no schedstat here: what the machine takes away cannot be told")

    def gc_callback(self, phase: str, _: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        else:
            self._collected += now - self._began

    def read(self) -> Clocks:
        self._file.seek(0)
        lost = int(self._file.read().split()[1]) / 1e9
        return Clocks(time.perf_counter(), time.thread_time(), lost, self._collected)

    @contextmanager
    def part(self, truth: Truth, on: Verdict, off: Verdict, function: str, waits: str = "") -> Iterator[None]:
        """What was on a CPU goes to `on`, what waited to `off`; collections and the machine apart."""
        before = self.read()
        yield
        after = self.read()
        wall, cpu = after.wall - before.wall, after.cpu - before.cpu
        lost = min(after.lost - before.lost, max(0.0, wall - cpu))
        collected = min(after.collected - before.collected, cpu)
        waited = max(0.0, wall - cpu - lost)
        if off == Verdict.LOCK:  # the worker released it, and still had the GIL
            gil = min(waited, max(0.0, after.wall - RELEASED[-1] - lost))
            truth.add(Verdict.GIL, gil, "release_later")
            waited -= gil
        truth.add(Verdict.NOT_SCHEDULED, lost, "")
        truth.add(Verdict.GC, collected, function)
        truth.add(on, cpu - collected, function)
        truth.add(off, waited, waits or function)


# --- the parts ----------------------------------------------------------------------------------------------


def count_words(seconds: float) -> None:
    words = ["alpha", "beta", "gamma", "delta"] * 50
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        counts: dict[str, int] = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1


def add_numbers(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        total = 0
        for number in range(2000):
            total += number * number % 7


def _double(value: int) -> int:
    return value * 2


def call_functions(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number in range(500):
            _double(number)


def match_regex(size: int) -> None:
    re.search("a*b", "a" * size)


def sort_numbers(size: int) -> None:
    sorted(NUMBERS[:size])


def hash_bytes(size: int) -> None:
    hashlib.sha256(BYTES[:size])


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def wait_for_lock(seconds: float) -> None:
    lock = threading.Lock()
    lock.acquire()
    WORKER.put(lambda: release_later(lock, seconds))
    lock.acquire()


def release_later(lock: threading.Lock, seconds: float) -> None:
    time.sleep(seconds)
    RELEASED.append(time.perf_counter())
    lock.release()


def collect_garbage(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        gc.collect()


def keep_gil(seconds: float, done: list[None]) -> None:
    USLEEP(int(seconds * 1e6))
    done.append(None)


def want_gil(seconds: float) -> None:
    """The worker asks for the GIL, gets it within a switch interval, and keeps it."""
    done: list[None] = []
    WORKER.put(lambda: keep_gil(seconds, done))
    while not done:
        pass


def work() -> None:
    while True:
        WORKER.get()()


WORKER: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
RELEASED = [0.0]
"""When the worker released its locks."""
USLEEP = ctypes.PyDLL(None).usleep
NUMBERS: list[float] = []
BYTES = memoryview(b"")
NATIVE: dict[str, Callable[[float], None]] = {}


def sized(call: Callable[[int], None], probe: int, exponent: float) -> Callable[[float], None]:
    """A call whose cost grows with its size, made to last about so long here."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        call(probe)
        times.append(time.thread_time() - began)
    unit = min(times)
    return lambda seconds: call(int(probe * (seconds / unit) ** (1 / exponent)))


def prepare() -> list[object]:
    """The calls into C, fitted to this machine; returns the heap that collections go over."""
    global BYTES
    generator = random.Random(7)
    NUMBERS.extend(generator.random() for _ in range(800_000))
    BYTES = memoryview(bytes(400_000_000))
    NATIVE["match_regex"] = sized(match_regex, 6_000, 2)
    NATIVE["sort_numbers"] = sized(sort_numbers, 60_000, 1.15)
    NATIVE["hash_bytes"] = sized(hash_bytes, 10_000_000, 1)
    return [[number, {}] for number in range(HEAP // 2)]


Part = Callable[[Meter, Truth, float, random.Random], None]


def python(meter: Meter, truth: Truth, seconds: float, chance: random.Random) -> None:
    code = chance.choice([count_words, add_numbers, call_functions])
    with meter.part(truth, Verdict.PYTHON, Verdict.NOT_SCHEDULED, code.__qualname__):
        code(seconds)


def native(meter: Meter, truth: Truth, seconds: float, chance: random.Random) -> None:
    name = chance.choice(list(NATIVE))
    with meter.part(truth, Verdict.NATIVE, Verdict.NOT_SCHEDULED, name):
        NATIVE[name](seconds)


def sleeping(meter: Meter, truth: Truth, seconds: float, _: random.Random) -> None:
    with meter.part(truth, Verdict.PYTHON, Verdict.BLOCKING_CALL, "sleep"):
        sleep(seconds)


def locked(meter: Meter, truth: Truth, seconds: float, _: random.Random) -> None:
    with meter.part(truth, Verdict.PYTHON, Verdict.LOCK, "wait_for_lock"):
        wait_for_lock(seconds)


def without_gil(meter: Meter, truth: Truth, seconds: float, _: random.Random) -> None:
    with meter.part(truth, Verdict.PYTHON, Verdict.GIL, "want_gil", "keep_gil"):
        want_gil(seconds)


def collecting(meter: Meter, truth: Truth, seconds: float, _: random.Random) -> None:
    with meter.part(truth, Verdict.PYTHON, Verdict.NOT_SCHEDULED, "collect_garbage"):
        collect_garbage(seconds)


PARTS: list[Part] = [python, native, sleeping, locked, collecting] + [without_gil] * GIL


# --- the mixes ----------------------------------------------------------------------------------------------


def draw(chance: random.Random) -> list[tuple[Part, float]]:
    while True:
        parts = chance.sample(PARTS, chance.randint(1, 3))
        mix = [(part, chance.uniform(SHORTEST, LONGEST)) for part in parts]
        if sum(seconds for _, seconds in mix) >= STALL:
            return mix


async def stall_once(meter: Meter, mix: list[tuple[Part, float]], chance: random.Random) -> Truth:
    await asyncio.sleep(0.02)
    truth = Truth(time.perf_counter(), time.time())
    for part, seconds in mix:
        part(meter, truth, seconds, chance)
    truth.end = time.perf_counter()
    return truth


async def stall_often(mixes: int, seed: int) -> list[tuple[str, Truth]]:
    chance = random.Random(seed)
    meter = Meter()
    gc.callbacks.append(meter.gc_callback)
    truths = []
    for _ in range(mixes):
        mix = draw(chance)
        name = " + ".join(f"{part.__name__} {seconds * 1e3:.0f}" for part, seconds in mix)
        truths.append((name, await stall_once(meter, mix, chance)))
    gc.callbacks.remove(meter.gc_callback)
    await asyncio.sleep(0.05)
    return truths


# --- the judge ----------------------------------------------------------------------------------------------


@dataclass
class Result:
    name: str
    truth: Truth
    stall: Stall | None

    def error(self, cause: Verdict) -> float:
        assert self.stall is not None
        return self.stall.breakdown.get(cause, 0.0) - self.truth.seconds[cause]

    def near(self) -> bool:
        if self.stall is None:
            return False
        allowed = max(0.1 * self.truth.duration, 0.005)
        return all(abs(self.error(cause)) <= allowed for cause in Verdict)

    def right(self) -> bool:
        if self.stall is None or self.stall.verdict != self.truth.ranking()[0]:
            return False
        culprit = self.stall.culprit
        return (culprit and culprit.qualname.rpartition(".")[2]) == self.truth.culprit()

    def text(self) -> str:
        if self.stall is None:
            return f"{self.name}: not reported"
        said, true = self.stall.breakdown, self.truth.seconds
        parts = [
            f"{cause} {said.get(cause, 0.0) * 1e3:.0f}, truly {true[cause] * 1e3:.0f}"
            for cause in Verdict
            if max(said.get(cause, 0.0), true[cause]) >= 0.002
        ]
        culprit = self.stall.culprit.qualname if self.stall.culprit else None
        return (
            f"{self.name}: {'; '.join(parts)}; {self.stall.verdict} {culprit}, truly {self.truth.culprit()}"
        )


def matched(truths: list[tuple[str, Truth]], stalls: list[Stall]) -> list[Result]:
    """Each mix with the stall that covers its middle. By the wall clock as it was then: it may be set meanwhile."""
    results = []
    for name, truth in truths:
        middle = truth.began_at + truth.duration / 2
        found = (s for s in stalls if 0.0 <= middle - s.started_at.timestamp() <= s.duration)
        results.append(Result(name, truth, next(found, None)))
    return results


def report(results: list[Result], show: bool) -> None:
    near = sum(result.near() for result in results) / len(results)
    clear = [result for result in results if result.truth.clear()]
    right = sum(result.right() for result in clear) / max(1, len(clear))
    seen = [result.stall for result in results if result.stall]
    sums = max((abs(sum(stall.breakdown.values()) - stall.duration) for stall in seen), default=0.0)
    lost = max((result.truth.seconds[Verdict.NOT_SCHEDULED] for result in results), default=0.0)
    print(f"{len(results)} mixes, {len(seen)} of them reported")
    print(f"  each part within 10 % or 5 ms: {near:.1%} of mixes (at least 95 %): {verdict(near >= 0.95)}")
    print(
        f"  verdict and culprit right: {right:.1%} of {len(clear)} with a clear largest part "
        f"(at least 97 %): {verdict(right >= 0.97)}"
    )
    print(f"  sums: off by {sums * 1e3:.4f} ms at most (1 ms): {verdict(sums <= 0.001)}")
    print(f"  the machine took {lost * 1e3:.0f} ms of a mix at most")
    wrong = [r for r in results if not r.near() or (r.truth.clear() and not r.right())]
    for result in results if show else wrong:
        print(f"  {'near' if result.near() else 'OFF '} {result.text()}")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--mixes", type=int)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--show", action="store_true", help="every mix, not only those that are off")
    args = begin(arguments)
    mixes = args.mixes or (10 if args.short else MIXES)
    heap = prepare()
    threading.Thread(target=work, daemon=True).start()
    gc.collect()
    stalls: list[Stall] = []

    def keep(stall: Stall) -> None:
        stalls.append(stall)

    truths = loopwatch.run(stall_often(mixes, args.seed), log=False, hang_after=None, on_stall=keep)
    report(matched(truths, stalls), args.show)
    assert heap
    return 0


if __name__ == "__main__":
    sys.exit(main())
