"""What `loopwatch run` says of a run at its end."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from loopwatch._cost import cost_of
from loopwatch._culprit import stood
from loopwatch._page import Page
from loopwatch._stall import Frame, Stall, own_seconds
from loopwatch._text import counted, place, printable, seconds
from loopwatch.cli._records import Run

_SITES_SHOWN: Final = 5


def summary(run: Run, threshold: float) -> Iterator[str]:
    if not run.complete:
        yield "loopwatch: not all of what was seen could be written: this is incomplete"
    if not run.loops:
        yield "loopwatch: no event loop ran in a process that loopwatch could watch"
        return
    processes = len({process.pid for process, _ in run.loops})
    where = f" in {processes} processes" if processes > 1 else ""
    loops = (
        f"{counted(len(run.loops), 'event loop')} {'was' if len(run.loops) == 1 else 'were'} watched{where}"
    )
    known = run.unknown < len(run.loops)
    turns = counted(run.turns, "turn") if known and run.turns is not None else "- turns"
    yield f"loopwatch: {loops}: {turns}, busy {_share(run)}"
    if run.stalls:
        yield from _stalls(run.stalls)
    elif not run.unfinished and run.complete:
        yield f"  no stall of {seconds(threshold)} or more"
    if 0 < run.unknown < len(run.loops):
        yield f"  nothing is known of {run.unknown} of them: a process ended without a word"
    for stall in run.unfinished:
        where = f"{_in(stall.culprit)}{_meanwhile([stall])}"
        yield f"  at its end blocked for {seconds(stall.duration)}: {stall.verdict}{where}"


def kept(pages: Iterable[Page]) -> Iterator[str]:
    """Of processes that died in a stall."""
    for page in pages:
        yield f"loopwatch: what process {page.pid} said last: loopwatch post {page.pid}"


def failure(run: Run, limit: float, written: str) -> str:
    """Why the run is failed; "": it is not. `written`: the limit as the user has it."""
    worst = run.worst_own
    if worst is None or own_seconds(worst.breakdown) <= limit:
        return "" if run.complete else f"loopwatch: failed: --fail-over {printable(written)} cannot be judged"
    own, cost = own_seconds(worst.breakdown), cost_of(worst)
    cause, culprit = cost.cause, cost.culprit or worst.culprit or stood([worst])
    if cost.seconds < own / 2:  # most of it was an import, which a run pays for as for anything else
        cause, culprit = worst.verdict, worst.culprit
    what = f"{cause} {seconds(own)}{_in(culprit)}"
    return f"loopwatch: failed: {what}, over --fail-over {printable(written)}"


def _share(run: Run) -> str:
    if run.busy is None or run.idle is None or run.unknown == len(run.loops):
        return "-"
    whole = run.busy + run.idle
    return f"{run.busy / whole if whole else 0.0:.0%} of {seconds(whole)}"


# --- the stalls that ended ---


def _stalls(stalls: Sequence[Stall]) -> Iterator[str]:
    total, worst = sum(stall.duration for stall in stalls), max(stall.duration for stall in stalls)
    whole = f"{seconds(total)} together; the longest {seconds(worst)}" if len(stalls) > 1 else seconds(total)
    yield f"  {counted(len(stalls), 'stall')}, {whole}"
    sites: dict[str, list[Stall]] = collections.defaultdict(list)
    for stall in stalls:
        sites[f"{stall.verdict}{_in(stall.culprit)}"].append(stall)
    ranked = sorted(sites.items(), key=lambda item: -sum(stall.duration for stall in item[1]))
    for name, group in ranked[:_SITES_SHOWN]:
        yield f"  {len(group):4} x {name}{_meanwhile(group)}: {_how_long(group)}"
    if len(ranked) > _SITES_SHOWN:
        yield f"  and {counted(len(ranked) - _SITES_SHOWN, 'place')} more"


def _how_long(stalls: Sequence[Stall]) -> str:
    total = seconds(sum(stall.duration for stall in stalls))
    if len(stalls) == 1:
        return total
    return f"{total}, at most {seconds(max(stall.duration for stall in stalls))}"


def _meanwhile(stalls: Sequence[Stall]) -> str:
    frame = stood(stall for stall in stalls if stall.culprit is None)
    return printable(f", mostly while in {place(frame)}") if frame else ""


def _in(culprit: Frame | None) -> str:
    return printable(f" in {place(culprit)}") if culprit else ""
