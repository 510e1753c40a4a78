"""What a stall is: plain immutable data, with JSON both ways. Text, log and metrics are functions of it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal

Quality = Literal["exact", "consistent", "moving"]


class Verdict(enum.StrEnum):
    """Why the loop's thread did not come back. Each nanosecond of a stall goes to the first that applies."""

    SUSPENDED = "suspended"
    NOT_SCHEDULED = "not-scheduled"
    GIL = "gil"
    GC = "gc"
    PYTHON = "python"
    NATIVE = "native"
    LOCK = "lock"
    BLOCKING_CALL = "blocking-call"
    MANY_CALLBACKS = "many-callbacks"
    UNKNOWN = "unknown"


OWN: Final = (
    Verdict.PYTHON,
    Verdict.NATIVE,
    Verdict.BLOCKING_CALL,
    Verdict.LOCK,
    Verdict.MANY_CALLBACKS,
    Verdict.GIL,
)
"""What a program does itself; the rest is the machine's or the collector's doing."""


def own_seconds(breakdown: Mapping[Any, float]) -> float:
    """Of a stall's breakdown, by Verdict or by its text."""
    return sum(breakdown.get(verdict, 0.0) for verdict in OWN)


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in code. Line numbers as in a traceback; no locals, no arguments."""

    filename: str
    lineno: int
    qualname: str
    end_lineno: int | None = None
    colno: int | None = None
    end_colno: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a thread: `offset` seconds after the stall began, standing for `weight` seconds of it."""

    offset: float
    weight: float
    frames: tuple[Frame, ...]
    verdict: Verdict
    native_thread_id: int
    quality: Quality
    truncated: int = 0
    """How many frames are missing between the outermost 128 and the innermost 896."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task: its name, and the qualified name of its coroutine."""

    name: str
    coroutine: str


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """Another thread, and where it stood."""

    name: str
    native_thread_id: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Clocks and facts of the loop's thread, in seconds; None where this system cannot tell."""

    cpu_time: float | None = None
    gil_wait: float | None = None
    run_queue_wait: float | None = None
    throttled_time: float | None = None
    gc_time: float | None = None
    gc_generation: int | None = None
    major_faults: int | None = None
    callbacks: int | None = None
    """How many callbacks the turn ran."""
    syscall: str | None = None
    target: str | None = None
    """What that call waits for."""
    watchdog_late: float | None = None


def _no_numbers() -> Mapping[str, float]:
    return MappingProxyType({})


def _no_strings() -> Mapping[str, str]:
    return MappingProxyType({})


def no_source() -> Mapping[tuple[str, int], str]:
    return MappingProxyType({})


@dataclass(frozen=True, kw_only=True, eq=True, repr=False)
class Stall:
    """One stretch of time in which a loop did not turn."""

    id: int
    """From 1, unique in the process; an ongoing report and the final one have the same."""
    thread: str
    native_thread_id: int
    started_at: datetime
    """UTC."""
    duration: float
    """Seconds from the begin of the turn to its end, or to now where it goes on."""
    ongoing: bool
    breakdown: Mapping[Verdict, float]
    """Seconds for each cause; they add up to `duration`."""
    culprit: Frame | None = None
    frames: tuple[Frame, ...] = ()
    """Outermost first: the heaviest stack that contains the culprit, or where the loop stood."""
    truncated: int = 0
    """How many frames are missing in `frames`, after the outermost 128."""
    samples: tuple[Sample, ...] = ()
    sites: tuple[tuple[Frame, float], ...] = ()
    """Seconds for each culprit function, at its heaviest line, largest first."""
    task: TaskInfo | None = None
    holder: ThreadInfo | None = None
    steps: Mapping[str, float] = field(default_factory=_no_numbers)
    labels: Mapping[str, str] = field(default_factory=_no_strings)
    evidence: Evidence = Evidence()
    fingerprint: str = ""
    """The same for stalls with one cause in one function, in any process, on any host."""
    hint: str = ""
    overdue: bool = False
    """It began with a wait that did not come back when it was due."""
    source: Mapping[tuple[str, int], str] = field(default_factory=no_source)
    """(filename, lineno) → the line, for the frames that `format()` shows."""

    def __post_init__(self) -> None:
        for name in ("breakdown", "steps", "labels", "source"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def verdict(self) -> Verdict:
        """The cause with the largest part of `breakdown`."""
        return max(self.breakdown, key=self.breakdown.__getitem__, default=Verdict.UNKNOWN)

    @property
    def summary(self) -> str:
        """One line, for a log."""
        from loopwatch._text import summary

        return summary(self)

    def format(self) -> str:
        """The full text: a plain sentence first, then the details."""
        from loopwatch._text import full_text

        return full_text(self)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready. The frames of samples are indexes into "frame_table"."""
        return _to_dict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Stall:
        """The stall that to_dict() was called on. ValueError where `data` is not such a dict."""
        try:
            return _from_dict(data)
        except (KeyError, TypeError, IndexError, AttributeError) as problem:
            raise ValueError(f"not a stall as Stall.to_dict() makes it: {problem!r}") from problem

    def __hash__(self) -> int:
        return hash((self.id, self.native_thread_id, self.duration))

    def __reduce__(self) -> tuple[Any, ...]:
        return Stall.from_dict, (self.to_dict(),)

    def __repr__(self) -> str:
        return f"<Stall {self.id}: {self.summary}>"


# --- JSON ---


def _plain(thing: Any) -> dict[str, Any]:
    return {item.name: getattr(thing, item.name) for item in dataclasses.fields(thing)}


def _optional(thing: Any) -> dict[str, Any] | None:
    return None if thing is None else _plain(thing)


class _FrameTable:
    """Each frame once, however many samples contain it."""

    def __init__(self) -> None:
        self._indexes: dict[Frame, int] = {}

    def indexes(self, frames: tuple[Frame, ...]) -> list[int]:
        return [self._indexes.setdefault(frame, len(self._indexes)) for frame in frames]

    def frames(self) -> list[dict[str, Any]]:
        return [_plain(frame) for frame in self._indexes]


def _to_dict(stall: Stall) -> dict[str, Any]:
    table = _FrameTable()
    samples = [
        _plain(sample) | {"verdict": str(sample.verdict), "frames": table.indexes(sample.frames)}
        for sample in stall.samples
    ]
    holder = stall.holder
    return {
        "id": stall.id,
        "thread": stall.thread,
        "native_thread_id": stall.native_thread_id,
        "started_at": stall.started_at.isoformat(),
        "duration": stall.duration,
        "ongoing": stall.ongoing,
        "verdict": str(stall.verdict),
        "breakdown": {str(verdict): seconds for verdict, seconds in stall.breakdown.items()},
        "culprit": _optional(stall.culprit),
        "frames": [_plain(frame) for frame in stall.frames],
        "truncated": stall.truncated,
        "samples": samples,
        "frame_table": table.frames(),
        "sites": [[_plain(frame), seconds] for frame, seconds in stall.sites],
        "task": _optional(stall.task),
        "holder": holder and _plain(holder) | {"frames": [_plain(frame) for frame in holder.frames]},
        "steps": dict(stall.steps),
        "labels": dict(stall.labels),
        "evidence": _plain(stall.evidence),
        "fingerprint": stall.fingerprint,
        "hint": stall.hint,
        "overdue": stall.overdue,
        "source": [[filename, lineno, line] for (filename, lineno), line in stall.source.items()],
        "summary": stall.summary,
    }


def _frames(data: Any) -> tuple[Frame, ...]:
    return tuple(Frame(**frame) for frame in data)


def _from_dict(data: Mapping[str, Any]) -> Stall:
    table = _frames(data["frame_table"])
    samples = tuple(
        Sample(
            **sample
            | {
                "verdict": Verdict(sample["verdict"]),
                "frames": tuple(table[index] for index in sample["frames"]),
            }
        )
        for sample in data["samples"]
    )
    culprit, task, holder = data["culprit"], data["task"], data["holder"]
    return Stall(
        id=data["id"],
        thread=data["thread"],
        native_thread_id=data["native_thread_id"],
        started_at=datetime.fromisoformat(data["started_at"]),
        duration=data["duration"],
        ongoing=data["ongoing"],
        breakdown={Verdict(verdict): seconds for verdict, seconds in data["breakdown"].items()},
        culprit=culprit and Frame(**culprit),
        frames=_frames(data["frames"]),
        truncated=data["truncated"],
        samples=samples,
        sites=tuple((Frame(**frame), seconds) for frame, seconds in data["sites"]),
        task=task and TaskInfo(**task),
        holder=holder and ThreadInfo(**holder | {"frames": _frames(holder["frames"])}),
        steps=data["steps"],
        labels=data["labels"],
        evidence=Evidence(**data["evidence"]),
        fingerprint=data["fingerprint"],
        hint=data["hint"],
        overdue=data["overdue"],
        source={(filename, lineno): line for filename, lineno, line in data["source"]},
    )
