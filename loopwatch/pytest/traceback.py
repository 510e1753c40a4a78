"""A stall as pytest shows a traceback: the culprit line last."""

from __future__ import annotations

import ast
import itertools
import linecache
from collections.abc import Iterator, Sequence
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

from loopwatch._culprit import function_of
from loopwatch._paths import is_own
from loopwatch._stall import Frame
from loopwatch.pytest.offence import Offence, shown_frames

_SOURCE_LINES_MAX: Final = 30
_SHORT_SHOWN: Final = 6
"""Short entries in a row; of more, the first and the last ones."""


class _Shown(NamedTuple):
    frame: Frame
    full: bool
    """With the function's source. Else its line alone: library code, and functions that were shown before."""


class _LeftOut(NamedTuple):
    frames: int

    def __str__(self) -> str:
        return f"[{self.frames} frames left out]"


def representation(offences: Sequence[Offence], name: str, style: str, here: Path) -> ExceptionChainRepr:
    """One element for each, in this order. `name`: what pytest would call the exception; `style` is its --tb; paths
    are shown as seen from `here`."""
    chain = []
    for offence in offences:
        link = None if offence is offences[-1] else "The event loop was blocked in another place too:"
        chain.append((_traceback(offence, name, style, here), _crash(offence, name), link))
    return ExceptionChainRepr(chain)


def _crash(offence: Offence, name: str) -> ReprFileLocation:
    frame = offence.cost.culprit
    path, line = (frame.filename, frame.lineno) if frame is not None else (offence.place.nodeid, 0)
    return ReprFileLocation(path, line, f"{name}: {offence.headline}")


def _shorter(filename: str, here: Path) -> str:
    path = Path(filename)
    return min(bestrelpath(here, path), filename, key=len) if path.is_absolute() else filename


def _traceback(offence: Offence, name: str, style: str, here: Path) -> ReprTraceback:
    said = [f"E   {name}: {offence.headline}", *(f"E     {line}" for line in offence.details)]
    shown = list(_folded(shown_frames(offence.cost)))
    entries: list[ReprEntry | ReprEntryNative] = []
    for each in shown:
        last = said if each is shown[-1] else []
        if style == "native":
            entries.append(ReprEntryNative([*_native(each), *(f"{line[4:]}\n" for line in last)]))
        elif isinstance(each, _LeftOut):
            entries.append(ReprEntry([f"    {each}"], None, None, None, "short"))
        else:
            path = _shorter(each.frame.filename, here)
            full = each.full and style not in ("short", "line")
            entry = _full(each.frame, last, path, name) if full else _short(each.frame, last, path)
            entries.append(entry)
    if not entries:
        entries.append(ReprEntry(said, None, None, None, "long"))
    return ReprTraceback(entries, None, "long" if style in ("auto", "long") else "short")


def _folded(frames: Sequence[Frame]) -> Iterator[_Shown | _LeftOut]:
    for full, run in itertools.groupby(_with_style(frames), lambda each: each.full):
        shown = list(run)
        left_out = len(shown) - _SHORT_SHOWN
        if full or left_out <= 1:
            yield from shown
        else:
            yield from shown[: _SHORT_SHOWN // 2]
            yield _LeftOut(left_out)
            yield from shown[-(_SHORT_SHOWN // 2) :]


def _with_style(frames: Sequence[Frame]) -> Iterator[_Shown]:
    known = set()
    for index, frame in enumerate(frames):
        new = function_of(frame) not in known or index == len(frames) - 1
        known.add(function_of(frame))
        yield _Shown(frame, new and is_own(frame.filename))


def _native(shown: _Shown | _LeftOut) -> list[str]:
    if isinstance(shown, _LeftOut):
        return [f"  {shown}\n"]
    frame = shown.frame
    source = linecache.getline(frame.filename, frame.lineno).strip()
    head = f'  File "{frame.filename}", line {frame.lineno}, in {frame.qualname}\n'
    return [head, f"    {source}\n"] if source else [head]


def _short(frame: Frame, said: list[str], path: str) -> ReprEntry:
    source = linecache.getline(frame.filename, frame.lineno).strip()
    location = ReprFileLocation(path, frame.lineno, f"in {frame.qualname}")
    return ReprEntry([f"    {source}", *said], None, None, location, "short")


def _full(frame: Frame, said: list[str], path: str, name: str) -> ReprEntry:
    location = ReprFileLocation(path, frame.lineno, name if said else "")
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
