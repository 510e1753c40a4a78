"""Profiles as data, the table that they come from, and how records get into it."""

from __future__ import annotations

import json
import pickle
import threading
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import APP, LIBRARY, MS, packed, record

from loopwatch import Frame, Profile, ProfileRow, Verdict
from loopwatch._profiler import LINES_MAX, Profiler, Table


def frame(number: int, lineno: int = 1) -> Frame:
    return Frame(APP, lineno, f"function_{number}")


def names(profile: Profile) -> list[str]:
    return [row.frame.qualname for row in profile.rows if row.frame is not None]


# --- the table ---

additions = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 30)),
        st.floats(0.001, 1.0),
        st.integers(1, 3),
        st.sampled_from([Verdict.PYTHON, Verdict.GIL, Verdict.LOCK]),
        st.sampled_from([None, "main", "handle"]),
    ),
    max_size=200,
)


@given(additions)
def test_totals_are_exact_whatever_is_given_up(added: list[Any]) -> None:
    table = Table(sites_max=4)
    for number, seconds, samples, cause, coroutine in added:
        site = None if number is None else frame(number)
        table.add(site, seconds, samples, cause=cause, coroutine=coroutine)
    profile = table.snapshot()
    rows = [*profile.rows, profile.other]
    assert len(profile) <= 8
    assert (
        profile.samples == sum(samples for _, _, samples, _, _ in added) == sum(row.samples for row in rows)
    )
    total = sum(seconds for _, seconds, *_ in added)
    assert profile.seconds == pytest.approx(total)
    assert sum(row.seconds for row in rows) == pytest.approx(total)
    assert sum(profile.causes.values()) == pytest.approx(total)
    assert sum(row.share for row in rows) == pytest.approx(1.0 if added else 0.0)
    assert [row.seconds for row in profile] == sorted((row.seconds for row in profile), reverse=True)
    named = sum(seconds for _, seconds, _, _, coroutine in added if coroutine)
    assert sum(profile.tasks.values()) == pytest.approx(named)


def test_what_is_large_stays_beside_much_that_is_small() -> None:
    table = Table(sites_max=50)
    for number in range(10_000):
        table.add(frame(number), 0.01)
        table.add(frame(-1 - number % 3), 0.02)
    profile = table.snapshot()
    assert set(names(profile)[:3]) == {"function_-1", "function_-2", "function_-3"}
    assert sum(row.seconds for row in profile.top(3)) == pytest.approx(200.0)
    assert profile.other.seconds + sum(row.seconds for row in profile) == pytest.approx(300.0)


def test_the_line_shown_is_the_heaviest() -> None:
    table = Table()
    for lineno in [*range(100, 130), 7, 7, 7, *range(200, 230), 7, 7]:
        table.add(frame(1, lineno), 0.1 if lineno != 7 else 1.0)
    (row,) = table.snapshot().rows
    assert row.frame is not None
    assert row.frame.lineno == 7
    assert LINES_MAX < 30


def test_memory_is_bounded() -> None:
    """100,000 distinct functions and coroutines."""
    table = Table()
    tracemalloc.start()
    try:
        for number in range(100_000):
            table.add(frame(number, number), 0.05, coroutine=f"coroutine_{number}")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size <= 4 << 20
    assert table.snapshot().samples == 100_000


# --- differences ---


def test_a_difference_is_what_came_in_between() -> None:
    table = Table()
    table.add(frame(1), 1.0, 20, cause=Verdict.PYTHON, coroutine="main")
    table.add(frame(2), 2.0, 40, cause=Verdict.LOCK)
    older = table.snapshot()
    table.add(frame(2), 0.5, 10, cause=Verdict.LOCK)
    table.add(frame(3), 1.5, 30, cause=Verdict.GIL, coroutine="other")
    table.add(None, 2.0, 40)
    profile = table.snapshot() - older
    assert names(profile) == ["function_3", "function_2"]
    assert [(row.seconds, row.samples) for row in profile] == [(1.5, 30), (0.5, 10)]
    assert [row.share for row in profile] == pytest.approx([0.375, 0.125])
    assert (profile.seconds, profile.samples) == (4.0, 80)
    assert (profile.other.seconds, profile.other.samples, profile.other.share) == (2.0, 40, 0.5)
    assert dict(profile.tasks) == {"other": 1.5}
    assert dict(profile.causes) == {Verdict.UNKNOWN: 2.0, Verdict.GIL: 1.5, Verdict.LOCK: 0.5}
    assert not older - older
    assert (older - older).rows == ()


@given(additions, additions)
def test_a_difference_adds_up_also_where_rows_were_given_up(before: list[Any], after: list[Any]) -> None:
    table = Table(sites_max=3)

    def add(added: list[Any]) -> Profile:
        for number, seconds, samples, cause, _ in added:
            table.add(None if number is None else frame(number), seconds, samples, cause=cause)
        return table.snapshot()

    older, newer = add(before), add(after)
    profile = newer - older
    assert profile.seconds == pytest.approx(sum(seconds for _, seconds, *_ in after), abs=1e-6)
    assert all(row.seconds > 0 and row.samples >= 0 for row in profile)
    assert sum(row.seconds for row in [*profile, profile.other]) >= profile.seconds - 1e-6


def test_worst_of_an_interval() -> None:
    table = Table()
    table.add(frame(1), 0.06, worst=0.06)
    older = table.snapshot()
    table.add(frame(1), 0.03, worst=0.03)
    assert (table.snapshot() - older).rows[0].worst == pytest.approx(0.03)
    table.add(frame(1), 0.09, worst=0.09)
    assert (table.snapshot() - older).rows[0].worst == 0.09


def test_other_things_cannot_be_subtracted() -> None:
    with pytest.raises(TypeError):
        Profile() - 3  # type: ignore[operator]


# --- as data ---


def test_as_a_sequence_and_as_json() -> None:
    table = Table()
    for number in range(5):
        table.add(frame(number), number + 1.0, cause=Verdict.NATIVE, coroutine="main")
    profile = table.snapshot()
    assert len(profile) == 5
    assert list(profile) == list(profile.rows)
    assert profile[0] == profile.top(1)[0] == profile.rows[0]
    assert profile.top(0) == profile.top(-1) == ()
    assert len(profile.top(3)) == 3
    assert len(profile.top()) == 5
    for bad in (None, True, 1.0):
        with pytest.raises(TypeError, match=f"n must be a whole number, not {bad!r}"):
            profile.top(bad)
    data = json.loads(json.dumps(profile.to_dict()))
    assert data["rows"][0]["frame"]["qualname"] == "function_4"
    assert data["rows"][0]["share"] == pytest.approx(5 / 15)
    assert data["causes"] == {"native": 15.0}
    assert data["other"]["frame"] is None
    assert pickle.loads(pickle.dumps(profile)) == profile
    assert "5 rows" in repr(profile)
    with pytest.raises(AttributeError):
        profile.seconds = 1.0  # type: ignore[misc]


def test_an_empty_one() -> None:
    profile = Profile()
    assert not profile
    assert (profile.rows, profile.seconds, profile.samples) == ((), 0.0, 0)
    assert profile.other == ProfileRow(None, 0.0, 0.0, 0)


# --- records ---


class FakeSlot:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def profile(self, slow: bool, timeout_ns: int) -> Any:  # noqa: ARG002
        return self.answers.pop(0) if self.answers else None


def account(number: int, *, kind: str = "profile", **changes: Any) -> Any:
    made = {
        "id": number,
        "kind": kind,
        "samples": [packed(0, 100, 0, "python"), packed(0, 50, 1, "lock", task=-1)],
        "tallied": [(2, 0), (1, 0)],
        "tasks": [(1, "", "main")],
    }
    return record(**made | changes)


def profiler(*answers: Any, **options: Any) -> Profiler:
    given = {"own": (), "redact": None, "on_reporter": lambda: False}
    return Profiler(FakeSlot(*answers), **given | options)


def test_a_record_is_blamed_as_a_stall_would_be() -> None:
    made = profiler()
    made.take(account(1))
    profile = made.read(slow=False)
    assert [(row.frame and row.frame.qualname, row.seconds, row.samples) for row in profile] == [
        ("load", 0.1, 2),
        ("main", 0.05, 1),
    ]
    assert dict(profile.tasks) == {"main": 0.1}
    assert dict(profile.causes) == {Verdict.PYTHON: 0.1, Verdict.LOCK: 0.05}
    assert not made.read(slow=True)


def test_own_code_is_what_the_options_say() -> None:
    made = profiler(own=(LIBRARY.rpartition("/")[0],))
    made.take(account(1))
    assert "send" in names(made.read(slow=False))


def test_gil_blames_its_holder_or_nobody() -> None:
    samples = [
        packed(0, 100, 0, "gil", holder_stack=1, holder=0),
        packed(0, 50, 0, "gil", holder_stack=-1, holder=-1),
    ]
    made = profiler()
    made.take(account(1, samples=samples, holders=[(4242, 4242)]))
    profile = made.read(slow=False)
    assert names(profile) == ["main"]
    assert profile.other.seconds == pytest.approx(0.05)
    assert dict(profile.causes) == {Verdict.GIL: pytest.approx(0.15)}


def test_slow_turns_have_their_worst() -> None:
    made = profiler()
    made.take(account(1, kind="slow", tallied=[(2, 60 * MS), (1, 40 * MS)]))
    assert [(row.worst, row.samples) for row in made.read(slow=True)] == [(0.06, 2), (0.04, 1)]
    assert not made.read(slow=False)


def test_redact_is_asked_for_coroutines() -> None:
    made = profiler(redact=lambda text: text.replace("main", "***"))
    made.take(account(1))
    assert dict(made.read(slow=False).tasks) == {"***": 0.1}


def test_reading_includes_what_the_watchdog_has() -> None:
    made = profiler(account(1), account(2))
    assert made.read(slow=False).samples == 3
    assert made.read(slow=False).samples == 6
    assert made.read(slow=False).samples == 6


def test_reading_waits_for_records_that_are_on_their_way() -> None:
    made = profiler(account(2))
    threading.Timer(0.05, made.take, [account(1)]).start()
    assert made.read(slow=False).samples == 6


def test_reading_gives_up_on_records_that_never_come() -> None:
    made = profiler(account(9))
    began = time.monotonic()
    assert made.read(slow=False).samples == 3
    assert time.monotonic() - began < 5


def test_the_reporter_does_not_wait_for_itself() -> None:
    made = profiler(account(9), on_reporter=lambda: True)
    assert made.read(slow=False).samples == 3


def test_two_readers_at_once() -> None:
    made = profiler(account(3), account(2))
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(made.read(slow=False).samples)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    made.take(account(1))
    for thread in threads:
        thread.join()
    assert max(counts) == 9
