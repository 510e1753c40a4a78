"""The summary of a run, from what its processes left: lines, and the pages of those that were killed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from loopwatch import Verdict, _page
from loopwatch._stall import OWN
from loopwatch.cli import _pages, _records

LAG = {"turns": 10, "busy": 1.0, "idle": 3.0}
HEARTBEAT = {"turns": None, "busy": 1.0, "idle": None}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def load(
        lags: list[dict[str, Any]], body: dict[str, Any] | None = None, stalls: Any = ()
    ) -> _records.Run:
        """One process for each lag; one more that left the page, and wrote of the stalls."""
        lines = [{"kind": "stall", "pid": 99, "stall": stall} for stall in stalls]
        lines += [{"kind": "loop", "pid": pid, "watch": 1, "lag": lag} for pid, lag in enumerate(lags, 1)]
        (tmp_path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (tmp_path / "loops").write_text("99 1\n" if body is not None else "")
        monkeypatch.setattr(_page, "find", lambda pid: Path(f"{pid}.page"))
        page = _page.Page(tmp_path, {"pid": 99}, body or {}, owner=os.geteuid())
        monkeypatch.setattr(_pages, "read", lambda _: page)
        return _records.load(tmp_path)

    return load


def first(run: _records.Run) -> str:
    return next(iter(_records.summary(run, 0.1)))


def test_what_is_known_is_added_up(run: Any) -> None:
    page = {"loops": [{"key": 1, "turns": 5, "busy": 2_000_000_000, "idle": 0}]}
    assert "watched in 2 processes: 20 turns, busy 25% of 8.00 s" in first(run([LAG, LAG]))
    assert "15 turns, busy 50% of 6.00 s" in first(run([LAG], page))
    not_run_yet = {"loops": [{"key": 1, "pulse": "turn"}]}
    assert "10 turns, busy 25% of 4.00 s" in first(run([LAG], not_run_yet))


def test_what_a_pulse_cannot_tell_is_not_nought(run: Any) -> None:
    page = {"loops": [{"key": 1, "pulse": "heartbeat", "busy": 2_000_000_000}]}
    for seen in (run([HEARTBEAT]), run([LAG, HEARTBEAT]), run([], page), run([LAG], page)):
        assert first(seen).endswith(": - turns, busy -")


def current(causes: dict[str, int], key: int = 1) -> dict[str, Any]:
    return {"id": 7, "key": key, "begin": 0, "seen": 3_000_000_000, "verdict": "gil", "causes": causes}


def test_what_a_killed_process_was_blocked_in_counts(run: Any) -> None:
    causes = {"gil": 1_500_000_000, "python": 500_000_000, "not-scheduled": 1_000_000_000}
    seen = run([], {"loops": [], "current": [current(causes)]})
    assert seen.worst_own == 2.0
    assert list(_records.summary(seen, 0.1))[-1] == "  at its end blocked for 3.00 s: gil"
    assert run([], {"loops": [], "current": []}).worst_own == 0.0


def reported(*, ongoing: bool) -> dict[str, Any]:
    stall = {"id": 7, "duration": 1.0, "verdict": "gil", "breakdown": {"gil": 1.0}, "culprit": None}
    return stall | {"ongoing": ongoing}


def test_a_page_is_newer_than_an_ongoing_report(run: Any) -> None:
    page = {"loops": [], "current": [current({"gil": 3_000_000_000})]}
    seen = run([], page, [reported(ongoing=True)])
    assert seen.worst_own == 3.0
    assert [line for line in _records.summary(seen, 0.1) if "blocked for" in line] == [
        "  at its end blocked for 3.00 s: gil"
    ]
    seen = run([], page, [reported(ongoing=False)])
    assert (len(seen.stalls), seen.unfinished, seen.worst_own) == (1, [], 1.0)
    seen = run([], {"loops": [], "current": []}, [reported(ongoing=True)])
    assert (seen.stalls, seen.worst_own) == ([], 1.0)
    assert "no stall" not in " ".join(_records.summary(seen, 0.1))


def test_who_is_own() -> None:
    """Every verdict is the program's doing, or the machine's, or the collector's."""
    others = {Verdict.SUSPENDED, Verdict.NOT_SCHEDULED, Verdict.GC, Verdict.UNKNOWN}
    assert set(OWN) | others == set(Verdict)
    assert not set(OWN) & others
