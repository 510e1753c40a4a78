"""From the native half's record to a Stall, on the reporter's thread.

The record has the clocks' verdict for each sample and the seconds of each cause. What is added here is who is
to blame: a sample that waited for the GIL shows the thread that held it, any other the loop's own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from loopwatch._capture import Captured
from loopwatch._culprit import Site, find_sites, fingerprint, heaviest, heaviest_stack
from loopwatch._hints import hint
from loopwatch._source import SourceCache
from loopwatch._stall import Evidence, Frame, Quality, Sample, Stall, TaskInfo, ThreadInfo, Verdict

if TYPE_CHECKING:
    from loopwatch._core import EvidenceDict, FrameTuple, Record, SampleTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SITES_WITH_SOURCE = 32
_HOLDER_SHARE = 0.05
"""Of the stall's duration that other threads must have held the GIL for one of them to be named."""

_BLAMES_NOBODY = {Verdict.SUSPENDED, Verdict.NOT_SCHEDULED}
_SHORT_CALLBACKS = {Verdict.PYTHON, Verdict.NATIVE, Verdict.MANY_CALLBACKS}

source_cache = SourceCache()


def _unchanged(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class Context:
    """What a record cannot say of itself."""

    loop: asyncio.AbstractEventLoop | None = None
    own: tuple[str, ...] = ()
    redact: Callable[[str], str] = _unchanged
    captured: Sequence[Captured] = ()
    """What the reporter has read of this turn (capture="gil")."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Redacted."""


@dataclass(frozen=True, slots=True)
class Look:
    """A sample, and what it does not show of the moment it was taken."""

    sample: Sample
    task: TaskInfo | None
    loop_frames: tuple[Frame, ...]
    holder: int
    """Indexes Record.holders; -1: no other thread had the GIL."""
    holder_frames: tuple[Frame, ...]

    @property
    def coroutine(self) -> str | None:
        """Of the task that the frames shown belong to."""
        return self.task.coroutine if self.task and self.sample.verdict is not Verdict.GIL else None

    @property
    def bystander(self) -> Sample:
        """The sample with the frames of the loop's thread."""
        return self._with(self.loop_frames)

    def suspect(self, verdict: Verdict) -> Sample:
        """The sample with the frames of the thread that a stall of this verdict blames."""
        return self._with(self.holder_frames if verdict is Verdict.GIL else self.loop_frames)

    def _with(self, frames: tuple[Frame, ...]) -> Sample:
        same = frames is self.sample.frames
        return self.sample if same else dataclasses.replace(self.sample, frames=frames)


def build_stall(record: Record, context: Context) -> Stall:
    """The Stall that a record of kind "ended" or "ongoing" describes."""
    looks = looks_of(record, context)
    samples = tuple(look.sample for look in looks)
    coroutines = [look.coroutine for look in looks]
    breakdown = _breakdown(record["breakdown"])
    verdict = max(breakdown, key=breakdown.__getitem__)
    sites = find_sites(samples, context.own, coroutines, with_somebody_to_blame(looks))
    suspects = [look.suspect(verdict) for look in looks]
    members = _to_blame(looks, suspects, verdict)
    theirs = None if verdict is Verdict.GIL else coroutines
    blamed = next(iter(find_sites(suspects, context.own, theirs, members)), None)
    culprit = blamed.frame if blamed else None
    stack = heaviest_stack(suspects if blamed else [look.bystander for look in looks], blamed)
    frames = stack.frames if stack else ()
    holder = _holder(record, looks, breakdown)
    shown = [
        *frames,
        *(site.frame for site in sites[:_SITES_WITH_SOURCE]),
        *(holder.frames if holder else ()),
    ]
    stall = Stall(
        id=record["id"],
        thread=record["thread"],
        native_thread_id=record["native_thread_id"],
        started_at=_EPOCH + timedelta(microseconds=record["started_at_ns"] // 1000),
        duration=(record["end_ns"] - record["begin_ns"]) / 1e9,
        ongoing=record["kind"] == "ongoing",
        breakdown=breakdown,
        culprit=culprit,
        frames=frames,
        truncated=stack.truncated if stack else 0,
        samples=samples,
        sites=tuple((site.frame, site.seconds) for site in sites),
        task=_task(looks, blamed, context.redact),
        holder=holder,
        steps={name: ns / 1e9 for name, ns in record["steps"]},
        labels=context.labels,
        evidence=_evidence(record["evidence"], context.redact),
        fingerprint=fingerprint(verdict, culprit),
        overdue=record["overdue"],
        source=source_lines(shown, context.redact),
    )
    return dataclasses.replace(stall, hint=hint(stall, expression_of(frames)))


def with_somebody_to_blame(looks: Sequence[Look]) -> list[int]:
    """Where nobody saw the thread that held the GIL, the loop's own frames are those of a bystander."""
    return [
        index
        for index, look in enumerate(looks)
        if look.sample.verdict is not Verdict.GIL or look.holder_frames
    ]


def _to_blame(looks: Sequence[Look], suspects: Sequence[Sample], verdict: Verdict) -> list[int]:
    """Indexes of the samples that the culprit is searched in: those with the stall's verdict. A cause that is
    the largest of the stall may be the largest of no sample: then all."""
    if verdict in _BLAMES_NOBODY:
        return []
    verdicts = _SHORT_CALLBACKS if verdict is Verdict.MANY_CALLBACKS else {verdict}
    seen = [index for index, sample in enumerate(suspects) if sample.frames]
    return [index for index in seen if looks[index].sample.verdict in verdicts] or seen


# --- samples ---


def unpack_frame(packed: FrameTuple) -> Frame:
    filename, lineno, qualname, *rest = packed
    end_lineno, colno, end_colno = (number if number >= 0 else None for number in rest)
    return Frame(filename, lineno, qualname, end_lineno, colno, end_colno)


def looks_of(record: Record, context: Context) -> list[Look]:
    """The samples of a record, each with both stacks."""
    frames = [unpack_frame(packed) for packed in record["frames"]]
    stacks = [tuple(frames[index] for index in stack) for stack in record["stacks"]]
    known_tasks = _tasks(record, context.loop)
    looks: list[Look] = []
    for packed in _sample_tuples(record, context.captured):
        offset_ns, weight_ns, stack, quality, truncated, task, holder_stack, holder, named = packed
        running = known_tasks[task] if task >= 0 else None
        loop_frames = stacks[stack] if stack >= 0 else ()
        holder_frames = stacks[holder_stack] if holder_stack >= 0 else ()
        verdict, thread = Verdict(named), record["native_thread_id"]
        if stack < 0 and (captured := _nearest(context.captured, record["begin_ns"] + offset_ns)):
            loop_frames, running = captured.frames, running or captured.task
            if not holder_frames:
                truncated, quality = captured.truncated, "consistent"
        seen = loop_frames
        if verdict is Verdict.GIL and holder_frames and holder >= 0:
            seen, thread = holder_frames, record["holders"][holder][0]
        sample = Sample(
            offset_ns / 1e9, weight_ns / 1e9, seen, verdict, thread, cast(Quality, quality), truncated
        )
        looks.append(Look(sample, running, loop_frames, holder, holder_frames))
    return looks


def _sample_tuples(record: Record, captured: Sequence[Captured]) -> Iterable[SampleTuple]:
    """The native samples, or the reporter's looks, each with half the way to its neighbours."""
    if record["samples"] or not captured:
        return record["samples"]
    duration = record["end_ns"] - record["begin_ns"]
    verdict = str(max(parts, key=parts.__getitem__)) if (parts := _breakdown(record["breakdown"])) else ""
    offsets = [min(max(look.at_ns - record["begin_ns"], 0), duration) for look in captured]
    edges = [0, *((a + b) // 2 for a, b in itertools.pairwise(offsets)), duration]
    return [
        (offset, end - begin, -1, "consistent", 0, -1, -1, -1, verdict)
        for offset, (begin, end) in zip(offsets, itertools.pairwise(edges), strict=True)
    ]


def _nearest(captured: Sequence[Captured], at_ns: int) -> Captured | None:
    return min(captured, key=lambda look: abs(look.at_ns - at_ns), default=None)


# --- tasks and threads ---


def _tasks(record: Record, loop: asyncio.AbstractEventLoop | None) -> list[TaskInfo]:
    """Names that the native half could not read (tasks in pure Python) are asked of the tasks themselves."""
    names: dict[int, str] = {}
    if loop is not None and any(not name for _, name, _ in record["tasks"]):
        try:
            names = {id(task): task.get_name() for task in asyncio.all_tasks(loop)}
        except RuntimeError:  # the set of tasks never stood still
            names = {}
    return [
        TaskInfo(name or names.get(address, ""), coroutine) for address, name, coroutine in record["tasks"]
    ]


def _task(looks: Sequence[Look], blamed: Site | None, redact: Callable[[str], str]) -> TaskInfo | None:
    """What ran on the loop's thread in the culprit's samples, also where another thread is to blame."""
    members = blamed.members if blamed else range(len(looks))
    task = heaviest((looks[index].task, looks[index].sample.weight) for index in members)
    return TaskInfo(redact(task.name), task.coroutine) if task else None


def _holder(record: Record, looks: Sequence[Look], breakdown: dict[Verdict, float]) -> ThreadInfo | None:
    """The thread that held the GIL longest while the loop wanted it."""
    if breakdown.get(Verdict.GIL, 0.0) < _HOLDER_SHARE * sum(breakdown.values()):
        return None
    held = [look for look in looks if look.holder >= 0]
    held = [look for look in held if look.sample.verdict is Verdict.GIL] or held
    longest = heaviest((look.holder, look.sample.weight) for look in held)
    if longest is None:
        return None
    stacks = ((look.holder_frames, look.sample.weight) for look in held if look.holder == longest)
    frames = heaviest((stack, weight) for stack, weight in stacks if stack) or ()
    native_thread_id, ident = record["holders"][longest]
    return ThreadInfo(_thread_name(native_thread_id, ident), native_thread_id, frames)


def _thread_name(native_thread_id: int, ident: int) -> str:
    """ "?" for a thread that threading does not know, or that has ended."""
    for thread in threading.enumerate():
        if native_thread_id == thread.native_id if native_thread_id > 0 else ident == thread.ident:
            return thread.name
    return "?"


# --- clocks ---


def _breakdown(parts: dict[str, int]) -> dict[Verdict, float]:
    """What took time, in the order of precedence; the verdict's own entry stays also where it is 0."""
    ns = {verdict: parts[verdict] for verdict in Verdict if verdict in parts}
    verdict = max(ns, key=ns.__getitem__, default=Verdict.UNKNOWN)
    return {cause: ns.get(cause, 0) / 1e9 for cause in Verdict if ns.get(cause) or cause is verdict}


def _evidence(known: EvidenceDict, redact: Callable[[str], str]) -> Evidence:
    def seconds(ns: int | None) -> float | None:
        return None if ns is None else ns / 1e9

    target = known["target"]
    return Evidence(
        cpu_time=seconds(known["cpu_ns"]),
        gil_wait=seconds(known["gil_wait_ns"]),
        run_queue_wait=seconds(known["run_queue_ns"]),
        throttled_time=seconds(known["throttled_ns"]),
        gc_time=seconds(known["gc_ns"]),
        gc_generation=known["gc_generation"],
        major_faults=known["major_faults"],
        callbacks=known["callbacks"],
        syscall=known["syscall"],
        target=redact(target) if target else None,
        watchdog_late=seconds(known["watchdog_late_ns"]),
    )


# --- source ---


def source_lines(frames: Iterable[Frame], redact: Callable[[str], str]) -> dict[tuple[str, int], str]:
    places = dict.fromkeys((frame.filename, frame.lineno) for frame in frames)
    lines = ((place, source_cache.line(*place)) for place in places)
    return {place: redact(line) for place, line in lines if line}


def expression_of(frames: Sequence[Frame]) -> str:
    """What the innermost frame was executing; it is looked at for the hint and goes no further."""
    return source_cache.expression(frames[-1]) if frames else ""
