"""Frames read by the reporter, with the GIL: what capture="gil" does where raw reads do not work."""

from __future__ import annotations

import asyncio
import bdb
import itertools
import sys
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from loopwatch._clock import monotonic_ns
from loopwatch._stall import Frame, TaskInfo

if TYPE_CHECKING:
    from loopwatch._core import Record

OUTERMOST = 128
INNERMOST = 896
_BDB = bdb.Bdb.trace_dispatch.__code__.co_filename


@dataclass(frozen=True, slots=True)
class Captured:
    """One look."""

    turn: int
    at_ns: int
    frames: tuple[Frame, ...]
    truncated: int
    task: TaskInfo | None

    @property
    def debugger(self) -> bool:
        """A frame of bdb is on the stack: somebody looks at a breakpoint."""
        return any(frame.filename == _BDB for frame in self.frames)


class HasTurn(Protocol):
    """A Slot, as far as it matters here."""

    @property
    def turn(self) -> int: ...


def capture(record: Record, slot: HasTurn, loop: asyncio.AbstractEventLoop | None) -> Captured | None:
    """Answer a record of kind "capture"; None where the turn it asks about is over."""
    if slot.turn != record["turn"]:
        return None
    at_ns = monotonic_ns()
    top = sys._current_frames().get(record["ident"])
    if top is None:
        return None
    frames, truncated = walk(top)
    task = _running_task(loop)
    if slot.turn != record["turn"]:
        return None
    return Captured(record["turn"], at_ns, frames, truncated, task)


def look_at(
    ident: int, loop: asyncio.AbstractEventLoop | None
) -> tuple[tuple[Frame, ...], TaskInfo | None] | None:
    """Where a thread is now, whatever turn that is; None where it is gone."""
    top = sys._current_frames().get(ident)
    return None if top is None else (walk(top)[0], _running_task(loop))


def walk(top: FrameType) -> tuple[tuple[Frame, ...], int]:
    inward: list[FrameType] = []
    frame: FrameType | None = top
    while frame is not None:
        inward.append(frame)
        frame = frame.f_back
    inward.reverse()
    truncated = max(0, len(inward) - OUTERMOST - INNERMOST)
    if truncated:
        inward[OUTERMOST : OUTERMOST + truncated] = []
    return tuple(map(_frame, inward)), truncated


def _frame(frame: FrameType) -> Frame:
    code = frame.f_code
    position = next(itertools.islice(code.co_positions(), max(frame.f_lasti, 0) // 2, None), None)
    lineno, end_lineno, colno, end_colno = position or (None, None, None, None)
    return Frame(
        code.co_filename,
        frame.f_lineno or lineno or code.co_firstlineno,
        code.co_qualname,
        end_lineno,
        colno,
        end_colno,
    )


def _running_task(loop: asyncio.AbstractEventLoop | None) -> TaskInfo | None:
    if loop is None:
        return None
    task = asyncio.current_task(loop)
    if task is None:
        return None
    coroutine = task.get_coro()
    name = getattr(coroutine, "__qualname__", None) or type(coroutine).__qualname__
    return TaskInfo(task.get_name(), name)
