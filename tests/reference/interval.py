"""What lies between two looks: src/evidence/interval.c again, slowly; the arithmetic under the rules of verdict.py."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from reference.evidence import Known, Look, Stand


class Cause(enum.IntEnum):
    SUSPENDED = 0
    NOT_SCHEDULED = 1
    GIL = 2
    GC = 3
    PYTHON = 4
    NATIVE = 5
    LOCK = 6
    BLOCKING_CALL = 7
    MANY_CALLBACKS = 8
    UNKNOWN = 9


Parts = list[int]

STANDS = 16
"""A CPU clock that moved by no more than this part of the time stands."""
NEAR = 12
"""How many samples on each side say with a sample whether it runs Python."""
CHANCES = (
    (-11, -238, -492, -849),
    (-107, -82, -167, -361),
    (-361, -167, -82, -107),
)
"""100 times the logarithm of the chance of 0 to 3 pairs that moved: C; a loop that mostly calls C; other Python."""
CHANGES = (
    (0, 450, 290),
    (450, 0, 290),
    (290, 290, 0),
)
"""What a change between two samples says against it: once in 20 samples; between C and a loop that mostly calls it,
which look alike for some samples, once in 90."""


@dataclass
class End:
    """One end of an interval: a sample, or the sample that the begin or the end of the turn belongs to."""

    look: Look
    parts: Parts
    edge: bool = False
    python: bool | None = None
    """Whether it ran Python; None: it does not tell."""
    on_beyond: Cause | None = None
    off_beyond: Cause | None = None
    """What the nearest sample outward that tells it says, seen from the interval."""

    computes: bool = False
    """It ran, without the GIL."""

    @property
    def on(self) -> Cause | None:
        """What time on a CPU is at this end."""
        return None if self.python is None else Cause.PYTHON if self.python else Cause.NATIVE

    @property
    def finalizes(self) -> bool:
        return self.look.in_finalizer

    @property
    def wait(self) -> Cause | None:
        """What time off the CPU is at this end; None: it says nothing of such time."""
        match self.look.stand:
            case Stand.GIL:
                return Cause.GIL
            case Stand.FUTEX:
                return Cause.LOCK
            case Stand.CALL:
                return Cause.BLOCKING_CALL
            case Stand.PAGE:
                return Cause.NOT_SCHEDULED
            case Stand.RUNNING | Stand.UNKNOWN if self.look.gil_others and not self.computes:
                return Cause.GIL
            case _:
                return None


@dataclass
class Interval:
    ends: tuple[End, End]
    length: int
    clocked: bool
    on: int
    off: int
    run_queue: int
    throttled: int
    stopped: int
    gc: int
    gil_begin: int
    stands: bool = field(init=False)

    def __post_init__(self) -> None:
        self.stands = self.on <= self.length // STANDS

    @property
    def looks(self) -> list[End]:
        return [end for end in self.ends if not end.edge]

    def take(self, account: str, amount: int, shares: Sequence[tuple[End, Cause]]) -> None:
        """From one account at most `amount`, half of it for each of two shares."""
        amount = min(amount, getattr(self, account))
        setattr(self, account, getattr(self, account) - amount)
        half = amount // len(shares)
        for end, cause in shares[:-1]:
            end.parts[cause] += half
            amount -= half
        end, cause = shares[-1]
        end.parts[cause] += amount

    def take_off(self, amount: int, cause: Cause) -> None:
        self.take("off", amount, [(end, cause) for end in self.ends])


# --- its accounts, from the clocks ---


def scaled(amount: int, to: int, of: int) -> int:
    """amount * to / of, with as many bits of `to` and `of` as 64-bit arithmetic has room for."""
    while max(to, of) >= 1 << 16:
        to >>= 1
        of >>= 1
    return amount * to // of if of else amount


def moved(a: Look, b: Look, name: str, needs: Known) -> int:
    if not a.known & b.known & needs:
        return 0
    difference: int = getattr(b, name) - getattr(a, name)
    return max(0, difference)


def by_stand(ends: list[End], length: int) -> int:
    """Time on a CPU where no clock tells: half of the interval for each end that was on one."""
    seen = [end for end in ends if end.look.stand != Stand.UNKNOWN or end.look.moved]
    if not seen:
        return 0
    on = [end for end in seen if runs(end.look) and end.wait is None]
    return length * len(on) // len(seen)


def measure(
    ends: tuple[End, End], a: Look | None, b: Look | None, begin: int, end: int, gil_begin: int, owed: int
) -> Interval:
    """The interval from begin to end, with the clocks that were read near its ends."""
    length = end - begin
    looks = [end for end in ends if not end.edge]
    run_queue = throttled = stopped = gc = 0
    on = None
    if a and b:
        seen = b.at - a.at if b.at > a.at else 0
        late = a.at - begin if a.at > begin else 0
        on = moved(a, b, "cpu", Known.CPU) if a.known & b.known & Known.CPU else None
        run_queue = moved(a, b, "run_queue", Known.RUN_QUEUE)
        throttled = moved(a, b, "throttled", Known.THROTTLED)
        gc = moved(a, b, "gc", Known.GC)
        stopped = max(0, b.stopped - a.stopped)
        if late and seen:
            to = seen + late
            run_queue, gc = scaled(min(run_queue, seen), to, seen), scaled(min(gc, seen), to, seen)
            on = None if on is None else scaled(min(on, seen), to, seen)
    if not (a and b and a.known & b.known & Known.GC) and any(end.look.in_gc for end in looks):
        gc = length
    clocked = on is not None
    if on is None:
        on = by_stand(looks, max(0, length - stopped - run_queue - owed - gil_begin))
    on = min(length, on)
    run_queue += owed
    return Interval(ends, length, clocked, on, length - on, run_queue, throttled, stopped, gc, gil_begin)


def still_owed(at: Interval, owed: int) -> int:
    """What of the waits in a run queue does not fit into this interval, and so began before it.

    A wait that lasted to the interval's end came after whatever the thread ran in it. Where the interval begins
    with a look that shows it asleep, the wait began later: clocks that were read late after the end of the turn
    have what the thread waited for a CPU since.
    """
    if not at.ends[0].edge and not runs(at.ends[0].look):
        return 0
    free = max(0, at.off - at.stopped)
    paid = min(owed, free)
    own = at.run_queue - owed
    return max(0, own - (free - paid)) + (owed - paid if at.stands else 0)


# --- its ends, from the samples around ---


def runs(look: Look) -> bool:
    return look.stand in (Stand.RUNNING, Stand.UNKNOWN)


def around(samples: Sequence[Look], i: int) -> list[tuple[int, int]]:
    """How far the CPU clock moved, and the time, from the sample before and to the one after."""
    pairs = [(k, k + 1) for k in (i - 1, i) if k >= 0 and k + 1 < len(samples)]
    return [
        (moved(samples[a], samples[b], "cpu", Known.CPU), max(0, samples[b].at - samples[a].at))
        for a, b in pairs
        if samples[a].known & samples[b].known & Known.CPU
    ]


def computes(samples: Sequence[Look], i: int) -> bool:
    """On a CPU without the GIL: another thread has it, and the CPU clock moves all the same."""
    look = samples[i]
    return runs(look) and look.gil_others and any(2 * cpu >= time for cpu, time in around(samples, i))


def moves(samples: Sequence[Look], i: int) -> int | None:
    """In how many of its pairs a sample moved; None where that does not tell."""
    if not 0 <= i < len(samples):
        return None
    look = samples[i]
    return look.moved if runs(look) and not look.gil_others and look.known & Known.MOVED else None


def runs_python(samples: Sequence[Look], i: int) -> bool | None:
    """Whether a sample on a CPU ran Python; None where it does not tell."""
    if computes(samples, i):
        return False
    own = moves(samples, i)
    if own is None:
        return None
    before, after = beyond(samples, i, -1), beyond(samples, i, 1)
    native, calls, code = (chances[own] + before[k] + after[k] for k, chances in enumerate(CHANCES))
    return max(calls, code) > native


def beyond(samples: Sequence[Look], i: int, step: int) -> list[int]:
    """How likely the samples on one side of sample i are, by what sample i runs."""
    course = [0, 0, 0]
    for distance in range(NEAR, 0, -1):
        there = moves(samples, i + step * distance)
        course = go_on(course)
        course = [0, 0, 0] if there is None else [at + CHANCES[k][there] for k, at in enumerate(course)]
    return go_on(course)


def go_on(course: list[int]) -> list[int]:
    return [max(at - CHANGES[j][k] for j, at in enumerate(course)) for k in range(len(course))]


def with_beyond(end: End, outward: Sequence[End]) -> End:
    on = next((other.on for other in outward if other.on is not None), None)
    off = next((other.wait for other in outward if other.wait is not None), None)
    return replace(end, on_beyond=on, off_beyond=off)
