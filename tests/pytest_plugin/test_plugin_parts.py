"""What the plugin is made of, without a pytest around it: costs, places, times, the summary."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import pytest

from loopwatch import Frame, Sample, Stall, ThreadInfo, Verdict
from loopwatch.pytest.cost import cost_of
from loopwatch.pytest.offence import shown_frames
from loopwatch.pytest.places import Places
from loopwatch.pytest.report import Summary
from pytest_loopwatch import parse_mode, parse_time

TEST = Frame("/srv/app/test_it.py", 3, "test_it")
HELPER = Frame("/srv/app/helper.py", 7, "fetch")
IMPORT = Frame("<frozen importlib._bootstrap>", 1, "_find_and_load")
BODY = Frame("/srv/app/lazy.py", 1, "<module>")


def sample(weight: float, verdict: Verdict, *frames: Frame) -> Sample:
    return Sample(0.0, weight, frames, verdict, 1, "exact")


def stall_of(*samples: Sample, **parts: Any) -> Stall:
    breakdown: dict[Verdict, float] = {}
    for one in samples:
        breakdown[one.verdict] = breakdown.get(one.verdict, 0.0) + one.weight
    begin = datetime.datetime.now(datetime.UTC)
    duration = sum(breakdown.values())
    given = {"id": 1, "thread": "MainThread", "native_thread_id": 1, "started_at": begin, "ongoing": False}
    return Stall(duration=duration, breakdown=breakdown, samples=samples, **given, **parts)


# --- costs ---


def test_what_the_machine_did_costs_nothing() -> None:
    machine = [Verdict.NOT_SCHEDULED, Verdict.SUSPENDED, Verdict.GC, Verdict.UNKNOWN]
    assert cost_of(stall_of(*(sample(1.0, verdict, TEST) for verdict in machine))).seconds == 0


@pytest.mark.parametrize("verdict", ["python", "native", "blocking-call", "lock", "many-callbacks", "gil"])
def test_what_the_program_did_costs(verdict: str) -> None:
    cost = cost_of(
        stall_of(sample(0.2, Verdict(verdict), TEST, HELPER), culprit=HELPER, frames=(TEST, HELPER))
    )
    assert cost.seconds == pytest.approx(0.2)
    assert cost.cause == verdict
    assert cost.culprit == HELPER


def test_loopwatchs_own_thread_is_not_the_programs() -> None:
    holder = ThreadInfo("loopwatch-reporter", 2, ())
    stall = stall_of(sample(0.2, Verdict.GIL, HELPER), sample(0.1, Verdict.LOCK, TEST), holder=holder)
    assert cost_of(stall).seconds == pytest.approx(0.1)


def test_imports_cost_nothing() -> None:
    """Nor do they get the blame for what is left."""
    importing = sample(0.5, Verdict.PYTHON, TEST, IMPORT, BODY)
    stall = stall_of(
        importing, sample(0.2, Verdict.BLOCKING_CALL, TEST, HELPER), sample(0.6, Verdict.GC, TEST)
    )
    cost = cost_of(stall)
    assert cost.seconds == pytest.approx(0.2)
    assert cost.culprit == HELPER


def test_the_programs_part_has_a_culprit_where_the_machine_has_most_of_the_blame() -> None:
    stall = stall_of(
        sample(0.9, Verdict.NOT_SCHEDULED, TEST), sample(0.1, Verdict.PYTHON, TEST, HELPER), frames=(TEST,)
    )
    assert stall.verdict is Verdict.NOT_SCHEDULED
    cost = cost_of(stall)
    assert (cost.seconds, cost.culprit, cost.cause) == (pytest.approx(0.1), HELPER, Verdict.PYTHON)
    assert list(shown_frames(cost)) == [TEST, HELPER]


# --- places ---


def test_the_innermost_fixture_is_charged() -> None:
    places = Places()
    before = time.time() - 10
    places.enter("test_it", "setup")
    places.fixture_begins("outer", "session")
    places.fixture_begins("inner", "function")
    inside = time.time()
    time.sleep(0.01)
    places.fixture_ends()
    between = time.time()
    time.sleep(0.01)
    places.fixture_ends()
    time.sleep(0.01)
    after = time.time()
    found = [places.where(moment) for moment in (inside, between + 0.005, after)]
    assert [place.fixture if place else None for place in found] == ["inner", "outer", ""]
    assert [place.shared if place else None for place in found] == [False, True, False]
    assert places.where(before) is None
    places.leave()
    assert places.where(inside) is None


def test_a_teardown_is_the_time_before_pytest_says_that_it_is_done() -> None:
    places = Places()
    places.enter("test_it", "teardown")
    first = time.time() + 0.005
    time.sleep(0.01)
    places.fixture_is_down("first", "function")
    second = time.time() + 0.005
    time.sleep(0.01)
    places.fixture_is_down("second", "module")
    found = [places.where(moment) for moment in (first, second)]
    assert [str(place) for place in found] == [
        "teardown of fixture 'first'",
        "teardown of fixture 'second' (module scope)",
    ]


# --- options ---


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("0.05s", 0.05),
        ("0.05", 0.05),
        (".05", 0.05),
        ("2 s", 2.0),
        ("1m", 60.0),
        ("0.5h", 1800.0),
        (1, 1.0),
    ],
)
def test_times(text: object, seconds: float) -> None:
    assert parse_time("x", text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "nan", "1e3", "0", "100us", "2h", "1d", True, None, "3601", 10**400]
)
def test_what_is_no_time(text: object) -> None:
    with pytest.raises(pytest.UsageError, match=r"^--x must be a length of time .* not "):
        parse_time("--x", text)


def test_what_is_no_mode() -> None:
    assert parse_mode("x", "warn") == "warn"
    with pytest.raises(pytest.UsageError, match=r"^--x must be one of fail, warn, report, not 'Fail'$"):
        parse_mode("--x", "Fail")


# --- the summary ---


def test_summaries_of_several_processes_are_one() -> None:
    whole = Summary(Path("/srv/app"))
    for weight in (0.2, 0.4):
        part = Summary(Path("/srv/app"))
        stall = stall_of(sample(weight, Verdict.LOCK, TEST), sample(0.1, Verdict.GC, TEST), culprit=TEST)
        part.add(stall, cost_of(stall), f"test_{weight}")
        whole.merge(part.to_plain())
    lines = list(whole.lines())
    assert lines[1].split() == [
        "600",
        "ms",
        "400",
        "ms",
        "2",
        "lock",
        "test_it.py:3",
        "test_it",
        "[test_0.4]",
    ]
    assert lines[2:] == ["Not counted: 200 ms gc."]


def test_a_summary_shows_the_costliest() -> None:
    summary = Summary(Path("/srv/app"))
    for number in range(15):
        frame = Frame("/srv/app/test_it.py", number, f"test_{number}")
        stall = stall_of(
            sample(0.1 + number / 10, Verdict.LOCK, frame), culprit=frame, fingerprint=f"{number}"
        )
        summary.add(stall, cost_of(stall), "test")
    lines = list(summary.lines())
    assert "test_14" in lines[1]
    assert len(lines) == 1 + 10 + 1
    assert "5 more sites" in lines[-1]
