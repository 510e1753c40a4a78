"""What a report is of: lanes with their stalls and seconds, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from loopwatch._culprit import stood
from loopwatch._process import Process
from loopwatch._stall import Frame, Stall, Verdict

PROBLEMS_NAMED: Final = 100


@dataclass(slots=True)
class Lane:
    """The loops that one thread of one process ran, one after the other."""

    origin: str
    """The file it is from; "": this process."""
    process: Process
    thread: str
    stalls: list[Stall] = field(default_factory=list)
    """By their begin."""
    loops: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The last `loop` line of each watch, with the cells of all its lines."""
    at: dict[int, datetime] = field(default_factory=dict)
    """When that line was made."""

    @property
    def name(self) -> str:
        return f"{self.thread} ({self.process.pid})"

    @property
    def busy(self) -> float:
        return sum(loop["lag"]["busy"] or 0.0 for loop in self.loops.values())

    @property
    def idle(self) -> float | None:
        """None where a loop's pulse could not tell, or nothing is known of loops."""
        known = [loop["lag"]["idle"] for loop in self.loops.values()]
        return sum(known) if known and None not in known else None

    @property
    def watched(self) -> float | None:
        """Seconds that the loops ran."""
        return None if self.idle is None else self.busy + self.idle

    def cells(self) -> Iterator[tuple[float, float, float | None, float, float | None]]:
        """(at, busy, idle, worst, gc) of each second, oldest first."""
        columns = [loop["cells"] for loop in self.loops.values()]
        rows = (
            row
            for cells in columns
            for row in zip(*(cells[name] for name in ("at", "busy", "idle", "worst", "gc")), strict=True)
        )
        yield from sorted(rows, key=lambda row: row[0])


@dataclass(frozen=True, slots=True)
class Site:
    """The stalls of one fingerprint, in whatever process they were."""

    fingerprint: str
    verdict: Verdict
    culprit: Frame | None
    """Of the longest."""
    stood: Frame | None
    """Where the loop was meanwhile; None where there is a culprit, too."""
    count: int
    seconds: float
    worst: float
    processes: int


@dataclass(slots=True)
class Report:
    """Everything that the sources had, each stall once."""

    lanes: list[Lane] = field(default_factory=list)
    gc: dict[int, dict[str, float]] = field(default_factory=dict)
    """By generation: count, seconds and worst, of all processes."""
    saturations: int = 0
    problems: list[str] = field(default_factory=list)
    """The first PROBLEMS_NAMED of them, each with its file and line."""
    problem_count: int = 0
    not_lines: list[str] = field(default_factory=list)
    """Files that have lines, and none of loopwatch's."""

    @property
    def stalls(self) -> list[Stall]:
        """Of all lanes, by their begin."""
        return sorted(
            (stall for lane in self.lanes for stall in lane.stalls), key=lambda stall: stall.started_at
        )

    @property
    def stalled(self) -> float:
        return sum(stall.duration for lane in self.lanes for stall in lane.stalls)

    @property
    def processes(self) -> int:
        return len({(lane.origin, lane.process) for lane in self.lanes})

    def note(self, problem: str) -> None:
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_NAMED:
            self.problems.append(problem)

    def by_verdict(self) -> dict[Verdict, tuple[int, float]]:
        """(stalls, their seconds) of each verdict that there is, most seconds first."""
        found: dict[Verdict, tuple[int, float]] = {}
        for stall in self.stalls:
            count, seconds = found.get(stall.verdict, (0, 0.0))
            found[stall.verdict] = count + 1, seconds + stall.duration
        return dict(sorted(found.items(), key=lambda item: -item[1][1]))

    def sites(self) -> list[Site]:
        """By fingerprint, most seconds first."""
        groups: dict[str, list[tuple[Lane, Stall]]] = {}
        for lane in self.lanes:
            for stall in lane.stalls:
                groups.setdefault(stall.fingerprint or f"{stall.verdict}", []).append((lane, stall))
        return sorted((_site(key, group) for key, group in groups.items()), key=lambda site: -site.seconds)

    def histogram(self) -> tuple[list[float], list[int]] | None:
        """(bounds, counts) of the turns of all loops; None where none is known. Loops whose bounds differ from
        the first one's are of another version, and left out."""
        found: tuple[list[float], list[int]] | None = None
        for loop in (loop for lane in self.lanes for loop in lane.loops.values()):
            histogram = loop["histogram"]
            if histogram is None:
                continue
            if found is None:
                found = list(histogram["bounds"]), list(histogram["counts"])
            elif found[0] == histogram["bounds"]:
                found = found[0], [a + b for a, b in zip(found[1], histogram["counts"], strict=True)]
        return found


def _site(fingerprint: str, group: list[tuple[Lane, Stall]]) -> Site:
    longest = max((stall for _, stall in group), key=lambda stall: stall.duration)
    return Site(
        fingerprint=fingerprint,
        verdict=longest.verdict,
        culprit=longest.culprit,
        stood=stood(stall for _, stall in group if stall.culprit is None),
        count=len(group),
        seconds=sum(stall.duration for _, stall in group),
        worst=longest.duration,
        processes=len({(lane.origin, lane.process) for lane, _ in group}),
    )


def no_gc() -> Mapping[str, float]:
    return {"count": 0, "seconds": 0.0, "worst": 0.0}
