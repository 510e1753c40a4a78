"""The self-test of `loopwatch doctor`: a stall of each kind, and whether its verdict is right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from loopwatch import _core
from loopwatch._text import seconds
from loopwatch.cli._stalls import PREPARE, READY, STOPPED_SECONDS

_TRIES: Final = 3
_STARVED: Final = "not-scheduled"
"""What a machine with other work adds to a stall of any kind; it is taken off, and shown."""
_STARVED_SHOWN: Final = 0.01
_TIMEOUT: Final = 60.0

_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "python": ("frames",),
    "native": ("frames",),
    "blocking-call": ("syscall",),
    "lock": ("syscall",),
    "gil": ("gil",),
    "gc": ("gc",),
    "many-callbacks": ("frames",),
    "suspended": ("schedstat",),
    "not-scheduled": ("schedstat",),
}
_LACKS: Final[Mapping[str, str]] = {
    "syscall": "/proc/self/task/*/syscall cannot be read",
    "schedstat": "/proc/self/task/*/schedstat cannot be read",
    "gc": "collections are not timed in this build",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one kind of stall."""

    verdict: str
    result: Literal["ok", "wrong", "missing"]
    detail: str
    seconds: float

    def __str__(self) -> str:
        mark = {"ok": "ok", "wrong": "no", "missing": "--"}[self.result]
        return f"{mark:3} {self.verdict:15} {self.detail}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run() -> Iterator[Outcome]:
    """One after another, each as it comes."""
    for kind in PREPARE:
        begin = time.monotonic()
        result, detail = _try(kind)
        yield Outcome(kind, result, detail, round(time.monotonic() - begin, 3))


def _try(kind: str) -> tuple[Literal["ok", "wrong", "missing"], str]:
    detail = ""
    for _ in range(_TRIES):
        try:
            told = _stall(kind)
        except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
            detail = f"could not be made: {problem}"
            continue
        parts: dict[str, float] = told["breakdown"]
        starved = 0.0 if kind == _STARVED else parts.pop(_STARVED, 0.0)
        seen = max(parts, key=parts.__getitem__, default=None)
        if seen == kind:
            beside = f", beside {seconds(starved)} without a CPU" if starved > _STARVED_SHOWN else ""
            return "ok", f"told: {seconds(parts[kind])} of {seconds(sum(parts.values()) + starved)}{beside}"
        if (lack := _lack(kind, told["evidence"])) is not None:
            return "missing", f"cannot be told here: {lack}"
        detail = f"came out as {seen}" if seen else "was not seen"
    return "wrong", detail


def _lack(kind: str, evidence: Mapping[str, Any]) -> str | None:
    """Why this system cannot tell it."""
    if kind == "gil" and not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this Python runs without a GIL"
    for need in _NEEDS[kind]:
        if need == "frames" and (reason := _core.frames_reason()) is not None:
            return reason
        if need == "gil" and evidence.get("gil") is not None:
            return str(evidence["gil"])
        if need in _LACKS and not evidence.get(need):
            return _LACKS[need]
    return None


def _stall(kind: str) -> dict[str, Any]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOPWATCH")}
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [kept.get("PYTHONPATH")])])
    program = subprocess.Popen(
        [sys.executable, "-m", "loopwatch.cli._stalls", kind],
        env={**kept, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if kind == "suspended":
            _suspend(program)
        out, error = program.communicate(timeout=_TIMEOUT)
    finally:
        if program.poll() is None:
            program.kill()
            program.communicate()
    if program.returncode:
        raise ValueError(error.strip().splitlines()[-1] if error.strip() else f"status {program.returncode}")
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    return told


def _suspend(program: subprocess.Popen[str]) -> None:
    """The reader of its output must not wait for ever; it says READY, or ends."""
    assert program.stdout is not None
    if program.stdout.readline().strip() != READY:
        return
    time.sleep(0.02)
    program.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    program.send_signal(signal.SIGCONT)
