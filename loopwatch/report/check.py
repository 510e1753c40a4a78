"""Whether what a file says is what it should be: a report must not fail on a line that somebody else wrote."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from loopwatch._loop_line import CELL_FIELDS
from loopwatch._sound import numbers, text, whole
from loopwatch._stall import Frame, Stall, ThreadInfo

_LOOP = ("thread", "watch", "pulse", "capture", "threshold", "lag", "histogram", "gc", "cells")
_LAG = ("turns", "busy", "idle", "gil_wait", "max", "mean", "utilization")
_GC = ("generation", "count", "seconds", "worst")
_MOST = 1e15
"""Of any number, so that sums of them are finite."""
_LAST_MOMENT = 253402300799
"""Unix time at the end of the year 9999, as datetime has it."""
_NULL_ALLOWED = {"idle", "gc", "gil_wait"}

_whole = functools.partial(whole, least=-_MOST, most=_MOST)
_numbers = functools.partial(numbers, least=-_MOST, most=_MOST)


def sound_stall(data: Any) -> Stall:
    """The stall of a line. ValueError where it is none."""
    try:
        return _sound(Stall.from_dict(data))
    except (TypeError, AttributeError, OverflowError) as problem:
        raise ValueError(f"not a stall: {problem!r}") from problem


def _sound(stall: Stall) -> Stall:
    text(stall.thread, stall.fingerprint, stall.hint, *stall.labels, *stall.labels.values(), *stall.steps)
    _whole(stall.id, stall.native_thread_id, stall.truncated)
    _numbers([stall.duration, *stall.breakdown.values(), *stall.steps.values()])
    if stall.duration < 0 or stall.started_at.tzinfo is None:
        raise ValueError("a stall needs a duration, and a begin with its time zone")
    if not isinstance(stall.ongoing, bool) or not isinstance(stall.overdue, bool):
        raise ValueError("a stall says whether it goes on and how it began")
    for sample in stall.samples:
        _numbers((sample.offset, sample.weight))
        _whole(sample.native_thread_id, sample.truncated)
        text(sample.quality)
    # By identity, since each is one of the line's table: there are many more samples than frames.
    sampled = {id(frame): frame for sample in stall.samples for frame in sample.frames}
    _frames((*stall.frames, *sampled.values(), *(frame for frame, _ in stall.sites)))
    _numbers(seconds for _, seconds in stall.sites)
    if stall.culprit is not None:
        _frames((stall.culprit,))
    if stall.task is not None:
        text(stall.task.name, stall.task.coroutine)
    if stall.holder is not None:
        _holder(stall.holder)
    for (filename, lineno), line in stall.source.items():
        text(filename, line)
        _whole(lineno)
    _evidence(stall)
    return stall


def _evidence(stall: Stall) -> None:
    evidence = stall.evidence
    text(*(said for said in (evidence.syscall, evidence.target) if said is not None))
    _numbers(
        value
        for name in type(evidence).__slots__
        if name not in ("syscall", "target") and (value := getattr(evidence, name)) is not None
    )


def _holder(holder: ThreadInfo) -> None:
    text(holder.name)
    _whole(holder.native_thread_id)
    _frames(holder.frames)


def sound_loop(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `loop` line. ValueError where it is none."""
    try:
        text(data["thread"], data["pulse"], data["capture"])
        _whole(data["watch"])
        lag, cells, histogram = data["lag"], data["cells"], data["histogram"]
        _numbers([data["threshold"], *(lag[name] for name in _LAG if lag[name] is not None)])
        for quantiles in (lag["quantiles"], lag["waiting"]):
            text(*quantiles)
            _numbers(value for value in quantiles.values() if value is not None)
        if histogram is not None:
            _numbers(histogram["bounds"])
            _whole(*histogram["counts"])
            if len(histogram["counts"]) != len(histogram["bounds"]) + 1:
                raise ValueError("a histogram needs one more count than bounds")
            if not histogram["bounds"] or histogram["bounds"] != sorted(set(histogram["bounds"])):
                raise ValueError("the bounds of a histogram must rise")
            if histogram["bounds"][0] <= 0 or min(histogram["counts"]) < 0:
                raise ValueError("a histogram's bounds and counts must not be negative")
        for row in data["gc"]:
            _whole(row["generation"])
            _numbers(row[name] for name in _GC)
        if len({len(cells[name]) for name in CELL_FIELDS}) != 1:
            raise ValueError("the columns of cells must have one length")
        for name in CELL_FIELDS:
            _numbers(value for value in cells[name] if value is not None or name not in _NULL_ALLOWED)
        if not all(0 <= at <= _LAST_MOMENT for at in cells["at"]):
            raise ValueError("the seconds of cells must be unix time")
    except (KeyError, TypeError, AttributeError, IndexError) as problem:
        raise ValueError(f"not a loop's line: {problem!r}") from problem
    return {name: data[name] for name in _LOOP} | {
        "lag": _only((*_LAG, "quantiles", "waiting"), lag),
        "histogram": histogram and _only(("bounds", "counts"), histogram),
        "gc": [_only(_GC, row) for row in data["gc"]],
        "cells": _only(CELL_FIELDS, cells),
    }


def _only(names: Iterable[str], data: Mapping[str, Any]) -> dict[str, Any]:
    """What was looked at: more may be in a line, and may be anything."""
    return {name: data[name] for name in names}


def sound_started(data: Mapping[str, Any]) -> str:
    """What a line says of when its process started; "" where it says nothing."""
    started = data.get("started", "")
    text(started)
    return str(started)


def sound_date(value: Any) -> datetime:
    """When a line was made. ValueError where that is no date with its time zone."""
    text(value)
    date = datetime.fromisoformat(value)
    if date.tzinfo is None:
        raise ValueError(f"a date needs its time zone: {value!r}")
    return date


def _frames(frames: Iterable[Frame]) -> None:
    for frame in frames:
        text(frame.filename, frame.qualname)
        _whole(frame.lineno)
        _whole(*(part for part in (frame.end_lineno, frame.colno, frame.end_colno) if part is not None))
