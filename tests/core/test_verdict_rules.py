"""The rules one by one: what each of them takes, and that it is missed where it is left out."""

from __future__ import annotations

import dataclasses
import inspect
import sys

import pytest
from judging import BEGIN, CLOCKS, MS, judge
from reference import verdict
from reference.evidence import ALL, Known, Look, Stand
from reference.interval import Cause, Parts
from reference.verdict import Turn

# --- rule by rule ---

ON = {"stand": Stand.RUNNING, "moved": 3}
IN_C = {"stand": Stand.RUNNING}
CALL = {"stand": Stand.CALL}


def look(ms: int, what: dict[str, object] | None = None, **clocks: int | bool | Known) -> Look:
    """A look at a moment of the turn, in milliseconds from its begin, as its clocks are."""
    scaled = {name: value * MS if name in CLOCKS else value for name, value in clocks.items()}
    return Look(at=BEGIN + ms * MS, **(what or {}), **scaled)  # type: ignore[arg-type]


Stall = tuple[Turn, list[Look]]


def turn_of(first: Look | None, *samples: Look, last: Look | None, gil_begin: int = 0) -> Stall:
    """A turn of 100 ms."""
    return Turn(BEGIN, BEGIN + 100 * MS, gil_begin * MS, first, last), list(samples)


def causes_of(parts: list[Parts]) -> dict[Cause, float]:
    return {cause: ns / MS for cause, ns in zip(Cause, verdict.total(parts), strict=True) if ns}


def shows(rule: verdict.Rule, stall: Stall, expected: dict[Cause, float]) -> None:
    """C finds the parts (in milliseconds), and would not without the rule."""
    turn, samples = stall
    without = [other for other in verdict.RULES if other is not rule]
    parts = judge(turn, samples)
    assert causes_of(parts) == expected
    assert verdict.judge(turn, samples, without) != parts


def test_every_rule_has_its_test() -> None:
    tests = dict(inspect.getmembers(sys.modules[__name__], inspect.isfunction))
    assert [rule.__name__ for rule in verdict.RULES if f"test_rule_{rule.__name__}" not in tests] == []


def test_rule_stopped_with_the_process() -> None:
    stall = turn_of(look(0), look(40, CALL), look(90, CALL, stopped=45), last=look(100, stopped=45))
    shows(verdict.stopped_with_the_process, stall, {Cause.SUSPENDED: 45, Cause.BLOCKING_CALL: 55})


def test_rule_begin_of_a_stop() -> None:
    """The watchdog's deadline was 5 ms after the stop began."""
    samples = [look(40, ON, cpu=40), look(90, ON, cpu=40, stopped=45)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=50, stopped=45))
    shows(verdict.begin_of_a_stop, stall, {Cause.SUSPENDED: 50, Cause.PYTHON: 50})


def test_a_stop_in_which_the_turn_began() -> None:
    """Nobody looked in time, and the turn may be over: the watchdog's own lateness is all there is."""
    first = Look(at=BEGIN, known=Known(0))
    assert causes_of(judge(*turn_of(first, look(90, ON, stopped=88), last=None))) == {
        Cause.SUSPENDED: 88,
        Cause.PYTHON: 12,
    }
    assert causes_of(judge(*turn_of(first, last=look(100, stopped=97)))) == {Cause.SUSPENDED: 100}


def test_rule_waited_in_the_run_queue() -> None:
    """It slept until 60, and got a CPU at 90."""
    stall = turn_of(look(0), look(40, CALL), look(90, ON, run_queue=30), last=look(100, cpu=10, run_queue=30))
    expected: dict[Cause, float] = {Cause.NOT_SCHEDULED: 30, Cause.BLOCKING_CALL: 60, Cause.PYTHON: 10}
    shows(verdict.waited_in_the_run_queue, stall, expected)


def test_a_run_queue_that_is_booked_when_it_ends() -> None:
    """In the queue from 15 to 82: found runnable beside others that hold the GIL, when no clock had moved."""
    queued = {"stand": Stand.RUNNING, "gil_others": True}
    samples = [look(10, ON, cpu=10), *(look(ms, queued, cpu=15) for ms in (30, 50, 70))]
    samples.append(look(90, ON, cpu=23, run_queue=67))
    stall = turn_of(look(0), *samples, last=look(100, cpu=33, run_queue=67))
    assert causes_of(judge(*stall)) == {Cause.NOT_SCHEDULED: 67, Cause.PYTHON: 33}


def test_a_run_queue_before_which_it_ran_owes_nothing_further_back() -> None:
    """It slept, ran, and waited; more is booked for that wait than there was time for since it ran."""
    samples = [look(20, CALL), look(40, ON, cpu=15), look(60, ON, cpu=15), look(80, ON, cpu=15, run_queue=70)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=35, run_queue=70))
    assert causes_of(judge(*stall)) == {Cause.BLOCKING_CALL: 20, Cause.NOT_SCHEDULED: 45, Cause.PYTHON: 35}


def test_a_run_queue_that_was_booked_after_the_end_is_not_owed_by_a_sleep() -> None:
    """The clocks of the end were read when the thread had waited 95 ms for a CPU, in the turns after this one."""
    asleep = {"stand": Stand.FUTEX}
    samples = [look(ms, asleep, cpu=1) for ms in range(10, 100, 10)]
    parts = causes_of(judge(*turn_of(look(0), *samples, last=look(200, cpu=2, run_queue=95))))
    assert parts[Cause.LOCK] >= 85, "all but what lies between the last sample and the end"


def test_rule_waited_for_its_gil() -> None:
    stall = turn_of(look(0), look(60, ON, cpu=20), last=look(100, cpu=60), gil_begin=40)
    shows(verdict.waited_for_its_gil, stall, {Cause.GIL: 40, Cause.PYTHON: 60})


def test_rule_collected_on_cpu() -> None:
    samples = [look(40, ON, cpu=40), look(80, ON, cpu=80, gc=30)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=100, gc=30))
    shows(verdict.collected_on_cpu, stall, {Cause.GC: 30, Cause.PYTHON: 70})


def test_python_of_a_finalizer_is_python() -> None:
    finalizer = ON | {"in_gc": True, "in_finalizer": True}
    samples = [look(20, finalizer, cpu=20, gc=20), look(80, finalizer, cpu=80, gc=80)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=100, gc=100))
    assert causes_of(judge(*stall)) == {Cause.PYTHON: 100}
    samples = [look(20, ON, cpu=20), look(80, finalizer, cpu=80, gc=60)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=100, gc=60))
    assert causes_of(judge(*stall)) == {Cause.GC: 30, Cause.PYTHON: 70}


def test_rule_collected_off_cpu() -> None:
    stall = turn_of(look(0), look(40, CALL), look(80, CALL, gc=30), last=look(100, gc=30))
    shows(verdict.collected_off_cpu, stall, {Cause.GC: 30, Cause.BLOCKING_CALL: 70})


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        (CALL | {"in_finalizer": True}, Cause.BLOCKING_CALL),
        ({"stand": Stand.GIL}, Cause.GIL),
    ],
)
def test_a_finalizer_that_sleeps_and_a_wait_for_the_gil_are_no_collection(
    what: dict[str, object], cause: Cause
) -> None:
    stall = turn_of(look(0), look(20, what, gc=20), look(80, what, gc=80), last=look(100, gc=100))
    assert causes_of(judge(*stall)) == {cause: 100}


def test_rule_runnable_but_clock_stands() -> None:
    """A throttle that goes on: no counter has moved yet."""
    stall = turn_of(look(0), look(40, ON, cpu=40), look(80, IN_C, cpu=40), last=look(100, cpu=60))
    expected: dict[Cause, float] = {Cause.NOT_SCHEDULED: 40, Cause.PYTHON: 40, Cause.NATIVE: 20}
    shows(verdict.runnable_but_clock_stands, stall, expected)


def test_rule_runnable_but_throttled() -> None:
    samples = [look(40, ON, cpu=40), look(80, ON, cpu=60, throttled=15)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=80, throttled=15))
    expected: dict[Cause, float] = {Cause.NOT_SCHEDULED: 15, Cause.BLOCKING_CALL: 5, Cause.PYTHON: 80}
    shows(verdict.runnable_but_throttled, stall, expected)


@pytest.mark.parametrize(
    ("stand", "cause"),
    [
        (Stand.GIL, Cause.GIL),
        (Stand.FUTEX, Cause.LOCK),
        (Stand.CALL, Cause.BLOCKING_CALL),
        (Stand.PAGE, Cause.NOT_SCHEDULED),
    ],
)
def test_rule_waited_where_it_stood(stand: Stand, cause: Cause) -> None:
    stall = turn_of(look(0), look(40, ON, cpu=40), look(90, {"stand": stand}, cpu=60), last=look(100, cpu=60))
    shows(verdict.waited_where_it_stood, stall, {Cause.PYTHON: 60, cause: 40})
    parts = judge(*stall)
    assert parts[1][cause] == 40 * MS, "it is the sample's that waited..."
    assert parts[0][Cause.PYTHON] == 60 * MS, "...and the time on a CPU the other's"


def test_between_two_waits_each_has_half() -> None:
    parts = judge(*turn_of(look(0), look(20, CALL), look(81, {"stand": Stand.FUTEX}), last=look(100)))
    assert parts[0][Cause.BLOCKING_CALL] == 50.5 * MS
    assert parts[1][Cause.LOCK] == 49.5 * MS


def test_it_wants_the_gil_where_it_is_found_running_and_its_clock_stands() -> None:
    """A wait for the GIL wakes every 5 ms."""
    wakes = {"stand": Stand.RUNNING, "gil_others": True}
    stall = turn_of(look(0), look(40, wakes), look(80, wakes, cpu=1), last=look(100, cpu=1))
    assert causes_of(judge(*stall)) == {Cause.GIL: 99, Cause.PYTHON: 1}


def test_c_that_dropped_the_gil_and_computes_is_native() -> None:
    computes = {"stand": Stand.RUNNING, "gil_others": True}
    stall = turn_of(look(0), look(40, computes, cpu=40), look(80, computes, cpu=78), last=look(100, cpu=98))
    assert causes_of(judge(*stall)) == {Cause.NATIVE: 98, Cause.BLOCKING_CALL: 2}


def test_rule_waited_as_beyond() -> None:
    """Locks that are waited for and had again and again, mostly between looks."""
    samples = [look(20, {"stand": Stand.FUTEX}), look(40, ON, cpu=10), look(80, ON, cpu=30)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=50))
    shows(verdict.waited_as_beyond, stall, {Cause.LOCK: 50, Cause.PYTHON: 50})


def test_rule_waited_unseen() -> None:
    stall = turn_of(look(0), look(40, ON, cpu=40), look(80, ON, cpu=60), last=look(100, cpu=80))
    shows(verdict.waited_unseen, stall, {Cause.BLOCKING_CALL: 20, Cause.PYTHON: 80})


def test_rule_ran_what_was_seen() -> None:
    stall = turn_of(look(0), look(40, IN_C, cpu=40), look(80, ON, cpu=80), last=look(100, cpu=100))
    shows(verdict.ran_what_was_seen, stall, {Cause.NATIVE: 60, Cause.PYTHON: 40})


def test_rule_ran_as_beyond() -> None:
    samples = [look(20, IN_C, cpu=20), look(40, CALL, cpu=40), look(80, CALL, cpu=50)]
    stall = turn_of(look(0), *samples, last=look(100, cpu=50))
    shows(verdict.ran_as_beyond, stall, {Cause.NATIVE: 50, Cause.BLOCKING_CALL: 50})


def test_rule_ran_between_waits() -> None:
    stall = turn_of(look(0), look(40, CALL, cpu=4), look(80, CALL, cpu=8), last=look(100, cpu=10))
    shows(verdict.ran_between_waits, stall, {Cause.PYTHON: 10, Cause.BLOCKING_CALL: 90})


def test_rule_could_not_be_seen() -> None:
    stall = turn_of(None, look(40, known=Known(0)), look(80, known=Known(0)), last=None)
    shows(verdict.could_not_be_seen, stall, {Cause.UNKNOWN: 100})


# --- python or native ---


@pytest.mark.parametrize(
    ("moved", "python"),
    [
        ([0, 0, 0], [0, 0, 0]),
        ([3, 3, 3], [1, 1, 1]),
        ([3, 0, 3], [1, 1, 1]),
        ([2, 0, 1], [1, 1, 1]),
        ([0, 1, 0], [0, 0, 0]),
        ([0, 2, 0], [1, 1, 1]),
        ([0, 0, 0, 0, 1, 0, 0, 0, 0], [0] * 9),
        ([1, 0, 0, 2, 0, 1, 1, 0, 1], [1] * 9),
        ([3, 3, 0, 0], [1, 1, 0, 0]),
        ([1, 0, 1, 2, *[0] * 7, 1, 2, 1, 0, 1], [1] * 16),  # a loop that mostly calls C
        ([0, 0, 1, 3], [0, 0, 1, 1]),
        ([1], [1]),
        ([0], [0]),
    ],
)
def test_a_sample_and_its_neighbours_tell_python_from_c(moved: list[int], python: list[int]) -> None:
    times = [90 * (i + 1) // len(moved) for i in range(len(moved))]
    samples = [look(at, IN_C | {"moved": n}, cpu=at) for at, n in zip(times, moved, strict=True)]
    parts = judge(*turn_of(look(0), *samples, last=look(100, cpu=100)))
    assert [int(part[Cause.PYTHON] > part[Cause.NATIVE]) for part in parts] == python


def test_what_runs_where_no_frames_can_be_read_is_python() -> None:
    blind = ALL & ~Known.MOVED
    stall = turn_of(look(0), look(40, IN_C, cpu=40, known=blind), last=look(100, cpu=100))
    assert causes_of(judge(*stall)) == {Cause.PYTHON: 100}


# --- the ends of the turn ---


def test_clocks_that_were_read_long_before_the_turn() -> None:
    """They stood still while the loop waited."""
    stall = turn_of(look(-900), look(40, ON, cpu=40), last=look(101, cpu=101))
    assert causes_of(judge(*stall)) == {Cause.PYTHON: 100}


def test_clocks_that_were_read_after_the_begin_stand_for_the_time_before() -> None:
    stall = turn_of(look(10, cpu=10), look(30, CALL, cpu=20), last=look(100, cpu=20))
    assert causes_of(judge(*stall)) == {Cause.PYTHON: 15, Cause.BLOCKING_CALL: 85}


def test_without_clocks_of_the_begin_the_first_sample_speaks_for_it() -> None:
    stall = turn_of(None, look(40, CALL), look(60, ON), last=look(100, cpu=40))
    assert causes_of(judge(*stall)) == {Cause.BLOCKING_CALL: 60, Cause.PYTHON: 40}
    collects = ON | {"in_gc": True}
    stall = turn_of(None, look(40, collects, cpu=40, gc=40), look(60, ON, cpu=60, gc=40), last=None)
    assert causes_of(judge(*stall)) == {Cause.GC: 40, Cause.PYTHON: 60}


def test_without_a_cpu_clock_the_stands_tell() -> None:
    blind = ALL & ~Known.CPU
    stall = turn_of(None, look(40, ON, known=blind), look(80, CALL, known=blind), last=None)
    assert causes_of(judge(*stall)) == {Cause.PYTHON: 60, Cause.BLOCKING_CALL: 40}


def test_a_turn_that_ends_before_it_begins_has_no_parts() -> None:
    assert judge(Turn(BEGIN, BEGIN - MS), [look(0, ON), look(1, CALL)]) == [[0] * len(Cause)] * 2


def test_samples_outside_of_the_turn_stand_for_nothing() -> None:
    samples = [look(-20, ON), look(50, CALL), look(120, ON)]
    parts = judge(*turn_of(look(-30), *samples, last=look(130, cpu=10)))
    assert sum(parts[0]) == 0
    assert sum(parts[1]) == 100 * MS
    assert sum(parts[2]) == 0


# --- many callbacks ---


def callbacks(lengths: list[int]) -> list[Look]:
    """A sample in the middle of each 10 ms of Python, and which callback ran it."""
    ran = [i for i, length in enumerate(lengths) for _ in range(length // 10)]
    n = len(lengths)
    return [
        look(10 * k + 5, ON, cpu=10 * k + 5, turn_callbacks=n, turn_callback=i) for k, i in enumerate(ran)
    ]


@pytest.mark.parametrize(
    ("lengths", "cause"),
    [
        ([40, 30, 30], Cause.MANY_CALLBACKS),
        ([50, 30, 20], Cause.PYTHON),
        ([20, 60, 20], Cause.PYTHON),
        ([40, 60], Cause.PYTHON),
        ([10] * 10, Cause.MANY_CALLBACKS),
    ],
)
def test_many_callbacks_are_three_of_which_none_took_half(lengths: list[int], cause: Cause) -> None:
    stall = turn_of(look(0), *callbacks(lengths), last=look(100, cpu=100))
    assert causes_of(judge(*stall)) == {cause: 100}


def test_many_callbacks_keep_the_names_of_waits() -> None:
    samples = callbacks([10] * 10)
    waits = {"stand": Stand.CALL, "cpu": samples[3].cpu}
    samples[4:6] = [dataclasses.replace(sample, **waits) for sample in samples[4:6]]
    samples[6:] = [dataclasses.replace(sample, cpu=sample.cpu - 20 * MS) for sample in samples[6:]]
    stall = turn_of(look(0), *samples, last=look(100, cpu=80))
    assert causes_of(judge(*stall)) == {Cause.MANY_CALLBACKS: 80, Cause.BLOCKING_CALL: 20}
