"""Stalls by verdict, counted; and what a Window says."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from loopwatch import Lag, Verdict, Window
from loopwatch._windows import CELLS_MAX, StallCounts, StallTotal

S = 10**9
MS = 10**6
PYTHON, GIL = Verdict.PYTHON, Verdict.GIL
VERDICTS = list(Verdict)


def test_every_verdict_has_a_total() -> None:
    assert dict(StallCounts().totals) == dict.fromkeys(Verdict, StallTotal(0, 0.0, 0.0))


def test_totals_add_up_by_verdict() -> None:
    counts = StallCounts()
    for verdict, length in [(PYTHON, 200 * MS), (PYTHON, 300 * MS), (GIL, 100 * MS)]:
        counts.add(verdict, length, 1000 * S)
    assert counts.totals[PYTHON] == StallTotal(2, 0.5, 0.3)
    assert counts.totals[GIL] == StallTotal(1, 0.1, 0.1)


def test_since_begins_with_a_second() -> None:
    counts = StallCounts()
    for second in (1000, 1001, 1003):
        counts.add(PYTHON, 250 * MS, second * S + 7)
    how_many, seconds = counts.since(1001 * S + S // 2)
    assert (how_many[PYTHON], seconds[PYTHON], how_many[GIL], seconds[GIL]) == (2, 0.5, 0, 0.0)
    assert counts.by_second() == {1000: 1, 1001: 1, 1003: 1}


def test_what_is_kept_is_an_hour_and_five_minutes() -> None:
    counts = StallCounts()
    for second in range(2 * CELLS_MAX):
        counts.add(PYTHON, MS, second * S)
    assert set(counts.by_second()) == set(range(CELLS_MAX, 2 * CELLS_MAX))
    assert counts.since((2 * CELLS_MAX - 300) * S)[0][PYTHON] == 300
    assert counts.totals[PYTHON].count == 2 * CELLS_MAX


def test_memory_is_bounded() -> None:
    counts = StallCounts()
    tracemalloc.start()
    for i in range(10_000):
        counts.add(VERDICTS[i % len(VERDICTS)], MS, i * S)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 2 * 2**20


def window() -> Window:
    return Window(
        [(1, 2)], turns=2, busy_ns=20, idle_ns=20, gil_wait_ns=None, max_ns=10,
        seconds=60.0, stalls={PYTHON: 1}, stalled={PYTHON: 0.25},
    )  # fmt: skip


def test_a_window_is_a_lag_that_says_what_it_covers() -> None:
    seen = window()
    assert isinstance(seen, Lag)
    assert (seen.utilization, seen.seconds, seen.stalls[PYTHON]) == (0.5, 60.0, 1)
    said = json.loads(json.dumps(seen.to_dict()))
    assert (said["seconds"], said["stalls"], said["stalled"]) == (60.0, {"python": 1}, {"python": 0.25})
    assert said["quantiles"].keys() == said["waiting"].keys()


def test_repr_says_that_it_is_a_window() -> None:
    assert repr(window()).startswith("<Window turns=2 utilization=0.500 ")


def test_windows_cannot_be_subtracted() -> None:
    with pytest.raises(TypeError, match="interval already"):
        window() - window()
