"""The rules of src/verdict.c again, slowly: what the clocks moved between looks, as time for each cause.

A turn is cut at its looks into intervals. Each has two accounts, time on a CPU and time off it; the rules
take from them, one after the other, until nothing is left. `judge` takes the rules as an argument, so that a
test can leave one out and see that it is missed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class Turn:
    begin: int
    end: int
    gil_begin: int = 0
    first: Look | None = None
    last: Look | None = None


Parts = list[int]

NOWHERE = Look(at=0)

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


# --- the rules, in order ---


def stopped_with_the_process(at: Interval) -> None:
    at.take_off(at.stopped, Cause.SUSPENDED)


def waited_in_the_run_queue(at: Interval) -> None:
    at.take_off(at.run_queue, Cause.NOT_SCHEDULED)


def waited_for_its_gil(at: Interval) -> None:
    at.take_off(at.gil_begin, Cause.GIL)


def collected_on_cpu(at: Interval) -> None:
    amount = min(at.gc, at.on)
    looks = at.looks
    if looks:
        others = [end for end in looks if not (end.finalizes and end.look.stand == Stand.RUNNING)]
        amount = amount * len(others) // len(looks)
    at.take("on", amount, [(end, Cause.GC) for end in at.ends])
    at.gc -= amount


def collected_off_cpu(at: Interval) -> None:
    if not any(end.finalizes or end.wait == Cause.GIL for end in at.ends):
        at.take_off(at.gc, Cause.GC)


def begin_of_a_stop(at: Interval) -> None:
    if at.stopped and not any(end.wait is not None for end in at.ends):
        at.take_off(at.off, Cause.SUSPENDED)


def _runnable(at: Interval) -> bool:
    return bool(at.looks) and all(end.look.stand == Stand.RUNNING and end.wait is None for end in at.looks)


def runnable_but_clock_stands(at: Interval) -> None:
    if at.clocked and at.stands and _runnable(at):
        at.take_off(at.off, Cause.NOT_SCHEDULED)


def runnable_but_throttled(at: Interval) -> None:
    if _runnable(at):
        at.take_off(at.throttled, Cause.NOT_SCHEDULED)


def waited_where_it_stood(at: Interval) -> None:
    shares = [(end, end.wait) for end in at.ends if end.wait is not None]
    if shares:
        at.take("off", at.off, shares)


def waited_as_beyond(at: Interval) -> None:
    shares = [(end, end.off_beyond) for end in at.ends if end.off_beyond is not None]
    if shares:
        at.take("off", at.off, shares)


def waited_unseen(at: Interval) -> None:
    if at.looks and (at.clocked or any(end.look.stand != Stand.UNKNOWN for end in at.looks)):
        at.take_off(at.off, Cause.BLOCKING_CALL)


def ran_what_was_seen(at: Interval) -> None:
    shares = [(end, end.on) for end in at.ends if end.on is not None]
    if shares:
        at.take("on", at.on, shares)


def ran_as_beyond(at: Interval) -> None:
    shares = [(end, end.on_beyond) for end in at.ends if end.on_beyond is not None]
    if shares:
        at.take("on", at.on, shares)


def ran_between_waits(at: Interval) -> None:
    at.take("on", at.on, [(end, Cause.PYTHON) for end in at.ends])


def could_not_be_seen(at: Interval) -> None:
    at.take_off(at.off, Cause.UNKNOWN)


Rule = Callable[[Interval], None]

RULES: list[Rule] = [
    stopped_with_the_process,
    waited_in_the_run_queue,
    waited_for_its_gil,
    collected_on_cpu,
    collected_off_cpu,
    begin_of_a_stop,
    runnable_but_clock_stands,
    runnable_but_throttled,
    waited_where_it_stood,
    waited_as_beyond,
    waited_unseen,
    ran_what_was_seen,
    ran_as_beyond,
    ran_between_waits,
    could_not_be_seen,
]


# --- what lies between two looks ---


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


# --- many callbacks ---


def many_callbacks(samples: Sequence[Look], parts: list[Parts], duration: int) -> None:
    if max((look.turn_callbacks for look in samples), default=-1) < 3:
        return
    longest = run = 0
    for i, look in enumerate(samples):
        goes_on = i > 0 and look.turn_callback == samples[i - 1].turn_callback
        run = (run if goes_on else 0) + sum(parts[i])
        longest = max(longest, run)
    if longest >= duration - longest:
        return
    for part in parts:
        part[Cause.MANY_CALLBACKS] += part[Cause.PYTHON] + part[Cause.NATIVE]
        part[Cause.PYTHON] = part[Cause.NATIVE] = 0


# --- the whole ---


def with_beyond(end: End, outward: Sequence[End]) -> End:
    on = next((other.on for other in outward if other.on is not None), None)
    off = next((other.wait for other in outward if other.wait is not None), None)
    return replace(end, on_beyond=on, off_beyond=off)


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


def judge(turn: Turn, samples: Sequence[Look], rules: Sequence[Rule] = tuple(RULES)) -> list[Parts]:
    n = len(samples)
    parts = [[0] * len(Cause) for _ in range(max(n, 1))]
    ends = [
        End(look, parts[i], python=runs_python(samples, i), computes=computes(samples, i))
        for i, look in enumerate(samples)
    ]
    edges = End(NOWHERE, parts[0], edge=True), End(NOWHERE, parts[-1], edge=True)
    end_ns = max(turn.end, turn.begin)
    owed = 0
    for i in range(n, -1, -1):  # backwards: what a run queue owes is booked when it ends
        a = with_beyond(ends[i - 1], ends[: i - 1][::-1]) if i > 0 else edges[0]
        b = with_beyond(ends[i], ends[i + 1 :]) if i < n else edges[1]
        clocks_a = samples[i - 1] if i > 0 else turn.first
        clocks_b = samples[i] if i < n else turn.last
        begin_ns = min(max(samples[i - 1].at, turn.begin), end_ns) if i > 0 else turn.begin
        gil_begin = max(0, min(turn.begin + turn.gil_begin, end_ns) - begin_ns)
        at = measure((a, b), clocks_a, clocks_b, begin_ns, end_ns, gil_begin, owed)
        owed = still_owed(at, owed)
        for rule in rules:
            rule(at)
        end_ns = begin_ns
    many_callbacks(samples, parts, max(turn.end - turn.begin, 0))
    return parts


def total(parts: Sequence[Parts]) -> Parts:
    return [sum(column) for column in zip(*parts, strict=True)]


def largest(parts: Parts) -> Cause:
    return Cause(parts.index(max(parts)))
