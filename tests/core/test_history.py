"""The last hour by the second, and the last minutes in full: held against a twin that forgets nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hooking import new_slot
from hypothesis import example, given
from hypothesis import strategies as st
from reference import histogram
from reference.history import Cell, History, S, Span, Window

from loopwatch import _testcore as core
from loopwatch._buckets import NativeBuckets
from loopwatch._lag import Lag

MS = 10**6
START = 1000 * S
"""When the clock of these tests begins."""
MARK = 5 * S
HOUR = 3600

lengths = st.one_of(
    st.integers(1, 2 * MS),
    st.integers(100 * MS, 3 * S),
    st.integers(4 * S, 20 * S),
    st.sampled_from([S // 2, S, 2 * S, 5 * S, 40 * S, 2 * HOUR * S]),
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Turns and waits that take turns, in runs with a time between them."""
    at = START + draw(st.integers(0, S - 1))
    spans: list[Span] = []
    for length, chance in draw(st.lists(st.tuples(lengths, st.integers(0, 9)), min_size=1, max_size=120)):
        last = spans[-1].kind if spans else "off"
        kind = "busy" if last != "busy" else "off" if chance == 0 else "wait"
        gil = length * chance // 20 if kind == "busy" and chance > 5 else 0
        spans.append(Span(kind, at, at + length, gil if gil >= MS // 10 else 0))
        at += length
    return History(spans)


def played(history: History) -> Any:
    slot = new_slot()
    core.history_play(slot, list(history.calls()))
    return slot


def cells(slot: Any, now: int, n: int) -> list[Cell]:
    return [
        Cell(number, busy, idle, worst, gil_wait)
        for number, _, busy, idle, worst, gc, gil_wait in core.history_cells(slot, now, n)
        if gc is None  # nobody stamps collections here
    ]


def window(slot: Any, now: int, length: int) -> tuple[int, Window]:
    """(begin, what was seen since then)"""
    buckets, sums, begin, end = core.history_window(slot, now, length)
    assert end == now
    return begin, Window(
        list(NativeBuckets(buckets)),
        sums["turns"],
        sums["busy_ns"],
        sums["idle_ns"],
        sums["gil_wait_ns"],
        sums["max_ns"],
    )


# --- cells ---


@given(histories(), st.sampled_from([1, 2, 60, HOUR]))
def test_cells_are_those_of_the_twin(history: History, n: int) -> None:
    assert cells(played(history), history.now, n) == history.cells(n)


@given(histories())
def test_cells_read_at_any_moment_are_those_of_the_twin(history: History) -> None:
    slot = new_slot()
    for i, span in enumerate(history.spans):
        before = list(History(history.spans[:i]).calls())
        core.history_play(slot, list(History(history.spans[: i + 1]).calls())[len(before) :])
        for now in {span.begin, (span.begin + span.end) // 2, span.end}:
            so_far = History([*history.spans[:i], span._replace(end=now)])
            assert cells(slot, now, 5) == so_far.cells(5)


def test_a_long_turn_is_spread_over_its_seconds() -> None:
    at = START + S * 3 // 4
    history = History([Span("busy", at, at + 2 * S), Span("wait", at + 2 * S, at + 3 * S)])
    assert cells(played(history), history.now, HOUR) == [
        Cell(1000, S // 4, 0, S // 4, 0),
        Cell(1001, S, 0, S * 5 // 4, 0),
        Cell(1002, S * 3 // 4, S // 4, 2 * S, 0),
        Cell(1003, 0, S * 3 // 4, 0, 0),
    ]


def test_a_turn_that_goes_on_shows() -> None:
    slot = played(History([Span("busy", START, START)]))
    assert cells(slot, START + S * 5 // 2, HOUR) == [
        Cell(1000, S, 0, S, 0),
        Cell(1001, S, 0, 2 * S, 0),
        Cell(1002, S // 2, 0, S * 5 // 2, 0),
    ]


def test_a_loop_that_never_ran_has_no_cells_and_an_empty_window() -> None:
    slot = new_slot()
    core.history_play(slot, [])
    assert core.history_cells(slot, START, HOUR) == []
    buckets, sums, begin, end = core.history_window(slot, START, 60 * S)
    assert (buckets, begin, end, set(sums.values())) == ((b"", b""), 0, 0, {0})


def test_a_loop_that_is_not_watched_any_more_stands_still() -> None:
    spans = [Span("busy", START, START + S // 2), Span("wait", START + S // 2, START + S)]
    slot = played(History(spans))
    slot.retire(0)
    assert cells(slot, START + 100 * S, HOUR) == [Cell(1000, S // 2, 0, S // 2, 0)]
    _, sums, _, end = core.history_window(slot, START + 100 * S, 60 * S)
    assert (sums["busy_ns"], sums["idle_ns"], end) == (S // 2, 0, START + S // 2)


@pytest.mark.parametrize("n", [0, HOUR + 1, -1, 2**70])
def test_only_an_hour_is_kept(n: int) -> None:
    with pytest.raises(ValueError, match="3600"):
        new_slot().cells(n)


# --- windows ---


def check_window(slot: Any, history: History, length: int) -> None:
    begin, seen = window(slot, history.now, length)
    since = history.now - length
    assert seen == history.window(begin)
    assert begin >= history.origin
    assert begin <= max(since, history.origin)
    # A mark each five seconds, when a second ends; and a turn is not cut.
    turn = max((s.end - s.begin for s in history.spans if s.kind == "busy" and s.begin <= since), default=0)
    assert begin >= since - MARK - S - turn or begin == history.origin


@given(histories(), st.integers(1, 300 * S) | st.sampled_from([S, 60 * S, 300 * S]))
@example(History([Span("busy", START, START + 1), Span("wait", START + 1, START + HOUR * S)]), 60 * S)
def test_a_window_is_that_of_the_twin(history: History, length: int) -> None:
    check_window(played(history), history, length)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_window_of_a_loop_that_never_rests(seed: int, repeats: int) -> None:
    spans, at, number = [], START, seed
    for i in range(repeats * 40):
        number = number * 1664525 + 1013904223 & 0xFFFFFFFF
        length = 1 + (number >> 8) % (600 * MS if i % 2 else 40 * MS)
        spans.append(Span("busy" if i % 2 == 0 else "wait", at, at + length))
        at += length
    history = History(spans)
    slot = played(history)
    for length in (S, 10 * S, 60 * S, 299 * S, 300 * S):
        check_window(slot, history, length)


def test_an_idle_loop_has_a_window_of_just_that_length() -> None:
    turn = [Span("busy", START, START + S)]
    history = History([*turn, Span("wait", START + S, START + 1000 * S)])
    begin, seen = window(played(history), history.now, 60 * S)
    assert (history.now - begin, seen) == (60 * S, Window([], 0, 0, 60 * S, 0, 0))
    woken = History([*history.spans, Span("busy", history.now, history.now + MS)])
    begin, seen = window(played(woken), woken.now, 60 * S)
    assert woken.now - begin == 60 * S
    assert (seen.turns, seen.busy, seen.idle) == (1, MS, 60 * S - MS)


def test_a_turn_that_goes_on_counts_in_the_window() -> None:
    slot = played(History([Span("busy", START, START)]))
    begin, seen = window(slot, START + 100 * S, 60 * S)
    assert begin == START
    assert seen == Window([(histogram.bucket(100 * S), 1)], 1, 100 * S, 0, 0, 100 * S)


def test_time_without_a_run_is_neither_busy_nor_idle() -> None:
    history = History(
        [
            Span("busy", START, START + S),
            Span("wait", START + S, START + 100 * S),
            Span("busy", START + 100 * S, START + 101 * S),
            Span("off", START + 101 * S, START + 131 * S),
            Span("busy", START + 131 * S, START + 132 * S),
        ]
    )
    begin, seen = window(played(history), history.now, 60 * S)
    assert (history.now - begin, seen.busy, seen.idle) == (60 * S, 2 * S, 28 * S)


def evenly(rich: Callable[[int], bool], seconds: int) -> History:
    """Turns in 350 buckets every five seconds, where that is rich; else one in five seconds."""
    spans, at = [], START
    short = [edge for edge in histogram.EDGES if 0 < edge < 2 * MS][::4]
    while at < START + seconds * S:
        for length in short if rich((at - START) // S) else [MS]:
            spans += [Span("busy", at, at + length), Span("wait", at + length, at + length + 1)]
            at = spans[-1].end
        end = at + 5 * S - at % (5 * S)
        spans[-1] = spans[-1]._replace(end=end)
        at = end
    return History(spans)


@pytest.mark.parametrize(
    "rich", [lambda _: True, lambda at: at > 400, lambda at: at < 400, lambda at: at % 60 < 20]
)
def test_windows_of_rich_and_of_poor_histograms(rich: Callable[[int], bool]) -> None:
    """What is kept of them lies in a ring, in pieces of a few bytes to some thousand."""
    history = evenly(rich, 700)
    slot = new_slot()
    calls, done = list(history.calls()), 0
    for part in (0.6, 0.8, 0.9, 1.0):
        so_far = History(history.spans[: round(len(history.spans) * part)])
        known = sum(1 for _ in so_far.calls())
        core.history_play(slot, calls[done:known])
        done = known
        for length in (30 * S, 299 * S):
            check_window(slot, so_far, length)


def test_too_many_bytes_cost_the_oldest_marks_first() -> None:
    """No loop fills each bucket in five seconds: that takes an hour. Then five minutes are not kept, and what is
    kept is right."""
    slot = new_slot()
    filled, at = [], START
    core.history_play(slot, [("run_begin", START), ("wait", START)])
    for i in range(200):
        at += 5 * S
        filled.append((at, 3_000_000 + i))
        core.history_play(slot, [("back", at), ("fill", filled[-1][1]), ("wait", at)])
        packed, _, begin, _ = core.history_window(slot, at + S, 300 * S)
        buckets = NativeBuckets(packed)
        expected = sum(n for when, n in filled if when > begin)
        # The first bucket also has the turns of no time that end the waits.
        assert {count for bucket, count in buckets if bucket} == {expected}
        assert len(buckets) == histogram.BUCKETS
        if i > 60:
            assert 200 * S < at + S - begin < 300 * S


# --- read while it is written ---


def test_a_reader_beside_the_writer_sees_whole_seconds_and_windows() -> None:
    looks, wrong_cells, wrong_windows, nothing = core.history_race(new_slot(), START + 123, 400)
    assert looks > nothing, "the reader never got through: nothing was tested"
    assert (wrong_cells, wrong_windows) == (0, 0)


# --- memory ---


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")
def test_an_hour_of_100_000_stalls_takes_no_more_memory_than_is_set_aside() -> None:
    calls = [("run_begin", START)]
    lengths = [edge for edge in histogram.EDGES if edge > 10 * MS and edge < 60 * MS]
    at = START
    for i in range(100_000):
        at += lengths[i % len(lengths)]
        calls.append(("wait", at))
        at += MS
        calls.append(("back", at))
    slot = new_slot()
    slot.threshold_ns = MS
    core.history_play(slot, [])
    before = resident_bytes()
    core.history_play(slot, calls)
    grown = resident_bytes() - before
    assert grown < 2 * 2**20, "cells of an hour have 144 kB, marks at most 1 MB, a slot 60 kB"
    assert core.history_window(slot, at, 300 * S)[1]["turns"] > 1000


# --- other pulses ---


def test_turns_of_libuv_are_cut_like_others() -> None:
    slot = new_slot()  # the calls are what counts, not the kind: an "uv" slot has a libuv to ask
    back = START + S * 3 // 2
    core.history_play(
        slot, [("run_begin", START), ("wait", START + MS), ("turn", back, back + S), ("run_end", back + S)]
    )
    assert cells(slot, back + S, HOUR) == [
        Cell(1000, MS, S - MS, MS, 0),
        Cell(1001, S // 2, S // 2, S // 2, 0),
        Cell(1002, S // 2, 0, S, 0),
    ]


def test_a_late_heartbeat_is_busy_since_it_was_due() -> None:
    slot = new_slot(pulse="heartbeat")
    due = START + 50 * MS
    core.history_play(
        slot, [("run_begin", START), ("beat", START, due), ("beat", due + 2 * S, due + 2 * S + 50 * MS)]
    )
    late = due + 2 * S
    assert cells(slot, late, HOUR) == [
        Cell(1000, 950 * MS, 0, 950 * MS, 0),
        Cell(1001, S, 0, S + 950 * MS, 0),
        Cell(1002, 50 * MS, 0, 2 * S, 0),
    ]
    assert cells(slot, late + 50 * MS + 7, 1)[0].busy == 50 * MS + 7, "the next one is late too"


# --- a fork in the middle ---


def test_what_a_fork_interrupted_is_given_up_and_begun_anew() -> None:
    spans = [Span("busy", START, START + S), Span("wait", START + S, START + 2 * S)]
    slot = played(History(spans))
    core.history_interrupt(slot)
    assert core.history_cells(slot, START + 2 * S, HOUR) == []
    assert core.history_window(slot, START + 2 * S, 60 * S)[2:] == (0, 0)
    core.history_forget(slot)
    at = START + 10 * S
    core.history_play(slot, [("back", at), ("wait", at + S // 2)])
    assert cells(slot, at + S // 2, HOUR)[-1] == Cell(1010, S // 2, 0, S // 2, 0)
    _, seen = window(slot, at + S // 2, S)
    assert (seen.turns, seen.busy) == (1, S // 2)


# --- what an event waits ---


@given(
    turns=st.dictionaries(st.integers(0, 33 * 128 - 1), st.integers(1, 10_000), max_size=40),
    idle=st.integers(0, HOUR * S),
    q=st.sampled_from([0.5, 0.9, 0.99, 0.999]),
)
def test_waiting_is_what_lag_says(turns: dict[int, int], idle: int, q: float) -> None:
    """Lag.waiting is the reference; both count a turn as the middle of its bucket."""
    edge = core.histogram_edge
    busy = sum(count * (edge(bucket) + edge(bucket + 1)) // 2 for bucket, count in turns.items())
    rows = sorted(turns.items())
    lag = Lag(
        rows, turns=sum(turns.values()), busy_ns=busy, idle_ns=idle, gil_wait_ns=0, max_ns=None, edge=edge
    )
    wanted = (lag.waiting(q) or 0.0) * S
    assert core.history_waiting(rows, busy, idle, q) == pytest.approx(
        wanted, rel=1e-6, abs=2 * len(turns) + 2
    )
