"""A stall that a test is charged with, in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loopwatch._cost import Cost
from loopwatch._culprit import is_import_machinery
from loopwatch._paths import is_own
from loopwatch._stall import Frame, Stall, Verdict
from loopwatch._text import called, outer_frames, printable, seconds
from loopwatch.pytest.places import Place


class Offence(NamedTuple):
    """A stall that took longer than its test may, and how often that happened again."""

    stall: Stall
    cost: Cost
    limit: float
    place: Place
    more: int = 0
    """Others in the same place, and their seconds in all."""
    more_seconds: float = 0.0

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
    def repeats(self) -> str:
        """ "" where it happened once."""
        if not self.more:
            return ""
        return f"and {self.more} more in the same place, {seconds(self.more_seconds)}"

    @property
    def details(self) -> list[str]:
        stall = self.stall
        lines = [self.repeats] if self.more else []
        lines += [f"{seconds(part):>8} {verdict}" for verdict, part in _parts(stall)]
        if self.cost.cause is Verdict.GIL and stall.holder is not None:
            lines.append(f"{called(stall.holder)} held the GIL")
        if stall.task is not None:
            lines.append(f"task {stall.task.name!r} ({stall.task.coroutine})")
        if not any(is_own(frame.filename) for frame in shown_frames(self.cost)):
            lines.append(f"in {self.place.nodeid}")  # which else would not be seen here
        if self.cost.hint:
            lines.append(self.cost.hint)
        return [printable(line) for line in lines]


def _parts(stall: Stall) -> list[tuple[str, float]]:
    parts = [(str(verdict), part) for verdict, part in stall.breakdown.items() if part >= 0.0005]
    return sorted(parts, key=lambda part: -part[1]) if len(parts) > 1 else []


def shown_frames(cost: Cost) -> Sequence[Frame]:
    """From the program's first frame in the turn to the culprit; all of the turn's where none is the program's."""
    outer, _ = outer_frames(cost.frames)
    frames = [frame for frame in cost.frames[outer:] if not is_import_machinery(frame)]
    if cost.culprit in frames:
        last = max(index for index, frame in enumerate(frames) if frame == cost.culprit)
        frames = frames[: last + 1]
    first = next((index for index, frame in enumerate(frames) if is_own(frame.filename)), 0)
    return frames[first:]


def by_place(offences: Iterable[Offence]) -> list[Offence]:
    """The costliest of each place, which counts the others; the costliest of all last."""

    def where(offence: Offence) -> tuple[str, str, str]:
        return offence.cost.fingerprint, str(offence.place), offence.stall.thread

    def counted(group: Sequence[Offence]) -> Offence:
        worst = max(group, key=_cost)
        rest = sum(map(_cost, group)) - _cost(worst)
        return worst._replace(more=len(group) - 1, more_seconds=rest)

    groups = itertools.groupby(sorted(offences, key=where), where)
    return sorted((counted(list(group)) for _, group in groups), key=_cost)


def _cost(offence: Offence) -> float:
    return offence.cost.seconds
