"""A report as the data of the page: plain JSON, each frame and stack once, every text in printable characters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from loopwatch._culprit import inside_turn
from loopwatch._paths import is_own
from loopwatch._stall import Evidence, Frame, Stall, Verdict
from loopwatch._text import holder_title, printable, sentence, stack_title
from loopwatch.report.flame import Node, tree
from loopwatch.report.model import Lane, Report

BINS_MAX: Final = 3600
"""Of a lane; longer ones have bins of several seconds."""
ALL_BINS_MAX: Final = 10 * BINS_MAX
"""Of all lanes together."""
_VERDICTS: Final = [str(verdict) for verdict in Verdict]
_EVIDENCE: Final = [name for name in Evidence.__slots__ if name not in ("syscall", "target")]


def payload(report: Report) -> dict[str, Any]:
    from loopwatch import __version__

    tables = _Tables()
    stalls = [
        _stall(stall, index, tables) for index, lane in enumerate(report.lanes) for stall in lane.stalls
    ]
    stalls.sort(key=lambda row: (row["at"], row["id"]))
    most = min(BINS_MAX, max(1, ALL_BINS_MAX // max(1, len(report.lanes))))
    bounds, counts = report.histogram() or ((), ())
    return {
        "version": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdicts": _VERDICTS,
        "lanes": [_lane(lane, most) for lane in report.lanes],
        "stalls": stalls,
        "sites": [_site(site, tables) for site in report.sites()],
        "flame": _flame(tree(report.stalls), tables),
        "histogram": {"bounds": bounds, "counts": counts},
        "gc": [{"generation": number, **row} for number, row in sorted(report.gc.items())],
        "saturations": report.saturations,
        "processes": report.processes,
        "problems": {"count": report.problem_count, "first": [printable(text) for text in report.problems]},
        "frames": tables.frames(),
        "stacks": tables.stacks(),
    }


class _Tables:
    def __init__(self) -> None:
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._source: dict[tuple[str, int], str] = {}

    def learn(self, stall: Stall) -> None:
        self._source.update(stall.source)

    def frame(self, frame: Frame | None) -> int | None:
        return None if frame is None else self._frames.setdefault(frame, len(self._frames))

    def stack(self, frames: Sequence[Frame]) -> int:
        indexes = tuple(self._frames.setdefault(frame, len(self._frames)) for frame in frames)
        return self._stacks.setdefault(indexes, len(self._stacks))

    def frames(self) -> list[list[Any]]:
        """[file, line, function, source line, whether it is the program's own]"""
        return [
            [
                printable(frame.filename),
                frame.lineno,
                printable(frame.qualname),
                printable(self._source.get((frame.filename, frame.lineno), "").expandtabs(4)),
                is_own(frame.filename),
            ]
            for frame in self._frames
        ]

    def stacks(self) -> list[tuple[int, ...]]:
        return list(self._stacks)


def _stall(stall: Stall, lane: int, tables: _Tables) -> dict[str, Any]:
    tables.learn(stall)
    evidence = {name: value for name in _EVIDENCE if (value := getattr(stall.evidence, name)) is not None}
    texts = {"syscall": stall.evidence.syscall, "target": stall.evidence.target}
    task = stall.task
    return {
        "id": stall.id,
        "lane": lane,
        "at": round(stall.started_at.timestamp() * 1000, 3),
        "duration": stall.duration,
        "ongoing": stall.ongoing,
        "verdict": str(stall.verdict),
        "breakdown": {str(verdict): seconds for verdict, seconds in stall.breakdown.items()},
        "summary": stall.summary,
        "sentence": printable(sentence(stall)),
        "hint": printable(stall.hint),
        "culprit": tables.frame(stall.culprit),
        "stack": tables.stack(stall.frames),
        "stack_title": printable(stack_title(stall).removesuffix(":")),
        "outer": len(stall.frames) - len(inside_turn(stall.frames)),
        "truncated": stall.truncated,
        "task": task and [printable(task.name), printable(task.coroutine)],
        "holder": _holder(stall, tables),
        "steps": {printable(name): seconds for name, seconds in stall.steps.items()},
        "labels": {printable(name): printable(value) for name, value in stall.labels.items()},
        "evidence": evidence | {name: printable(text) for name, text in texts.items() if text is not None},
        "samples": len(stall.samples),
        "fingerprint": _fingerprint(stall.fingerprint, stall.verdict),
    }


def _fingerprint(fingerprint: str, verdict: Verdict) -> str:
    return printable(fingerprint or str(verdict))


def _holder(stall: Stall, tables: _Tables) -> dict[str, Any] | None:
    """None also where its stack is the stall's."""
    if stall.holder is None or stall.holder.frames == stall.frames:
        return None
    return {
        "title": printable(holder_title(stall).removesuffix(":")),
        "stack": tables.stack(stall.holder.frames),
    }


def _site(site: Any, tables: _Tables) -> dict[str, Any]:
    return {
        "fingerprint": _fingerprint(site.fingerprint, site.verdict),
        "verdict": str(site.verdict),
        "culprit": tables.frame(site.culprit),
        "count": site.count,
        "seconds": site.seconds,
        "worst": site.worst,
        "processes": site.processes,
    }


def _flame(root: Node, tables: _Tables) -> list[list[Any]]:
    """[frame, seconds, number of its largest cause, index of its parent] of each node, parents first. Flat, since a
    stack may be deeper than a nested list can be."""
    rows: list[list[Any]] = []
    waiting = [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        row = [tables.frame(node.frame), round(node.seconds, 6), _VERDICTS.index(node.verdict), parent]
        waiting.extend((child, len(rows)) for child in reversed(node.by_weight()))
        rows.append(row)
    return rows


def _lane(lane: Lane, most: int) -> dict[str, Any]:
    loop = next(reversed(lane.loops.values()), None)
    return {
        "name": printable(lane.name),
        "origin": printable(lane.origin),
        "watched": lane.watched,
        "busy": lane.busy if lane.loops else None,
        "threshold": loop and loop["threshold"],
        "pulse": loop and printable(loop["pulse"]),
        "lag": loop and _lag(loop["lag"]),
        "bins": _bins(lane, most),
    }


def _lag(lag: dict[str, Any]) -> dict[str, Any]:
    return {
        "turns": lag["turns"],
        "max": lag["max"],
        "quantiles": {q: lag["quantiles"].get(q) for q in ("0.5", "0.99")},
        "waiting": {q: lag["waiting"].get(q) for q in ("0.5", "0.99")},
    }


def _bins(lane: Lane, most: int) -> dict[str, Any]:
    """The seconds of the lane as columns, so many together that there are `most` bins."""
    cells = list(lane.cells())
    together = -(-len(cells) // most) or 1
    bins: dict[str, list[Any]] = {"at": [], "seconds": [], "busy": [], "worst": [], "gc": []}
    for begin in range(0, len(cells), together):
        rows = cells[begin : begin + together]
        ran = [(row[1], row[2]) for row in rows]
        known = sum(busy + (idle or 0.0) for busy, idle in ran)
        bins["at"].append(round(rows[0][0] * 1000))
        bins["seconds"].append(round(rows[-1][0] - rows[0][0]) + 1)
        bins["busy"].append(round(sum(busy for busy, _ in ran) / max(known, float(len(rows))), 4))
        bins["worst"].append(max(row[3] for row in rows))
        bins["gc"].append(round(sum(row[4] or 0.0 for row in rows), 6))
    return bins
