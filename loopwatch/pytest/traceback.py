"""A stall as pytest shows a traceback: the culprit line last."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from _pytest._code.code import (
    ExceptionChainRepr,
    ReprEntry,
    ReprEntryNative,
    ReprFileLocation,
    ReprTraceback,
)
from _pytest.pathlib import bestrelpath

from loopwatch._culprit import inside_turn, is_import_machinery
from loopwatch._paths import is_own
from loopwatch._stall import Frame, Stall
from loopwatch._text import printable, seconds
from loopwatch.pytest.cost import Cost
from loopwatch.pytest.places import Place

NAME: Final = "LoopBlocked"
_SOURCE_LINES_MAX: Final = 30
_WIDTH: Final = 100


class Offence(NamedTuple):
    """A stall that took longer than its test may."""

    stall: Stall
    cost: Cost
    limit: float
    place: Place

    @property
    def headline(self) -> str:
        stall, where = self.stall, str(self.place)
        thread = f", thread {stall.thread!r}" if stall.thread != "MainThread" else ""
        inside = f", {where}" if where else ""
        ongoing = " so far" if stall.ongoing else ""
        return printable(
            f"event loop blocked for {seconds(self.cost.seconds)}{ongoing} ({self.cost.cause}), "
            f"limit {seconds(self.limit)}{inside}{thread}"
        )

    @property
    def details(self) -> list[str]:
        stall = self.stall
        lines = [f"{seconds(part):>8} {verdict}" for verdict, part in _parts(stall)]
        if stall.task is not None:
            lines.append(f"task {stall.task.name!r} ({stall.task.coroutine})")
        if stall.hint:
            lines.append(stall.hint)
        return [printable(line) for line in lines]


def _parts(stall: Stall) -> list[tuple[str, float]]:
    parts = [(str(verdict), part) for verdict, part in stall.breakdown.items() if part >= 0.0005]
    return sorted(parts, key=lambda part: -part[1]) if len(parts) > 1 else []


def shown_frames(cost: Cost) -> Sequence[Frame]:
    """From the program's first frame in the turn to the culprit; all of the turn's where none is the program's."""
    frames = [frame for frame in inside_turn(cost.frames) if not is_import_machinery(frame)]
    if cost.culprit in frames:
        last = max(index for index, frame in enumerate(frames) if frame == cost.culprit)
        frames = frames[: last + 1]
    first = next((index for index, frame in enumerate(frames) if is_own(frame.filename)), 0)
    return frames[first:]


def representation(offences: Sequence[Offence], style: str, here: Path) -> ExceptionChainRepr:
    """The costliest last. `style` is pytest's --tb; paths are shown as seen from `here`."""
    chain = []
    ordered = sorted(offences, key=lambda offence: offence.cost.seconds)
    for offence in ordered:
        link = None if offence is ordered[-1] else "The event loop was blocked once more in the same place:"
        chain.append((_traceback(offence, style, here), _crash(offence), link))
    return ExceptionChainRepr(chain)


def _crash(offence: Offence) -> ReprFileLocation:
    frame = offence.cost.culprit
    path, line = (frame.filename, frame.lineno) if frame is not None else (offence.place.nodeid, 0)
    return ReprFileLocation(path, line, f"{NAME}: {offence.headline}")


def _shorter(filename: str, here: Path) -> str:
    path = Path(filename)
    return bestrelpath(here, path) if path.is_absolute() else filename


def _traceback(offence: Offence, style: str, here: Path) -> ReprTraceback:
    frames = shown_frames(offence.cost)
    said = [f"E   {NAME}: {offence.headline}", *(f"E     {line}" for line in offence.details)]
    entries: list[ReprEntry | ReprEntryNative] = []
    for frame in frames:
        end = frame is frames[-1]
        if style == "native":
            entries.append(ReprEntryNative([*_native(frame), *(f"{line[4:]}\n" for line in said if end)]))
        else:
            kind = "short" if style in ("short", "line") else "long"
            entries.append(_entry(frame, kind, said if end else [], _shorter(frame.filename, here)))
    if not entries:
        entries.append(ReprEntry(said, None, None, None, "long"))
    return ReprTraceback(entries, None, "long" if style in ("auto", "long") else "short")


def _native(frame: Frame) -> list[str]:
    source = linecache.getline(frame.filename, frame.lineno).strip()
    head = f'  File "{frame.filename}", line {frame.lineno}, in {frame.qualname}\n'
    return [head, f"    {source}\n"] if source else [head]


def _entry(frame: Frame, style: str, said: list[str], path: str) -> ReprEntry:
    if style == "short":
        source = linecache.getline(frame.filename, frame.lineno).strip()
        location = ReprFileLocation(path, frame.lineno, f"in {frame.qualname}")
        return ReprEntry([f"    {source}", *said], None, None, location, "short")
    location = ReprFileLocation(path, frame.lineno, NAME if said else "")
    return ReprEntry([*_source(frame), *said], None, None, location, "long")


def _source(frame: Frame) -> list[str]:
    """The function up to the line, which is marked."""
    lines = linecache.getlines(frame.filename)
    if not 0 < frame.lineno <= len(lines):
        return [f">   {frame.qualname}"]
    first = max(_function_start(lines, frame.lineno), frame.lineno - _SOURCE_LINES_MAX)
    taken = [line.rstrip("\n").expandtabs() for line in lines[first - 1 : frame.lineno]]
    indent = min((len(line) - len(line.lstrip()) for line in taken if line.strip()), default=0)
    shown = [line[indent:] for line in taken]
    return [*(f"    {line}" for line in shown[:-1]), f">   {shown[-1]}"]


def _function_start(lines: Sequence[str], lineno: int) -> int:
    """Of the innermost function around the line; the line itself where there is none."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return lineno
    starts = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= lineno <= (node.end_lineno or 0)
    ]
    return max(starts, default=lineno)
