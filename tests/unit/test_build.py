"""Records become stalls."""

import asyncio
from datetime import UTC, datetime

import pytest
from records import APP, LIBRARY, MS, packed, record

from loopwatch._build import Context, build_stall
from loopwatch._capture import INNERMOST, OUTERMOST, Captured, capture
from loopwatch._stall import Evidence, Frame, TaskInfo, Verdict


def test_a_whole_record():
    stall = build_stall(record(), Context())
    assert (stall.id, stall.thread, stall.native_thread_id) == (7, "MainThread", 99)
    assert stall.started_at == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert stall.duration == pytest.approx(0.3)
    assert not stall.ongoing
    assert not stall.overdue
    assert stall.verdict is Verdict.UNKNOWN
    assert stall.breakdown == {Verdict.UNKNOWN: stall.duration}
    assert stall.culprit == Frame(APP, 20, "load")
    assert stall.frames == (
        Frame(APP, 10, "main", 10, 4, 20),
        stall.culprit,
        Frame(LIBRARY, 5, "send", 5, 0, 9),
    )
    assert stall.sites == ((stall.culprit, pytest.approx(0.2)), (stall.frames[0], pytest.approx(0.1)))
    assert stall.task == TaskInfo("checkout", "main")
    assert stall.steps == {"tls": pytest.approx(0.05)}
    assert stall.evidence == Evidence()
    assert stall.holder is None
    assert stall.fingerprint


def test_samples():
    first, second = build_stall(record(), Context()).samples
    assert (first.offset, first.weight, first.quality) == (0.02, 0.2, "exact")
    assert (second.offset, second.weight, second.quality) == (0.22, 0.1, "moving")
    assert first.native_thread_id == second.native_thread_id == 99
    assert len(first.frames) == 3


def test_ongoing_and_overdue():
    stall = build_stall(record(kind="ongoing", overdue=True), Context())
    assert stall.ongoing
    assert stall.overdue


def test_the_task_is_the_culprits():
    """The longer part ran in a plain callback; the culprit's samples decide."""
    made = record(samples=[packed(0, 200, 0, task=-1), packed(200, 100, 1, task=0)])
    assert build_stall(made, Context()).task is None


def test_no_samples_at_all():
    stall = build_stall(record(samples=[], stacks=[], frames=[]), Context())
    assert stall.culprit is None
    assert stall.frames == stall.samples == stall.sites == ()
    assert stall.task is None
    assert stall.format()


def test_truncation_is_the_shown_stacks():
    made = record(samples=[packed(0, 200, 0, truncated=12), packed(200, 100, 1, truncated=3)])
    assert build_stall(made, Context()).truncated == 12


def test_redaction_reaches_task_and_source(tmp_path):
    path = tmp_path / "app.py"
    path.write_text("secret = open('secret')\n")
    made = record(frames=[(str(path), 1, "main", 1, 0, 5)], stacks=[[0]], samples=[packed(0, 300, 0)])
    made["tasks"] = [(1, "secret task", "main")]
    stall = build_stall(made, Context(redact=lambda text: text.replace("secret", "***")))
    assert stall.task == TaskInfo("*** task", "main")
    assert stall.source == {(str(path), 1): "*** = open('***')"}
    assert "secret" not in stall.format()


def test_the_name_of_a_task_in_pure_python_is_asked_of_it():
    async def main():
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(asyncio.sleep(0), name="by hand")
        made = record(tasks=[(id(task), "", "sleep")])
        stall = build_stall(made, Context(loop=loop))
        await task
        return stall.task

    assert asyncio.run(main()) == TaskInfo("by hand", "sleep")
    assert build_stall(record(tasks=[(1, "", "sleep")]), Context()).task == TaskInfo("", "sleep")


# --- capture="gil" ---


def look(at_ms, name="main", task=None):
    return Captured(3, at_ms * MS, (Frame(APP, 1, name),), 0, task)


def test_the_reporters_looks_stand_in_where_there_are_no_samples():
    task = TaskInfo("t", "main")
    captured = (look(1100, "f", task), look(1200, "g"))
    stall = build_stall(record(samples=[], stacks=[], frames=[]), Context(captured=captured))
    assert [(s.offset, s.weight, s.frames[0].qualname) for s in stall.samples] == [
        (0.1, pytest.approx(0.15), "f"),
        (0.2, pytest.approx(0.15), "g"),
    ]
    assert sum(sample.weight for sample in stall.samples) == pytest.approx(stall.duration)
    assert stall.culprit.qualname == "f"
    assert stall.task == task


def test_a_sample_without_frames_takes_the_nearest_look():
    samples = [
        packed(20, 100, -1, task=-1, quality="moving"),
        packed(250, 200, -1, task=-1, quality="moving"),
    ]
    stall = build_stall(record(samples=samples), Context(captured=(look(1030, "f"), look(1240, "g"))))
    assert [sample.frames[0].qualname for sample in stall.samples] == ["f", "g"]
    assert [sample.weight for sample in stall.samples] == [0.1, 0.2]


class Turn:
    """A slot, as far as capture() needs one; the turn may end while it looks."""

    def __init__(self, *turns):
        self._turns = list(turns)

    @property
    def turn(self):
        return self._turns.pop(0)


def test_capture_reads_this_thread():
    import threading

    seen = capture(record(kind="capture", ident=threading.get_ident()), Turn(3, 3), None)
    assert seen.frames[-1].qualname == "capture"
    assert test_capture_reads_this_thread.__name__ in [frame.qualname for frame in seen.frames]
    assert seen.frames[-2].colno is not None


@pytest.mark.parametrize("turns", [(4,), (3, 4)])
def test_a_turn_that_is_over_is_not_captured(turns):
    import threading

    assert capture(record(ident=threading.get_ident()), Turn(*turns), None) is None


def test_a_thread_that_is_gone_is_not_captured():
    assert capture(record(ident=1), Turn(3, 3), None) is None


def test_a_deep_stack_loses_its_middle():
    import threading

    def deeper(n):
        return capture(record(ident=threading.get_ident()), Turn(3, 3), None) if n == 0 else deeper(n - 1)

    import sys

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        seen = deeper(1500)
    finally:
        sys.setrecursionlimit(limit)
    assert len(seen.frames) == OUTERMOST + INNERMOST
    assert seen.truncated > 400
