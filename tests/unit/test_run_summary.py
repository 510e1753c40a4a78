"""The summary of a run, from what its processes left: lines, and the pages of those that were killed."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from records import APP, BASE_EVENTS, sample, stall
from reported import loop_line

from loopwatch import Stall, Verdict, _page
from loopwatch._process import Process
from loopwatch._stall import OWN, Frame, own_seconds
from loopwatch.cli import _page_check, _records, _summary
from loopwatch.jsonl import stall_line

WHOLE_LAG = json.loads(loop_line(1))["lag"]
LAG = WHOLE_LAG | {"turns": 10, "busy": 1.0, "idle": 3.0}
HEARTBEAT = WHOLE_LAG | {"turns": None, "busy": 1.0, "idle": None}
KILLED = Process(99, "2026-12-01T09:00:00+00:00")
PAGE = {"at": 60_000_000_000, "wall": 1_800_000_000_000_000_000}
LOOP = {"key": 1, "pulse": "turn", "threshold": 100_000_000, "tid": 99}
STACK = (
    "Stack of the loop's thread (most recent call last):\n"
    "  ... 3 more frames\n"
    f'  File "{BASE_EVENTS}", line 1987, in BaseEventLoop._run_once\n'
    f'  File "{APP}", line 20, in load\n'
    "The GIL was held by thread 12:\n"
    f'  File "{APP}", line 30, in spin\n'
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def load(
        lags: list[dict[str, Any]],
        body: dict[str, Any] | None = None,
        stalls: Sequence[Stall] = (),
        start: int = 4711,
    ) -> _records.Run:
        """One process for each lag; one more that left the page, and wrote of the stalls."""
        lines = [stall_line(each, process=KILLED) for each in stalls]
        lines += [loop_line(1, pid=pid, lag=lag) for pid, lag in enumerate(lags, 1)]
        (tmp_path / "records").write_bytes(b"".join(lines))
        noted = f"{KILLED.started} 4711"
        (tmp_path / "loops").write_text(f"99 - {noted}\n99 1 {noted}\n" if body else "")
        monkeypatch.setattr(_page, "find", lambda pid: Path(f"{pid}.page"))
        head = {"pid": 99, "created": 1_799_000_000_000_000_000, "start": start}
        page = _page.Page(tmp_path / "99.page", head, PAGE | (body or {}), owner=os.geteuid())
        monkeypatch.setattr(_page_check, "read", lambda _: page)
        return _records.load(tmp_path / "records", tmp_path / "loops")

    return load


def said(run: _records.Run) -> list[str]:
    return list(_summary.summary(run, 0.1))


def worst_own(run: _records.Run) -> float:
    return own_seconds(run.worst_own.breakdown) if run.worst_own else 0.0


def test_what_is_known_is_added_up(run: Any) -> None:
    page = {"loops": [LOOP | {"turns": 5, "busy": 2_000_000_000, "idle": 0}]}
    assert "watched in 2 processes: 20 turns, busy 25% of 8.00 s" in said(run([LAG, LAG]))[0]
    assert "15 turns, busy 50% of 6.00 s" in said(run([LAG], page))[0]
    not_run_yet = {"loops": [LOOP]}
    assert "10 turns, busy 25% of 4.00 s" in said(run([LAG], not_run_yet))[0]


def test_the_turn_that_goes_on_counts(run: Any) -> None:
    loop = LOOP | {"turns": 5, "busy": 2_000_000_000, "idle": 0, "phase": "busy", "since": 58_000_000_000}
    seen = run([], {"loops": [loop]})
    assert (seen.busy, seen.idle) == (4.0, 0.0)
    assert json.loads(seen.more[0])["lag"]["max"] == 2.0


def test_what_a_pulse_cannot_tell_is_not_nought(run: Any) -> None:
    page = {"loops": [LOOP | {"pulse": "heartbeat", "busy": 2_000_000_000}]}
    for seen in (run([HEARTBEAT]), run([LAG, HEARTBEAT]), run([], page), run([LAG], page)):
        assert said(seen)[0].endswith(": - turns, busy -")


def current(causes: dict[str, int], key: int = 1, **more: Any) -> dict[str, Any]:
    begin, seen = 57_000_000_000, 60_000_000_000
    return {"id": 7, "key": key, "begin": begin, "seen": seen, "verdict": "gil", "causes": causes, **more}


def test_what_a_killed_process_was_blocked_in_counts(run: Any) -> None:
    causes = {"gil": 1_500_000_000, "python": 500_000_000, "not-scheduled": 1_000_000_000}
    seen = run([], {"loops": [], "current": [current(causes)]})
    assert worst_own(seen) == 2.0
    assert said(seen)[-1] == "  at its end blocked for 3.00 s: gil"
    assert run([], {"loops": [], "current": []}).worst_own is None


def test_a_page_s_stall_is_a_stall(run: Any) -> None:
    where = {"function": "spin", "file": APP, "line": 30, "task": "Task-1", "coroutine": "main"}
    body = {"loops": [LOOP], "current": [current({"gil": 3_000_000_000}, **where, stack=STACK)]}
    (made,) = run([], body).unfinished
    assert made == Stall.from_dict(made.to_dict())
    assert made.ongoing
    assert made.culprit == Frame(APP, 30, "spin")
    assert made.frames == (made.culprit,), "of the thread to blame"
    assert made.holder is not None
    assert made.holder.native_thread_id == 12
    assert (sum(each.weight for each in made.samples), made.duration) == (3.0, 3.0)
    assert "was held" not in made.summary
    assert "spin" in made.format()


def test_the_loop_s_own_stack(run: Any) -> None:
    where = {"function": "load", "file": APP, "line": 20}
    body = {"loops": [LOOP], "current": [current({"python": 3_000_000_000}, **where, stack=STACK)]}
    (made,) = run([], body).unfinished
    assert [frame.qualname for frame in made.frames] == ["BaseEventLoop._run_once", "load"]
    assert made.truncated == 3


def reported(*, ongoing: bool, **changes: Any) -> Stall:
    return stall(duration=1.0, breakdown={Verdict.GIL: 1.0}, culprit=None, ongoing=ongoing, **changes)


def test_a_page_is_newer_than_an_ongoing_report(run: Any) -> None:
    page = {"loops": [], "current": [current({"gil": 3_000_000_000})]}
    seen = run([], page, [reported(ongoing=True)])
    assert worst_own(seen) == 3.0
    assert [line for line in said(seen) if "blocked for" in line] == ["  at its end blocked for 3.00 s: gil"]
    seen = run([], page, [reported(ongoing=False)])
    assert (len(seen.stalls), seen.unfinished, worst_own(seen)) == (1, [], 1.0)
    assert not seen.more
    seen = run([], {"loops": [], "current": []}, [reported(ongoing=True)])
    assert (seen.stalls, worst_own(seen)) == ([], 1.0)
    assert "no stall" not in " ".join(said(seen))


def test_an_ongoing_report_keeps_what_a_page_does_not_say(run: Any) -> None:
    frame = Frame(APP, 20, "load")
    before = reported(ongoing=True, samples=(sample(1.0, frame),), labels={"route": "/"})
    page = {"loops": [], "current": [current({"gil": 3_000_000_000}, stack=STACK)]}
    (made,) = run([], page, [before]).unfinished
    assert made.labels == {"route": "/"}
    assert [each.weight for each in made.samples] == [1.0, 2.0]


def test_a_page_of_another_process_says_nothing(run: Any) -> None:
    page = {"loops": [LOOP | {"turns": 5, "busy": 2_000_000_000, "idle": 0}]}
    assert run([], page).turns == 5
    assert run([], page, start=4712).turns == 0


def test_a_last_line_is_not_replaced_by_an_older_page(run: Any, tmp_path: Path) -> None:
    page = {
        "loops": [LOOP | {"turns": 5, "busy": 2_000_000_000, "idle": 0}],
        "wall": 1_790_000_000_000_000_000,
    }
    run([], page)
    (tmp_path / "records").write_bytes(loop_line(1, pid=KILLED.pid, started=KILLED.started, lag=LAG))
    seen = _records.load(tmp_path / "records", tmp_path / "loops")
    assert (seen.turns, seen.more) == (10, [])


def test_lines_and_pages_of_somebody_else_are_left_out(run: Any, tmp_path: Path) -> None:
    """What the program's end was must not depend on them."""
    page = {"loops": [LOOP], "current": [current({"by magic": 3_000_000_000})], "gc": [7]}
    assert run([], page).unfinished == []
    (tmp_path / "records").write_text(
        '[]\n{"kind":"loop","pid":1,"watch":1}\n{"kind":"stall"}\n7\nnonsense\n'
    )
    assert _records.load(tmp_path / "records", tmp_path / "loops").turns == 0


def test_lines_after_a_torn_one_can_be_read(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.write_bytes(b'{"kind":"sta')
    _records.append([b"{}\n"], records)
    assert records.read_bytes() == b'{"kind":"sta\n{}\n'
    records.unlink()
    _records.append([b"{}\n"], records)
    assert records.read_bytes() == b"{}\n"


# --- words ---

REGEX, OTHER = Frame(APP, 28, "regex"), Frame(APP, 40, "other")


def without_a_cpu(number: int, own: Verdict, seconds: float, frame: Frame) -> Stall:
    """Where the machine took most of it."""
    looks = ((3.0, Verdict.NOT_SCHEDULED), (seconds, own))
    samples = tuple(dataclasses.replace(sample(part, frame), verdict=verdict) for part, verdict in looks)
    breakdown = {verdict: part for part, verdict in looks}
    return stall(
        id=number, duration=3.0 + seconds, breakdown=breakdown, samples=samples, culprit=None, frames=(frame,)
    )


def test_where_the_loop_stood_without_a_cpu(run: Any) -> None:
    stalls = [without_a_cpu(1, Verdict.NATIVE, 2.4, REGEX), without_a_cpu(2, Verdict.PYTHON, 0.1, OTHER)]
    assert said(run([LAG], None, stalls))[2] == (
        "     2 x not-scheduled, mostly while in regex (orders.py:28): 8.50 s, at most 5.40 s"
    )


def test_which_stall_was_too_long(run: Any) -> None:
    stalls = [without_a_cpu(1, Verdict.NATIVE, 2.4, REGEX), reported(ongoing=False, id=2)]
    seen = run([LAG], None, stalls)
    assert _summary.failure(seen, 0.3, "300ms") == (
        "loopwatch: failed: native 2.40 s in regex (orders.py:28), over --fail-over 300ms"
    )
    assert _summary.failure(seen, 2.5, "2500ms") == ""
    seen.complete = False
    assert _summary.failure(seen, 2.5, "2500ms") == "loopwatch: failed: --fail-over 2500ms cannot be judged"


def test_an_import_that_was_too_long(run: Any) -> None:
    """It has no cost by the plugin's measure; here it counts as what it is."""
    importing = Frame("<frozen importlib._bootstrap>", 1360, "_find_and_load")
    where = Frame(APP, 3, "importing slow")
    taken = dataclasses.replace(sample(1.2, where, importing), verdict=Verdict.BLOCKING_CALL)
    long = stall(
        duration=1.2, breakdown={Verdict.BLOCKING_CALL: 1.2}, samples=(taken,), frames=(where,), culprit=where
    )
    assert _summary.failure(run([LAG], None, [long]), 0.3, "300ms") == (
        "loopwatch: failed: blocking-call 1.20 s in importing slow (orders.py:3), over --fail-over 300ms"
    )


def test_records_that_are_none(run: Any, tmp_path: Path) -> None:
    """The program may have put anything there: the run ends as it does."""
    run([LAG])
    records = tmp_path / "records"
    with records.open("ab") as file:
        file.write(b"[" * 100_000 + b"\n\xff\xfe\n7\n")
    (tmp_path / "loops").write_bytes(b"\xff 1 2 3\n")
    assert _records.load(records, tmp_path / "loops").turns == 10
    records.unlink()
    records.mkdir()
    assert _records.load(records, tmp_path).loops == set()


def test_what_is_not_known_is_said(run: Any) -> None:
    seen = run([LAG], {"loops": []})
    assert said(seen)[0].endswith("2 event loops were watched in 2 processes: 10 turns, busy 25% of 4.00 s")
    assert "  nothing is known of 1 of them: a process ended without a word" in said(seen)
    assert said(run([], {"loops": []}))[0].endswith(": - turns, busy -")


def test_a_process_that_became_another_by_exec_counts_anew(run: Any, tmp_path: Path) -> None:
    later = Process(KILLED.pid, "2026-12-01T09:00:05+00:00")
    run([], {"loops": [LOOP | {"turns": 5, "busy": 2_000_000_000, "idle": 0}]})
    stalls = [stall_line(reported(ongoing=False, id=7), process=each) for each in (KILLED, later)]
    end = loop_line(1, pid=KILLED.pid, started=KILLED.started, lag=LAG)
    (tmp_path / "records").write_bytes(b"".join([*stalls, end]))
    noted = "".join(
        f"{each.pid} {key} {each.started} 4711\n" for each in (KILLED, later) for key in ("-", "1")
    )
    (tmp_path / "loops").write_text(noted)
    seen = _records.load(tmp_path / "records", tmp_path / "loops")
    assert (len(seen.stalls), len(seen.loops)) == (2, 2)
    assert seen.turns == 15, "the page is the later one's"


def test_one_stall_is_not_said_twice(run: Any) -> None:
    assert said(run([LAG], None, [stall()]))[1:] == [
        "  1 stall, 300 ms",
        "     1 x unknown in load (orders.py:20): 300 ms",
    ]


def test_who_is_own() -> None:
    """Every verdict is the program's doing, or the machine's, or the collector's."""
    others = {Verdict.SUSPENDED, Verdict.NOT_SCHEDULED, Verdict.GC, Verdict.UNKNOWN}
    assert set(OWN) | others == set(Verdict)
    assert not set(OWN) & others
