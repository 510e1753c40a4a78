"""What a status page says, as lines of a report: a process that was killed had no time for its own."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from loopwatch._culprit import fingerprint
from loopwatch._hints import hint
from loopwatch._loop_line import CELL_FIELDS
from loopwatch._page import Page
from loopwatch._stall import Frame, Sample, Stall, TaskInfo, ThreadInfo, Verdict
from loopwatch.cli._page_source import frame_of, source_line

_HOLDER: Final = re.compile(r"The GIL was held by thread ([0-9]{1,9}):")
_MISSING: Final = re.compile(r"  \.\.\. ([0-9]{1,9}) more frames")


def written(page: Page) -> datetime:
    """When its process wrote it last."""
    return _moment(int(page.body["wall"]))


def _moment(unix_ns: int) -> datetime:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC)


# --- loops ---


def loops(page: Page) -> Iterator[Mapping[str, Any]]:
    """Those that have run."""
    yield from (loop for loop in page.body.get("loops", ()) if "busy" in loop)


def loop_fields(page: Page, loop: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """A `loop` line's, without seconds. `before`: the last line of this loop; what a page does not say is as it
    was then."""
    lag = _lag(loop, int(page.body["at"]))
    quantiles = {name: before["lag"][name] if before else {} for name in ("quantiles", "waiting")}
    gc = [
        {"generation": generation, "count": count, "seconds": ns / 1e9, "worst": worst_ns / 1e9}
        for generation, (count, ns, worst_ns) in enumerate(page.body.get("gc", ()))
    ]
    return {
        "thread": str(loop.get("thread", "?")),
        "watch": loop["key"],
        "pulse": loop["pulse"],
        "capture": before["capture"] if before else "?",
        "threshold": loop["threshold"] / 1e9,
        "lag": lag | quantiles,
        "histogram": before["histogram"] if before else None,
        "gc": gc,
        "cells": {name: [] for name in CELL_FIELDS},
    }


def _lag(loop: Mapping[str, Any], at_ns: int) -> dict[str, Any]:
    """Seconds, with the turn or the wait that goes on."""
    going_on = max(0, at_ns - loop["since"]) if "since" in loop else 0
    in_turn = going_on if loop.get("phase") == "busy" else 0
    in_wait = going_on if loop.get("phase") == "waiting" else 0
    turns, busy = loop.get("turns"), (loop["busy"] + in_turn) / 1e9
    idle = None if "idle" not in loop else (loop["idle"] + in_wait) / 1e9
    gil_wait = None if "gil_wait" not in loop else loop["gil_wait"] / 1e9
    return {
        "turns": turns,
        "busy": busy,
        "idle": idle,
        "gil_wait": gil_wait,
        "utilization": busy / (busy + idle) if idle is not None and busy + idle else None,
        "max": max(loop.get("max", 0), in_turn) / 1e9,
        "mean": busy / turns if turns else None,
    }


# --- stalls ---


def current(page: Page, known: Iterable[Stall]) -> Iterator[Stall]:
    """What it was blocked in. `known`: the stalls that its process has reported, for what a page does not say."""
    by_id: dict[int, Stall] = {}
    fingerprints: dict[tuple[Verdict, str, str], str] = {}
    for stall in known:
        by_id[stall.id] = stall
        if stall.culprit is not None:
            fingerprints[stall.verdict, stall.culprit.filename, stall.culprit.qualname] = stall.fingerprint
    for said in page.body.get("current", ()):
        stall = _stall(page, said)
        if (before := by_id.get(stall.id)) is not None and before.duration <= stall.duration:
            stall = _continued(before, stall)
        if stall.culprit is not None:  # its own sys.path decides, which is another one than ours
            key = stall.verdict, stall.culprit.filename, stall.culprit.qualname
            stall = dataclasses.replace(stall, fingerprint=fingerprints.get(key, stall.fingerprint))
        yield stall


def _continued(before: Stall, stall: Stall) -> Stall:
    """A report that was made while it went on, up to the moment of the page."""
    samples = before.samples
    if samples:
        rest = stall.duration - before.duration
        samples += tuple(
            dataclasses.replace(sample, offset=before.duration, weight=rest) for sample in stall.samples
        )
    return dataclasses.replace(
        stall,
        samples=samples or stall.samples,
        task=stall.task or before.task,
        holder=before.holder or stall.holder,
        steps=before.steps,
        labels=before.labels,
        evidence=before.evidence,
        overdue=before.overdue,
        source={**before.source, **stall.source},
    )


def _stall(page: Page, said: Mapping[str, Any]) -> Stall:
    loop: Mapping[str, Any] = next((loop for loop in page.body["loops"] if loop["key"] == said["key"]), {})
    thread_id = int(loop.get("tid", 0))
    frames, missing, holder = _stacks(said.get("stack", ""))
    culprit = Frame(said["file"], said["line"], said["function"]) if "function" in said else None
    if holder is not None and culprit is not None and culprit not in frames:
        frames, missing = holder.frames, 0
    frames = frames or ((culprit,) if culprit else ())
    causes = {Verdict(cause): ns / 1e9 for cause, ns in said["causes"].items()}
    duration = (said["seen"] - said["begin"]) / 1e9
    stall = Stall(
        id=said["id"],
        thread=str(loop.get("thread", "?")),
        native_thread_id=thread_id,
        started_at=_moment(said["begin"] + page.wall_offset_ns),
        duration=duration,
        ongoing=True,
        breakdown=causes or {Verdict.UNKNOWN: duration},
        culprit=culprit,
        frames=frames,
        truncated=missing,
        sites=((culprit, duration),) if culprit else (),
        task=TaskInfo(said["task"], str(said.get("coroutine", "?"))) if said.get("task") else None,
        holder=holder,
        source=_source(page, (*frames, *(holder.frames if holder else ()))),
    )
    # The page shows one stack, and does not say how it was read.
    whole = Sample(0.0, duration, frames, stall.verdict, thread_id, "moving", missing)
    return dataclasses.replace(
        stall,
        samples=(whole,) if frames else (),
        fingerprint=fingerprint(stall.verdict, culprit),
        hint=hint(stall),
    )


def _stacks(text: str) -> tuple[tuple[Frame, ...], int, ThreadInfo | None]:
    """The loop's thread, how many of its frames are missing, and who held the GIL."""
    stacks: list[list[Frame]] = [[]]
    missing, holder_id = 0, None
    for line in text.splitlines():
        if (frame := frame_of(line)) is not None:
            stacks[-1].append(frame)
        elif found := _HOLDER.fullmatch(line):
            holder_id = int(found[1])
            stacks.append([])
        elif (found := _MISSING.fullmatch(line)) and holder_id is None:
            missing = int(found[1])
    holder = None if holder_id is None else ThreadInfo(f"thread {holder_id}", holder_id, tuple(stacks[-1]))
    return tuple(stacks[0]), missing, holder


def _source(page: Page, frames: Iterable[Frame]) -> dict[tuple[str, int], str]:
    places = {(frame.filename, frame.lineno) for frame in frames}
    lines = ((place, source_line(page, *place)) for place in places)
    return {place: line for place, line in lines if line}
