"""Records and stalls to test with."""

from __future__ import annotations

import asyncio.base_events
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from loopwatch._stall import Frame, Sample, Stall, TaskInfo, Verdict

MS = 1_000_000

BASE_EVENTS = asyncio.base_events.__file__
LIBRARY = "/srv/venv/lib/python3.12/site-packages/driver/client.py"
EVIDENCE = (
    "cpu_ns",
    "run_queue_ns",
    "throttled_ns",
    "gil_wait_ns",
    "gc_ns",
    "gc_generation",
    "major_faults",
    "callbacks",
    "watchdog_late_ns",
    "syscall",
    "target",
)
APP = "/srv/app/shop/orders.py"


def packed(
    offset_ms: float,
    weight_ms: float,
    stack: int,
    verdict: str = "unknown",
    *,
    task: int = 0,
    holder_stack: int = -1,
    holder: int = -1,
    quality: str = "exact",
    truncated: int = 0,
) -> Any:
    """A sample of a record."""
    offset_ns, weight_ns = round(offset_ms * MS), round(weight_ms * MS)
    return offset_ns, weight_ns, stack, quality, truncated, task, holder_stack, holder, verdict


def evidence(**known: Any) -> Any:
    """A record's evidence; None unless given."""
    nothing = dict.fromkeys(EVIDENCE)
    assert known.keys() <= nothing.keys()
    return nothing | known


def record(**changes: Any) -> Any:
    """A record of 300 ms in APP, as the native half makes them."""
    made = {
        "token": 1,
        "slot": 1,
        "kind": "ended",
        "id": 7,
        "turn": 3,
        "begin_ns": 1000 * MS,
        "end_ns": 1300 * MS,
        "started_at_ns": 1_700_000_000_123_456_789,
        "overdue": False,
        "thread": "MainThread",
        "ident": 1234,
        "native_thread_id": 99,
        "frames": [
            (APP, 10, "main", 10, 4, 20),
            (APP, 20, "load", -1, -1, -1),
            (LIBRARY, 5, "send", 5, 0, 9),
        ],
        "stacks": [[0, 1, 2], [0]],
        "samples": [packed(20, 200, 0), packed(220, 100, 1, quality="moving", task=-1)],
        "tasks": [(4096, "checkout", "main")],
        "holders": [],
        "breakdown": {"unknown": 300 * MS},
        "evidence": evidence(),
        "steps": [("tls", 50 * MS)],
        "routes": (0, 0, 0, []),
        "samples_merged": 0,
    }
    return made | changes


def sample(weight: float, *frames: Frame, offset: float = 0.0) -> Sample:
    return Sample(offset, weight, frames, Verdict.UNKNOWN, 99, "exact")


def stall(**changes: Any) -> Stall:
    made: dict[str, Any] = {
        "id": 7,
        "thread": "MainThread",
        "native_thread_id": 99,
        "started_at": datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC),
        "duration": 0.3,
        "ongoing": False,
        "breakdown": {Verdict.UNKNOWN: 0.3},
        "culprit": Frame(APP, 20, "load"),
        "frames": (Frame(APP, 10, "main"), Frame(APP, 20, "load"), Frame(LIBRARY, 5, "send")),
        "task": TaskInfo("checkout", "main"),
        "fingerprint": "abc",
    }
    return Stall(**made | changes)


def frames(*places: tuple[str, int, str]) -> Sequence[Frame]:
    return tuple(Frame(*place) for place in places)
