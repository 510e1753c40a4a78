"""What the processes of a run have written, put together; and what the pages of those that were killed add to it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from loopwatch import _page
from loopwatch._linefile import LineFile
from loopwatch._page import Page
from loopwatch._process import Process
from loopwatch._stall import Stall, own_seconds
from loopwatch.cli import _from_page, _page_check
from loopwatch.jsonl import line_of, stall_line
from loopwatch.report.check import sound_date, sound_loop, sound_stall, sound_started

T = TypeVar("T", int, float)

Loop = tuple[Process, int]
"""Its process, and the key of its watch. Both count from 1 again where a process becomes another program by exec."""


@dataclass
class Run:
    """Of all processes together."""

    stalls: list[Stall] = field(default_factory=list)
    """That ended."""
    unfinished: list[Stall] = field(default_factory=list)
    """What still went on when its process was killed: by its last report, or its page, which is newer."""
    loops: set[Loop] = field(default_factory=set)
    turns: int | None = 0
    """None, here and below: the pulse of one of the loops cannot tell."""
    busy: float | None = 0.0
    idle: float | None = 0.0
    pages: list[Page] = field(default_factory=list)
    """That were left behind, or whose processes still run."""
    more: list[bytes] = field(default_factory=list)
    """The lines that these add to the records."""
    unknown: int = 0
    """Loops of which nothing is known: their processes ended without a word, and left no page."""
    complete: bool = True
    """False: something could not be written."""

    @property
    def worst_own(self) -> Stall | None:
        """The one that took most of the program's own doing."""
        return max(
            (*self.stalls, *self.unfinished),
            key=lambda stall: own_seconds(stall.breakdown),
            default=None,
        )

    def add(self, lag: Mapping[str, Any]) -> None:
        """What one loop did."""
        self.turns = _sum(self.turns, lag["turns"])
        self.busy = _sum(self.busy, lag["busy"])
        self.idle = _sum(self.idle, lag["idle"])


def _sum(one: T | None, other: T | None) -> T | None:
    return None if one is None or other is None else one + other


def load(records: Path, loops: Path) -> Run:
    run = Run()
    stalls: dict[tuple[Process, int], Stall] = {}
    ends: dict[Loop, dict[str, Any]] = {}
    for line in _lines(records):
        with suppress(KeyError, TypeError, ValueError):  # not a line of ours
            process = Process(line["pid"], sound_started(line))
            if line["kind"] == "stall":
                stalls[process, line["stall"]["id"]] = sound_stall(line["stall"])
            elif line["kind"] == "loop":
                ends[process, line["watch"]] = sound_loop(line) | {"at": sound_date(line["at"])}
    noted = _noted(loops)
    run.loops = {(row.process, int(row.key)) for row in noted if row.key.isdecimal()} | ends.keys()
    run.stalls = [stall for stall in stalls.values() if not stall.ongoing]
    unfinished = {key: stall for key, stall in stalls.items() if stall.ongoing}
    for page, process in _pages_of(noted):
        run.pages.append(page)
        if not page.body:  # its watchdog had nothing to say yet
            continue
        known = [stall for (of, _), stall in stalls.items() if of == process]
        with suppress(KeyError, TypeError, ValueError):  # of a loopwatch that is not ours
            _add_loops(run, page, process, ends)
            for stall in _from_page.current(page, known):
                key = process, stall.id
                if key not in stalls or key in unfinished:
                    unfinished[key] = stall
                    run.more.append(stall_line(stall, process=process))
    run.unknown = len(run.loops - ends.keys())
    for line in ends.values():
        run.add(line["lag"])
    run.unfinished = list(unfinished.values())
    return run


def append(lines: list[bytes], records: Path) -> None:
    """OSError where they cannot be written."""
    file = LineFile(records)
    try:
        if _is_torn(records):
            file.write(b"\n")
        for line in lines:
            file.write(line)
    finally:
        file.close()


def _is_torn(path: Path) -> bool:
    """A full disk, or the end of its process, has cut the last line off."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def remove_pages(run: Run) -> list[Page]:
    """Of processes that are gone, whose pages say no more than the summary does; those of processes that died in a
    stall are for `loopwatch post`, and returned."""
    kept = []
    for page in run.pages:
        if page.alive or page.owner != os.geteuid():
            continue
        if page.body.get("current"):
            kept.append(page)
        else:
            with suppress(OSError):
                page.path.unlink()
    return kept


# --- files ---


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for line in file:
                with suppress(ValueError, RecursionError):  # a full disk cut it off, or it is not ours
                    yield json.loads(line)
    except OSError:  # nothing was written, or the program has put something else there
        return


class _Noted(NamedTuple):
    """A line of the file of loops."""

    process: Process
    key: str
    start: str


def _noted(loops: Path) -> list[_Noted]:
    try:
        text = loops.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    rows = (line.split() for line in text.splitlines())
    return [
        _Noted(Process(int(row[0]), row[2]), row[1], row[3])
        for row in rows
        if len(row) == 4 and row[0].isdecimal()
    ]


# --- pages ---


def _pages_of(noted: Iterable[_Noted]) -> Iterator[tuple[Page, Process]]:
    """A process that was killed had no time for its last lines; its page was left behind. Not that of another process
    with the same number; of what a process was, one after the other by exec, that of the last."""
    last: dict[tuple[int, str], Process] = {}
    for row in noted:
        key = row.process.pid, row.start
        last[key] = max(row.process, last.get(key, row.process))
    for (pid, start), process in last.items():
        with suppress(OSError, ValueError):
            page = _page_check.read(_page.find(pid))
            if str(page.head["start"]) == start:
                yield page, process


def _add_loops(run: Run, page: Page, process: Process, ends: dict[Loop, dict[str, Any]]) -> None:
    """In place of a loop's last line, where the page is newer."""
    at = _from_page.written(page)
    for loop in _from_page.loops(page):
        key = process, loop["key"]
        before = ends.get(key)
        if before is None or before["at"] < at:
            fields = _from_page.loop_fields(page, loop, before)
            ends[key] = fields | {"at": at}
            run.more.append(line_of("loop", fields, process=process, at=at))
