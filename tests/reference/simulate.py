"""A model of stalls with known truth: what a loop's thread does, and what the clocks say of it at each look.

A turn is a list of atoms, stretches of time in one state. The clocks are sums over them; a run-queue wait is
booked when it ends, as the kernel books it. The watchdog looks as src/schedule.h says, a bit late, and not
while the process is stopped. Nothing here knows the rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from reference import schedule
from reference.evidence import ALL, PAIRS, Known, Look, Stand
from reference.interval import Cause
from reference.verdict import Turn

US = 1_000
MS = 1_000_000
STOP_MIN = 5 * MS


@dataclass(frozen=True)
class Atom:
    """A stretch of time in one state, and the cause that it truly is."""

    length: int
    truth: Cause
    stand: Stand = Stand.RUNNING
    on_cpu: bool = False
    move: float = 0.0
    """The chance that two quick looks find the frame moved."""
    queued: bool = False
    throttled: bool = False
    stopped: bool = False
    in_gc: bool = False
    in_finalizer: bool = False
    gil_others: bool = False
    callback: int = -1


Part = Callable[[int, Random], list[Atom]]


def python(length: int, random: Random) -> list[Atom]:
    return [Atom(length, Cause.PYTHON, on_cpu=True, move=random.choice((0.27, random.uniform(0.55, 0.85))))]


def native(length: int, random: Random) -> list[Atom]:
    """One C call, or one that is called in a loop (`sorted`)."""
    return [Atom(length, Cause.NATIVE, on_cpu=True, move=random.choice((0.0, 0.0, 0.02, 0.08)))]


def native_without_gil(length: int, random: Random) -> list[Atom]:
    """C code that has dropped the GIL and computes, beside a thread that has it."""
    return [Atom(length, Cause.NATIVE, on_cpu=True, gil_others=random.random() < 0.7)]


def sleep(length: int, random: Random) -> list[Atom]:
    return [Atom(length, Cause.BLOCKING_CALL, Stand.CALL, gil_others=random.random() < 0.3)]


def child(length: int, _: Random) -> list[Atom]:
    """Popen.wait(timeout): sleeps that double up to 50 ms, a little Python between them."""
    atoms, nap, left = [], 500 * US, length
    while left > 0:
        atoms += [
            Atom(min(left, 60 * US), Cause.BLOCKING_CALL, on_cpu=True, move=0.7),
            Atom(max(0, min(nap, left - 60 * US)), Cause.BLOCKING_CALL, Stand.CALL),
        ]
        left -= sum(atom.length for atom in atoms[-2:])
        nap = min(2 * nap, 50 * MS)
    return atoms


def lock(length: int, random: Random) -> list[Atom]:
    """A lock, or queue.get(timeout): a futex."""
    return [Atom(length, Cause.LOCK, Stand.FUTEX, gil_others=random.random() < 0.3)]


def gil(length: int, _: Random) -> list[Atom]:
    """One long hold: the thread wakes every 5 ms to ask for the GIL."""
    atoms, left = [], length
    while left > 0:
        atoms += [
            Atom(min(left, 5 * MS), Cause.GIL, Stand.GIL, gil_others=True),
            Atom(max(0, min(left - 5 * MS, 40 * US)), Cause.GIL, on_cpu=True, gil_others=True),
        ]
        left -= sum(atom.length for atom in atoms[-2:])
    return atoms


def convoy(length: int, random: Random) -> list[Atom]:
    """Short holds by many threads: 5 ms of Python of the loop's own between waits of 5 to 30 ms."""
    atoms, left = [], length
    while left > 0:
        held = min(left, random.randint(5 * MS, 30 * MS))
        own = min(left - held, random.randint(1 * MS, 5 * MS))
        atoms += [*gil(held, random), Atom(own, Cause.PYTHON, on_cpu=True, move=0.7)]
        left -= held + own
    return atoms


def gc(length: int, _: Random) -> list[Atom]:
    return [Atom(length, Cause.GC, on_cpu=True, in_gc=True)]


def gc_with_finalizer(length: int, random: Random) -> list[Atom]:
    """A collection in which a finalizer sleeps for half of the time."""
    half = length // 2
    return [
        *gc(half // 2, random),
        Atom(length - half, Cause.BLOCKING_CALL, Stand.CALL, in_gc=True, in_finalizer=True),
        *gc(half - half // 2, random),
    ]


def queued(length: int, random: Random) -> list[Atom]:
    """Starved beside hogs: slices of 4 ms, then a wait for the next one."""
    atoms, left = [], length
    while left > 0:
        wait = min(left, random.randint(8 * MS, 30 * MS))
        slice_ = min(left - wait, random.randint(500 * US, 2 * MS))
        atoms += [
            Atom(wait, Cause.NOT_SCHEDULED, queued=True),
            Atom(slice_, Cause.PYTHON, on_cpu=True, move=0.7),
        ]
        left -= wait + slice_
    return atoms


def throttled(length: int, _: Random) -> list[Atom]:
    """A quota of 20 ms in each 100: a computation that stands still for 80."""
    atoms, left = [], length
    while left > 0:
        wait = min(left, 80 * MS)
        runs = min(left - wait, 20 * MS)
        atoms += [
            Atom(wait, Cause.NOT_SCHEDULED, queued=True, throttled=True),
            Atom(runs, Cause.NATIVE, on_cpu=True),
        ]
        left -= wait + runs
    return atoms


def page(length: int, _: Random) -> list[Atom]:
    return [Atom(length, Cause.NOT_SCHEDULED, Stand.PAGE)]


def stopped(length: int, _: Random) -> list[Atom]:
    """SIGSTOP in the middle of a computation."""
    return [Atom(length, Cause.SUSPENDED, stopped=True)]


PARTS: dict[Cause, list[Part]] = {
    Cause.PYTHON: [python],
    Cause.NATIVE: [native, native_without_gil],
    Cause.BLOCKING_CALL: [sleep, child],
    Cause.LOCK: [lock],
    Cause.GIL: [gil, convoy],
    Cause.GC: [gc, gc_with_finalizer],
    Cause.NOT_SCHEDULED: [queued, throttled, page],
    Cause.SUSPENDED: [stopped],
}


def callbacks(lengths: Sequence[int], random: Random) -> list[Atom]:
    """A turn of callbacks that each run Python and C code."""
    atoms: list[Atom] = []
    for i, length in enumerate(lengths):
        parts = python(length // 2, random) + native(length - length // 2, random)
        atoms += [replace(atom, callback=i) for atom in parts]
    return atoms


def truth(atoms: Iterable[Atom]) -> list[int]:
    sums = [0] * len(Cause)
    for atom in atoms:
        sums[atom.truth] += atom.length
    return sums


class Timeline:
    """The clocks of the thread at any moment; before and after the atoms it waits in the selector."""

    def __init__(self, atoms: Sequence[Atom], begin: int) -> None:
        self.atoms = [atom for atom in atoms if atom.length > 0]
        self.begin = begin
        self.starts = [begin, *accumulate((atom.length for atom in self.atoms), initial=begin)][1:]
        self.end = self.starts.pop()
        self.sums = {
            name: list(accumulate((atom.length * wanted(atom) for atom in self.atoms), initial=0))
            for name, wanted in _COUNTED.items()
        }

    def index(self, at: int) -> int:
        return bisect_right(self.starts, at) - 1

    def atom(self, at: int) -> Atom | None:
        return self.atoms[self.index(at)] if self.begin <= at < self.end else None

    def clock(self, name: str, at: int) -> int:
        at = min(max(at, self.begin), self.end)
        i = self.index(at)
        inside = (at - self.starts[i]) * _COUNTED[name](self.atoms[i])
        return self.sums[name][i] + inside

    def run_queue(self, at: int) -> int:
        """Only waits that are over."""
        at = min(max(at, self.begin), self.end)
        i = self.index(at)
        while at < self.end and i >= 0 and self.atoms[i].queued:
            i -= 1
            at = self.starts[i + 1]
        return self.clock("queued", at)

    def gil_begin(self) -> int:
        """How long the turn waits for the GIL at its begin."""
        others = next((i for i, atom in enumerate(self.atoms) if atom.truth != Cause.GIL), len(self.atoms))
        return (self.starts[others] if others < len(self.atoms) else self.end) - self.begin

    def runs_again(self, at: int) -> int:
        """The first moment from `at` on at which the process is not stopped."""
        while (atom := self.atom(at)) and atom.stopped:
            at = self.starts[self.index(at)] + atom.length
        return at


_COUNTED: dict[str, Callable[[Atom], bool]] = {
    "cpu": lambda atom: atom.on_cpu,
    "queued": lambda atom: atom.queued,
    "throttled": lambda atom: atom.throttled,
    "gc": lambda atom: atom.in_gc,
}


class Watchdog:
    """Looks at a timeline as the real one does."""

    def __init__(
        self, timeline: Timeline, random: Random, *, known: Known = ALL, threshold: int = 100 * MS
    ) -> None:
        self.timeline = timeline
        self.random = random
        self.known = known
        self.threshold = threshold
        self.callbacks = max((atom.callback for atom in timeline.atoms), default=-1) + 1 or -1
        self.stopped = 0

    def wake(self, deadline: int) -> int:
        """When it is awake: a bit late, or when the process goes on."""
        at = self.timeline.runs_again(deadline + int(self.random.expovariate(1 / (80 * US))))
        if at - deadline >= STOP_MIN:
            self.stopped += at - deadline
        return at

    def look(self, at: int, *, clocks_only: bool = False) -> Look:
        """The stand is read first, the clocks some microseconds later and not quite when they say."""
        line, random = self.timeline, self.random
        read = at + random.randint(0, 30 * US)
        look = Look(
            at=read,
            cpu=line.clock("cpu", read + random.randint(0, 20 * US)),
            run_queue=line.run_queue(read - random.randint(0, 20 * US)),
            throttled=line.clock("throttled", read),
            stopped=self.stopped,
            gc=line.clock("gc", read),
            known=self.known if not clocks_only else self.known & ~(Known.STAND | Known.MOVED | Known.GIL),
        )
        atom = line.atom(at)
        if clocks_only or atom is None:
            return look
        knows_gil = bool(self.known & Known.GIL)
        stand = atom.stand if self.known & Known.STAND else Stand.UNKNOWN
        if stand == Stand.GIL and not knows_gil:
            stand = Stand.FUTEX
        others = atom.gil_others and knows_gil
        ran = stand in (Stand.RUNNING, Stand.UNKNOWN) and not others
        known = look.known if atom.on_cpu or not self.known & Known.CPU else look.known & ~Known.MOVED
        return replace(
            look,
            known=known,
            stand=stand,
            gil_others=others,
            moved=sum(random.random() < atom.move for _ in range(PAIRS)) if ran and atom.on_cpu else 0,
            in_gc=atom.in_gc and bool(self.known & Known.GC),
            in_finalizer=atom.in_finalizer and bool(self.known & Known.GC),
            turn_callbacks=self.callbacks,
            turn_callback=atom.callback,
        )

    def first(self) -> Look:
        """Read while the loop waited, or a bit after the turn began; or nothing is known but the stops."""
        begin, random = self.timeline.begin, self.random
        after = begin + random.randint(0, self.threshold // 8)
        match random.randrange(4):
            case 0 if self.timeline.runs_again(after) == after:
                return self.look(after, clocks_only=True)
            case 0 | 1:
                return Look(at=begin, known=Known(0))
            case _:
                return self.look(begin - random.randint(0, 10 * self.threshold), clocks_only=True)

    def watch(self, *, most: int = 256) -> tuple[Turn, list[Look]]:
        line = self.timeline
        first = self.first()
        samples: list[Look] = []
        at = self.wake(line.begin + schedule.first_point(self.threshold))
        while at < line.end:
            samples.append(self.look(at))
            if len(samples) > most:
                del samples[self.random.randrange(most)]
            step = schedule.step(self.threshold, at - line.begin)
            at = self.wake(at + schedule.jittered(step, self.random.getrandbits(32)))
        last = self.look(line.end + self.random.randint(0, MS), clocks_only=True)
        gil_begin = line.gil_begin() if self.random.random() < 0.5 else 0
        samples = [look for look in samples if look.at < line.end]
        return Turn(line.begin, line.end, gil_begin, first, last), samples


def mix(random: Random, causes: Sequence[Cause] = tuple(PARTS)) -> list[Atom]:
    """One to three parts of 60 to 250 ms, in random order."""
    atoms: list[Atom] = []
    for cause in random.sample(causes, random.randint(1, 3)):
        atoms += random.choice(PARTS[cause])(random.randint(60 * MS, 250 * MS), random)
    return atoms
