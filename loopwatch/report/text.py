"""A report in plain text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from loopwatch._stall import Stall
from loopwatch._text import counted, place, printable, seconds
from loopwatch.report.model import Lane, Report

_BAR: Final = 30
_LANES_SHOWN: Final = 20
_SITES_SHOWN: Final = 15
_PROBLEMS_SHOWN: Final = 10
_STALLS_SHOWN: Final = 20


def summary(report: Report) -> str:
    """Loops, causes, sites, and what could not be read."""
    parts = [list(part(report)) for part in (_loops, _causes, _sites, _problems)]
    return "\n\n".join("\n".join(map(printable, part)) for part in parts if part)


def full(report: Report) -> str:
    """The full text of the stalls, the longest first, with a count of those that are not shown."""
    ranked = _ranked(report)
    texts = [_full_text(ranked, number) for number in range(1, min(len(ranked), _STALLS_SHOWN) + 1)]
    if len(ranked) > _STALLS_SHOWN:
        texts.append(f"And {counted(len(ranked) - _STALLS_SHOWN, 'stall')} more; --stall N shows one.")
    return "\n\n\n".join(texts)


def full_stall(report: Report, number: int) -> str:
    """Of the `number`th longest, from 1. IndexError where there are not so many."""
    return _full_text(_ranked(report), number)


def _full_text(ranked: Sequence[tuple[Lane, Stall]], number: int) -> str:
    lane, stall = ranked[number - 1]
    title = printable(f"Stall {number} of {len(ranked)}, loop of {lane.name}:")
    return f"{title}\n{stall.format()}"


def _ranked(report: Report) -> list[tuple[Lane, Stall]]:
    found = [(lane, stall) for lane in report.lanes for stall in lane.stalls]
    return sorted(found, key=lambda item: -item[1].duration)


def _loops(report: Report) -> Iterator[str]:
    what = f"{counted(len(report.stalls), 'stall')}, {seconds(report.stalled)} in all"
    where = f"{counted(len(report.lanes), 'loop')} of {counted(report.processes, 'process', 'processes')}"
    yield f"{what}, in {where}."
    for lane in report.lanes[:_LANES_SHOWN]:
        yield f"  {lane.name}: {', '.join(_lane(lane))}"
    if len(report.lanes) > _LANES_SHOWN:
        yield f"  and {counted(len(report.lanes) - _LANES_SHOWN, 'loop')} more"


def _lane(lane: Lane) -> Iterator[str]:
    yield counted(len(lane.stalls), "stall")
    watched = lane.watched
    if watched:
        yield f"watched {seconds(watched)}"
        yield f"busy {lane.busy / watched:.1%}"
    worst = max((stall.duration for stall in lane.stalls), default=0.0)
    if worst:
        yield f"longest {seconds(worst)}"


def _causes(report: Report) -> Iterator[str]:
    rows = report.by_verdict()
    whole = sum(stalled for _, stalled in rows.values())
    if rows:
        yield "Causes:"
    for verdict, (count, stalled) in rows.items():
        share = stalled / whole if whole else 0.0
        bar = "#" * round(_BAR * share)
        yield f"  {verdict:<15} {counted(count, 'stall'):>11} {seconds(stalled):>9} {share:>4.0%}  {bar}"


def _sites(report: Report) -> Iterator[str]:
    sites = report.sites()
    if sites:
        yield "Where:"
    for site in sites[:_SITES_SHOWN]:
        where = place(site.culprit) if site.culprit else "nobody to blame"
        if site.stood:
            where += f", mostly while in {place(site.stood)}"
        times = f"{seconds(site.seconds):>9} in {counted(site.count, 'stall')}, longest {seconds(site.worst)}"
        yield f"  {times}: {site.verdict}, {where}"
    if len(sites) > _SITES_SHOWN:
        yield f"  and {counted(len(sites) - _SITES_SHOWN, 'site')} more"


def _problems(report: Report) -> Iterator[str]:
    if report.problem_count:
        yield f"{counted(report.problem_count, 'line')} left out:"
    yield from (f"  {problem}" for problem in report.problems[:_PROBLEMS_SHOWN])
    if report.problem_count > _PROBLEMS_SHOWN:
        yield f"  and {report.problem_count - _PROBLEMS_SHOWN} more"
