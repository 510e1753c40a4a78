"""Stalls and loops' lines to make reports of."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from records import APP, BASE_EVENTS, LIBRARY, sample, stall

from loopwatch._loop_line import TURN_BOUNDS
from loopwatch._process import Process
from loopwatch._stall import Evidence, Frame, Stall, TaskInfo, ThreadInfo, Verdict
from loopwatch.jsonl import line_of, stall_line

BEGAN = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
STARTED = "2026-11-30T08:00:00+00:00"
RUNS_THE_LOOP = Frame(BASE_EVENTS, 1987, "BaseEventLoop._run_once")
FUNCTIONS = ("load", "price_in", "make_invoice", "resize", "encode")
HOSTILE = "</script><img src=x onerror=document.title='owned'>\"'<!--\x00\u202egnp\u2028{{data}}\ud800"


def varied(count: int, *, seconds: float = 600.0, name: str = "checkout", **changes: Any) -> list[Stall]:
    """The same at each call."""
    chance = random.Random(7)
    return [_one(number, chance, seconds, name, changes) for number in range(1, count + 1)]


def _one(number: int, chance: random.Random, seconds: float, name: str, changes: dict[str, Any]) -> Stall:
    verdict = chance.choice(list(Verdict))
    duration = 0.1 + chance.expovariate(4)
    inner = [Frame(APP, chance.randint(1, 99), chance.choice(FUNCTIONS)) for _ in range(chance.randint(1, 8))]
    frames = (RUNS_THE_LOOP, *inner, Frame(LIBRARY, 5, "send"))
    made = {
        "id": number,
        "started_at": BEGAN + timedelta(seconds=chance.random() * seconds),
        "duration": duration,
        "breakdown": {verdict: duration},
        "culprit": inner[-1],
        "frames": frames,
        "samples": tuple(sample(duration / 8, *frames[: chance.randint(2, 9)]) for _ in range(8)),
        "sites": ((inner[-1], duration),),
        "task": TaskInfo(name, "main"),
        "holder": ThreadInfo("pool_0", 12, frames[:2]) if verdict == Verdict.GIL else None,
        "evidence": Evidence(cpu_time=duration / 2, callbacks=3, syscall="poll", target="tcp 10.0.0.4:5432"),
        "fingerprint": f"{verdict}-{inner[-1].qualname}",
        "hint": "Use await asyncio.sleep(...).",
        "source": {(APP, inner[-1].lineno): "return load(everything)"},
    }
    return stall(**made | changes)


def loop_line(
    seconds: int = 60,
    *,
    thread: str = "MainThread",
    watch: int = 1,
    pid: int = 1,
    started: str = STARTED,
    at: datetime | None = None,
    **changes: Any,
) -> bytes:
    counts = [0, 5, *([100] * (len(TURN_BOUNDS) - 1))]
    begin = BEGAN.timestamp()
    data = {
        "thread": thread,
        "watch": watch,
        "pulse": "turn",
        "capture": "raw",
        "threshold": 0.1,
        "lag": {
            "turns": sum(counts),
            "busy": seconds / 4,
            "idle": seconds * 3 / 4,
            "gil_wait": 0.5,
            "utilization": 0.25,
            "max": 1.5,
            "mean": 0.01,
            "quantiles": {"0.5": 0.001, "0.99": 0.2},
            "waiting": {"0.5": 0.0, "0.99": 0.4},
        },
        "histogram": {"bounds": TURN_BOUNDS, "counts": counts},
        "gc": [{"generation": 0, "count": 9, "seconds": 0.02, "worst": 0.004}],
        "cells": {
            "at": [begin + second for second in range(seconds)],
            "busy": [0.25] * seconds,
            "idle": [0.75] * seconds,
            "worst": [0.1] * seconds,
            "gc": [0.0, 0.02, None] * (seconds // 3) + [None] * (seconds % 3),
            "gil_wait": [0.0] * seconds,
            "stalls": [0] * seconds,
        },
    }
    return line_of("loop", data | changes, process=Process(pid, started), at=at)


def lines(stalls: Sequence[Stall], *, pid: int = 1, started: str = STARTED) -> bytes:
    return b"".join(stall_line(each, process=Process(pid, started)) for each in stalls)
