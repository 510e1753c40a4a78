"""What the processes of a run have written, put together, and the summary of it."""

from __future__ import annotations

import collections
import json
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from loopwatch import _page
from loopwatch._stall import own_seconds
from loopwatch._text import counted, printable, seconds, spot
from loopwatch.cli import _pages
from loopwatch.cli._launched import LOOPS, RECORDS

_SITES_SHOWN: Final = 5

T = TypeVar("T", int, float)

Loop = tuple[int, int]
"""Process id, key of the watch."""


@dataclass
class Run:
    """Of all processes together."""

    stalls: list[dict[str, Any]] = field(default_factory=list)
    """That ended, as Stall.to_dict() has them."""
    unfinished: list[dict[str, Any]] = field(default_factory=list)
    """What still went on when its process was killed: by its last report, or its page, which is newer."""
    loops: set[Loop] = field(default_factory=set)
    turns: int | None = 0
    """None, here and below: the pulse of one of the loops cannot tell."""
    busy: float | None = 0.0
    idle: float | None = 0.0

    @property
    def worst_own(self) -> float:
        """The most that one stall took of the program's own doing."""
        return max(
            (own_seconds(stall["breakdown"]) for stall in (*self.stalls, *self.unfinished)), default=0.0
        )

    def add(self, turns: int | None, busy: float | None, idle: float | None) -> None:
        """What one loop did."""
        self.turns = _sum(self.turns, turns)
        self.busy = _sum(self.busy, busy)
        self.idle = _sum(self.idle, idle)


def _sum(one: T | None, other: T | None) -> T | None:
    return None if one is None or other is None else one + other


def load(directory: Path) -> Run:
    run = Run()
    stalls: dict[Loop, dict[str, Any]] = {}
    ends: dict[Loop, dict[str, Any]] = {}
    for line in _lines(directory / RECORDS):
        if line.get("kind") == "stall":
            stalls[line["pid"], line["stall"]["id"]] = line["stall"]
        elif line.get("kind") == "loop":
            ends[line["pid"], line["watch"]] = line["lag"]
    run.stalls = [stall for stall in stalls.values() if not stall["ongoing"]]
    unfinished = {key: stall for key, stall in stalls.items() if stall["ongoing"]}
    run.loops = set(_loops(directory / LOOPS)) | ends.keys()
    for lag in ends.values():
        run.add(lag["turns"], lag["busy"], lag["idle"])
    for pid in {pid for pid, key in run.loops if (pid, key) not in ends}:
        if (page := _page_of(pid)) is not None:
            _add_loops(run, page, ends.keys())
            unfinished |= {
                key: stall for key, stall in _current(page) if key not in stalls or key in unfinished
            }
    run.unfinished = list(unfinished.values())
    return run


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:  # a full disk cut it off
                    continue
    except FileNotFoundError:
        return


def _loops(path: Path) -> Iterator[Loop]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return
    for line in text.splitlines():
        pid, _, key = line.partition(" ")
        if key.isdecimal():
            yield int(pid), int(key)


def _page_of(pid: int) -> _page.Page | None:
    """A process that was killed had no time for its last lines; its page was left behind."""
    try:
        return _pages.read(_page.find(pid))
    except (OSError, ValueError):
        return None


def _add_loops(run: Run, page: _page.Page, ended: Container[Loop]) -> None:
    for loop in page.body.get("loops", ()):
        if (page.pid, loop["key"]) not in ended and "busy" in loop:  # else it has not run yet
            idle = loop.get("idle")
            run.add(loop.get("turns"), loop["busy"] / 1e9, None if idle is None else idle / 1e9)


def _current(page: _page.Page) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """What it was blocked in, by process and stall."""
    for stall in page.body.get("current", ()):
        culprit = None
        if "function" in stall:
            culprit = {"qualname": stall["function"], "filename": stall["file"], "lineno": stall["line"]}
        yield (
            (page.pid, stall["id"]),
            {
                "duration": (stall["seen"] - stall["begin"]) / 1e9,
                "verdict": stall["verdict"],
                "breakdown": {cause: ns / 1e9 for cause, ns in stall["causes"].items()},
                "culprit": culprit,
            },
        )


# --- in words ---


def summary(run: Run, threshold: float) -> Iterator[str]:
    if not run.loops:
        yield "loopwatch: no event loop ran in a process that loopwatch could watch"
        return
    processes = len({pid for pid, _ in run.loops})
    where = f" in {processes} processes" if processes > 1 else ""
    loops = (
        f"{counted(len(run.loops), 'event loop')} {'was' if len(run.loops) == 1 else 'were'} watched{where}"
    )
    turns = "- turns" if run.turns is None else counted(run.turns, "turn")
    yield f"loopwatch: {loops}: {turns}, busy {_share(run)}"
    if run.stalls:
        yield from _stalls(run.stalls)
    elif not run.unfinished:
        yield f"  no stall of {seconds(threshold)} or more"
    for stall in run.unfinished:
        yield f"  at its end blocked for {seconds(stall['duration'])}: {stall['verdict']}{_place(stall['culprit'])}"


def _share(run: Run) -> str:
    if run.busy is None or run.idle is None:
        return "-"
    whole = run.busy + run.idle
    return f"{run.busy / whole if whole else 0.0:.0%} of {seconds(whole)}"


def _stalls(stalls: list[dict[str, Any]]) -> Iterator[str]:
    total = sum(stall["duration"] for stall in stalls)
    worst = max(stalls, key=lambda stall: stall["duration"])
    yield f"  {counted(len(stalls), 'stall')}, {seconds(total)} together; the longest {seconds(worst['duration'])}"
    sites: dict[str, list[float]] = collections.defaultdict(list)
    for stall in stalls:
        sites[f"{stall['verdict']}{_place(stall['culprit'])}"].append(stall["duration"])
    ranked = sorted(sites.items(), key=lambda item: -sum(item[1]))
    for name, durations in ranked[:_SITES_SHOWN]:
        yield f"  {len(durations):4} x {name}: {seconds(sum(durations))}, at most {seconds(max(durations))}"
    if len(ranked) > _SITES_SHOWN:
        yield f"  and {counted(len(ranked) - _SITES_SHOWN, 'place')} more"


def _place(culprit: dict[str, Any] | None) -> str:
    if not culprit:
        return ""
    return printable(f" in {spot(culprit['qualname'], culprit['filename'], culprit['lineno'])}")
