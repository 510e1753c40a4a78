"""From sources to a Report: reads, leaves out what it cannot use, and merges what several sources have."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

from loopwatch._loop_line import CELL_FIELDS, loop_data
from loopwatch._process import Process
from loopwatch._stall import Stall
from loopwatch._watch import Watch
from loopwatch.jsonl import VERSION
from loopwatch.report.check import sound_date, sound_loop, sound_stall, sound_started
from loopwatch.report.model import Lane, Report, no_gc

Source = Watch | Stall | str | os.PathLike[str] | Mapping[str, Any] | Iterable[Any]
Progress = Callable[[str, float], object]
"""Called with what is done, and the share of it that is done, 0 to 1."""

LINE_MAX: Final = 8 << 20
"""Bytes. JsonLines writes lines of a megabyte at most; a longer one is of somebody else."""
_PROGRESS_BYTES: Final = 1 << 20


def silent(_what: str, _share: float) -> None:
    """Nobody wants to know."""


def load(*sources: Source, progress: Progress = silent) -> Report:
    """A Report of all sources. OSError where a file cannot be read; TypeError for what is no source."""
    loading = _Loading(progress)
    for source in sources:
        loading.add(source)
    return loading.report()


class _Loading:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._report = Report()
        self._lanes: dict[tuple[str, Process, str], Lane] = {}
        self._stalls: dict[tuple[str, Process, int, str], tuple[Lane, Stall]] = {}
        self._seconds: dict[tuple[str, Process, int], set[float]] = {}
        self._gc: dict[tuple[str, Process], tuple[datetime, list[dict[str, Any]]]] = {}
        self._has_lines = self._has_others = False
        """Of the file that is read: lines of loopwatch, and others."""

    def add(self, source: Source) -> None:
        if isinstance(source, Watch):
            self._add_watch(source)
        elif isinstance(source, Stall):
            self._add_stall("", _here(), source)
        elif isinstance(source, (str, os.PathLike)):
            self._add_file(Path(source))
        elif isinstance(source, Mapping):
            self._add_line("", source, "a record")
        elif isinstance(source, Iterable):
            for each in source:
                self.add(each)
        else:
            raise TypeError(f"a report is made of watches, stalls, paths and records, not of {source!r}")

    def report(self) -> Report:
        for lane, stall in self._stalls.values():
            lane.stalls.append(stall)
        for lane in self._lanes.values():
            lane.stalls.sort(key=lambda stall: stall.started_at)
        self._report.lanes = sorted(
            self._lanes.values(), key=lambda lane: (lane.origin, lane.process, lane.thread)
        )
        for _, rows in self._gc.values():
            for row in rows:
                known = self._report.gc.get(row["generation"]) or no_gc()
                self._report.gc[row["generation"]] = {
                    "count": known["count"] + row["count"],
                    "seconds": known["seconds"] + row["seconds"],
                    "worst": max(known["worst"], row["worst"]),
                }
        return self._report

    # --- what is here ---

    def _add_watch(self, watch: Watch) -> None:
        for stall in watch.stalls:
            self._add_stall("", _here(), stall)
        if (current := watch.current) is not None:
            self._add_stall("", _here(), current)
        if watch.thread is not None:
            self._add_loop("", _here(), loop_data(watch)[0], datetime.now(UTC))

    # --- files ---

    def _add_file(self, path: Path) -> None:
        with path.open("rb") as file:
            size, told = os.fstat(file.fileno()).st_size, 0
            self._has_lines, self._has_others = False, False
            origin = str(path).removesuffix(".1")  # what JsonLines renamed is of the same processes
            for number, line in enumerate(_lines(file), 1):
                self._add_text(origin, line, f"{path}:{number}")
                if file.tell() - told >= _PROGRESS_BYTES:
                    told = file.tell()
                    self._progress(f"reading {path}", min(1.0, told / size) if size else 0.0)
        if self._has_others and not self._has_lines:
            self._report.not_lines.append(str(path))

    def _add_text(self, origin: str, line: bytes | None, where: str) -> None:
        if line is None:
            self._note_other(f"{where}: longer than {LINE_MAX} bytes")
            return
        if not line.strip():
            return
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            self._note_other(f"{where}: not JSON")
            return
        self._add_line(origin, data, where)

    def _note_other(self, problem: str) -> None:
        self._has_others = True
        self._report.note(problem)

    def _add_line(self, origin: str, data: Any, where: str) -> None:
        """Kinds that are not known are of a newer version, and no problem."""
        if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
            self._note_other(f"{where}: not a line of loopwatch")
            return
        self._has_lines = True
        if data.get("v") != VERSION:
            self._report.note(
                f"{where}: version {data.get('v')!r} of the schema; this loopwatch reads {VERSION}"
            )
        elif isinstance(data.get("pid"), bool) or not isinstance(data.get("pid"), int):
            self._report.note(f"{where}: no process id")
        else:
            try:
                self._add_kind(origin, Process(data["pid"], sound_started(data)), data)
            except (ValueError, RecursionError) as problem:
                self._report.note(f"{where}: {str(problem)[:200]}")

    def _add_kind(self, origin: str, process: Process, data: Mapping[str, Any]) -> None:
        match data["kind"]:
            case "stall":
                self._add_stall(origin, process, sound_stall(data.get("stall")))
            case "loop":
                self._add_loop(origin, process, sound_loop(data), sound_date(data.get("at")))
            case "saturation":
                self._report.saturations += 1

    # --- merging ---

    def _lane(self, origin: str, process: Process, thread: str) -> Lane:
        return self._lanes.setdefault((origin, process, thread), Lane(origin, process, thread))

    def _add_stall(self, origin: str, process: Process, stall: Stall) -> None:
        """Of the reports of one stall the final one counts, else the latest. A process id may be used again: where
        nothing says when the process started, the stall's own begin has to tell."""
        key = origin, process, stall.id, "" if process.started else stall.started_at.isoformat()
        known = self._stalls.get(key)
        if known is None or (known[1].ongoing and stall.duration >= known[1].duration):
            self._stalls[key] = self._lane(origin, process, stall.thread), stall

    def _add_loop(self, origin: str, process: Process, data: dict[str, Any], at: datetime) -> None:
        """Without the seconds that are known: a file may be given twice, and of a watch everything is read again.
        Of what is told as it is so far, the youngest line's counts, whichever is read last."""
        lane, watch = self._lane(origin, process, data["thread"]), data["watch"]
        gc = self._gc.get((origin, process))
        if gc is None or at >= gc[0]:
            self._gc[origin, process] = at, data["gc"]
        known = self._seconds.setdefault((origin, process, watch), set())
        added = [index for index, at in enumerate(data["cells"]["at"]) if at not in known]
        known.update(data["cells"]["at"])
        before = lane.loops.get(watch)
        cells = before["cells"] if before is not None else {name: [] for name in CELL_FIELDS}
        for name in CELL_FIELDS:
            cells[name].extend(data["cells"][name][index] for index in added)
        if before is None or at >= lane.at[watch]:
            lane.loops[watch], lane.at[watch] = data | {"cells": cells}, at


def _here() -> Process:
    """Whose watches and stalls are at hand. A Stall at hand may also be of a file that was read, so nothing is said of
    when its process started."""
    return Process(os.getpid(), "")


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """None in place of one that is too long."""
    while line := file.readline(LINE_MAX):
        if line.endswith(b"\n") or len(line) < LINE_MAX:
            yield line
            continue
        while (rest := file.readline(LINE_MAX)) and not rest.endswith(b"\n"):
            pass
        yield None
