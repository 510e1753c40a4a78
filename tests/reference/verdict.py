"""The rules of src/evidence/verdict.c again, slowly: what the clocks moved between looks, as time for each cause.

A turn is cut at its looks into intervals. Each has two accounts, time on a CPU and time off it; the rules
take from them, one after the other, until nothing is left. `judge` takes the rules as an argument, so that a
test can leave one out and see that it is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reference.evidence import Look, Stand
from reference.interval import (
    Cause,
    End,
    Interval,
    Parts,
    computes,
    measure,
    runs_python,
    still_owed,
    with_beyond,
)


@dataclass(frozen=True)
class Turn:
    begin: int
    end: int
    gil_begin: int = 0
    first: Look | None = None
    last: Look | None = None


NOWHERE = Look(at=0)


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
