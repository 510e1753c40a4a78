"""What the plugin is made of, without a pytest around it: costs, places, times, the summary."""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from loopwatch import Frame, Sample, Stall, ThreadInfo, Verdict
from loopwatch._cost import cost_of
from loopwatch._terminal import Terminal
from loopwatch.pytest.offence import Offence, by_place, shown_frames
from loopwatch.pytest.places import Place, Places
from loopwatch.pytest.report import Summary
from pytest_loopwatch import parse_hang_after, parse_mode, parse_time

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


def test_the_hint_is_for_what_is_charged() -> None:
    """Not for what the stall was most."""
    stall = stall_of(
        sample(0.6, Verdict.NOT_SCHEDULED, TEST),
        sample(0.3, Verdict.PYTHON, TEST),
        sample(0.2, Verdict.BLOCKING_CALL, TEST, HELPER),
        sample(0.2, Verdict.BLOCKING_CALL, TEST, HELPER),
        hint="Nothing in the code: other work had the CPU.",
    )
    cost = cost_of(stall)
    assert (cost.cause, cost.culprit) == (Verdict.BLOCKING_CALL, HELPER)
    assert cost.seconds == pytest.approx(0.7)
    assert cost.hint.startswith("Use an async library")


def test_an_import_is_not_the_cause_of_what_is_charged() -> None:
    stall = stall_of(
        sample(0.5, Verdict.PYTHON, TEST, IMPORT, BODY),
        sample(0.2, Verdict.LOCK, TEST, HELPER),
        culprit=TEST,
        frames=(TEST, IMPORT, BODY),
        hint="Import lazy when the program starts, not while it serves.",
    )
    cost = cost_of(stall)
    assert (cost.seconds, cost.cause, cost.culprit) == (pytest.approx(0.2), Verdict.LOCK, HELPER)
    assert "asyncio.Lock" in cost.hint


def test_who_held_the_gil_is_to_blame_where_somebody_saw_it() -> None:
    """Else the frames of the sample are the loop's, which could do nothing but wait."""
    seen = Sample(0.0, 0.2, (HELPER,), Verdict.GIL, 2, "exact")
    stall = stall_of(sample(0.3, Verdict.GIL, TEST), seen, sample(0.6, Verdict.GC, TEST))
    cost = cost_of(stall)
    assert (cost.seconds, cost.cause, cost.culprit) == (pytest.approx(0.5), Verdict.GIL, HELPER)


# --- offences ---


def test_repeats_in_one_place_are_one_offence() -> None:
    def offence(weight: float, frame: Frame, where: Place) -> Offence:
        stall = stall_of(sample(weight, Verdict.LOCK, frame), culprit=frame, fingerprint=frame.qualname)
        return Offence(stall, cost_of(stall), 0.1, where)

    call, setup = Place("test_it", "call"), Place("test_it", "setup")
    given = [(0.2, TEST, call), (0.5, TEST, call), (0.3, TEST, call), (0.4, HELPER, call), (0.1, TEST, setup)]
    found = by_place(offence(*each) for each in given)
    assert [(each.cost.seconds, each.repeats) for each in found] == [
        (pytest.approx(0.1), ""),
        (pytest.approx(0.4), ""),
        (pytest.approx(0.5), "and 2 more in the same place, 500 ms"),
    ]
    assert found[-1].details[0] == found[-1].repeats


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


@pytest.mark.parametrize(("text", "seconds"), [("never", None), ("5s", 5.0), ("50ms", 0.05), ("2h", 7200.0)])
def test_when_a_hang_is_told(text: str, seconds: float | None) -> None:
    assert parse_hang_after("x", text) == seconds


@pytest.mark.parametrize("text", ["", "0", "none", "-1s", "1e3", "9" * 400, 5])
def test_when_no_hang_is_told(text: object) -> None:
    with pytest.raises(pytest.UsageError, match=r"^--x must be a length of time, .* or never, not "):
        parse_hang_after("--x", text)


# --- the terminal ---


def test_a_process_without_standard_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "closed").open("w") as closed:
        pass
    for stream in (None, closed):
        monkeypatch.setattr(sys, "__stderr__", stream)
        assert Terminal.of_this_process() is None


# --- the summary ---


def test_libraries_are_named_as_they_are_imported() -> None:
    summary = Summary(Path("/srv/app"))
    library = Frame(json.__file__, 3, "dumps")
    stall = stall_of(sample(0.2, Verdict.GIL, library), culprit=library)
    summary.add(stall, cost_of(stall), "test")
    assert next(line for line in summary.lines() if "dumps" in line).endswith(
        "  json/__init__.py:3 dumps [test]"
    )


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
