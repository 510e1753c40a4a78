"""The files that run on the watchdog thread call nothing of Python's, so nothing there asks for the GIL.

Nor does the history, which a loop's thread writes also without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
WATCHDOG = [
    "evidence/call_target_linux.c", "evidence/cgroup_linux.c", "evidence/descriptor_text_linux.c",
    "evidence/gc_clock.c", "evidence/interval.c", "evidence/syscalls_linux.c",
    "evidence/thread_files_linux.c", "evidence/thread_files_portable.c", "evidence/verdict.c",
    "frames/code.c", "frames/dict.c", "frames/gil.c", "frames/linetable.c", "frames/snapshot.c",
    "frames/strings.c", "frames/task.c", "frames/view.c", "frames/walk.c", "histogram.c", "history/cells.c",
    "history/growth.c", "history/marks.c", "history/open.c", "history/waiting.c", "history/window.c",
    "memory/read.c", "memory/read_linux.c", "memory/read_memfd.c", "memory/read_pipe.c",
    "memory/read_portable.c", "park_linux.c", "park_portable.c", "profile/profile.c", "profile/sampler.c",
    "profile/slow.c", "profile/tally.c", "report/blame.c", "report/dump.c", "report/outbox.c", "report/own.c",
    "report/record.c", "report/report.c", "report/text.c", "routes/routes.c", "slot.c", "status/content.c",
    "status/note.c", "status/past.c", "status/status.c", "watch/ask.c", "watch/capture.c", "watch/eye.c",
    "watch/fdtable.c", "watch/fdtable_portable.c", "watch/look.c", "watch/observe.c", "watch/stacks.c",
    "watch/tracer_linux.c", "watch/tracer_portable.c", "watch/visit.c", "watch/watchdog.c",
]  # fmt: skip
COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', re.DOTALL)
CALLS = re.compile(r"\b_?Py[A-Za-z0-9]*_[A-Za-z0-9_]+\s*\(")
PURE = re.compile(r"^(?:Py_ARRAY_LENGTH|Py_TYPE)\b")
"""Macros. Py_TYPE is used on copies of objects' heads."""

ON_THE_LOOP_THREAD = {
    "frames/snapshot.c": {
        "PyThreadState_Get(",
        "PyThreadState_GetInterpreter(",
        "PyThread_get_thread_ident(",
    },
    "frames/gil.c": {"PyInterpreterState_Main("},
    "frames/walk.c": {"PyThreadState_Get("},
    "evidence/gc_clock.c": {"PyThread_get_thread_ident("},
}
"""lw_thread_ref_here(), lw_gil_setup(), lw_snapshot_top_here(), the stamp: their headers say that they need the GIL."""


def calls_of_python(path: Path) -> list[str]:
    code = COMMENT_OR_TEXT.sub(" ", path.read_text(encoding="utf-8"))
    return [call for call in CALLS.findall(code) if not PURE.match(call)]


@pytest.mark.parametrize("name", WATCHDOG)
def test_no_call_of_python(name: str) -> None:
    assert set(calls_of_python(SRC / name)) == ON_THE_LOOP_THREAD.get(name, set())


def test_the_search_finds_what_is_there() -> None:
    assert calls_of_python(SRC / "glue/py_slot.c")


def test_every_file_is_on_one_side_or_the_other() -> None:
    """A new file is a decision: does the watchdog run it?"""
    loop_side = {
        "evidence/gc_pauses.c", "evidence/gc_stamp.c", "frames/layout.c", "frames/running_loops.c",
        "frames/setup.c", "frames/task_setup.c", "frames/turn.c", "glue/py_ask.c", "glue/py_buckets.c",
        "glue/py_history.c", "glue/py_record.c", "glue/py_reporter.c", "glue/py_runs.c", "glue/py_slot.c",
        "glue/py_slot_view.c", "glue/py_status.c", "glue/state.c", "module.c", "process.c", "pulses/bind.c",
        "pulses/heartbeat.c", "pulses/hook.c", "pulses/pulse.c", "pulses/ready.c", "pulses/run_edge.c",
        "pulses/turn_select.c", "pulses/uv_handle.c", "pulses/uv_library.c", "pulses/uv_pulse.c",
        "pulses/uv_turns.c", "pulses/wrapped_select.c", "result.c", "routes/request.c", "routes/route.c",
        "routes/stepper.c", "runs/runs.c", "steps/step.c", "steps/steps.c", "yielding/checkpoint.c",
        "yielding/pace.c", "yielding/paced.c", "yielding/running_task.c",
    }  # fmt: skip
    here = {str(path.relative_to(SRC)) for path in SRC.rglob("*.c")}
    assert here == {name for name in WATCHDOG if name.endswith(".c")} | loop_side
