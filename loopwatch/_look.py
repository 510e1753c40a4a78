"""How the rows of the table of metrics are read: of one watch, each part of it once, and of the process."""

from __future__ import annotations

import functools
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from loopwatch._buckets import BUCKETS, columns
from loopwatch._freeze import gc_pauses
from loopwatch._lag import QUANTILES, Lag, middles_ns
from loopwatch._names import unused_name
from loopwatch._outlets import outlets
from loopwatch._paths import relative_path

if TYPE_CHECKING:
    from loopwatch._pool import ExecutorState
    from loopwatch._profile import Profile
    from loopwatch._requests import RouteStats
    from loopwatch._stall import Verdict
    from loopwatch._watch import Watch
    from loopwatch._windows import StallTotal

WINDOWS: Final = (60, 300)
"""Seconds; the label `window` says "60s" and "300s"."""
BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of the histogram of turns, in seconds; a last bucket has no bound."""
TOP: Final = 10
"""Sites of the profile and of slow turns that are read at a time."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Turns by bucket of BOUNDS, one more at the end for longer ones; and their seconds in all."""

    counts: tuple[int, ...]
    seconds: float

    @property
    def cumulative(self) -> list[int]:
        return list(accumulate(self.counts))


Value = float | Histogram
Point = tuple[tuple[str, ...], Value]
"""The values of the row's labels, and the value."""


# --- reading a watch ---


class Look:
    """What one reading sees of a watch: each part is asked for once, so that all rows agree."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    @functools.cached_property
    def lag(self) -> Lag:
        return self.watch.lag

    @functools.cached_property
    def windows(self) -> list[tuple[str, Lag]]:
        return [(f"{seconds}s", self.watch.window(seconds)) for seconds in WINDOWS]

    @functools.cached_property
    def stall_totals(self) -> Mapping[Verdict, StallTotal]:
        return self.watch.stall_totals

    @functools.cached_property
    def executors(self) -> Mapping[str, ExecutorState]:
        """By name, each once."""
        found: dict[str, ExecutorState] = {}
        for executor in self.watch.executors:
            found[unused_name(executor.name, found)] = executor.state()
        return found

    @functools.cached_property
    def routes(self) -> Mapping[str, RouteStats]:
        return self.watch.routes

    @functools.cached_property
    def profile(self) -> Profile:
        return self.watch.profile

    @functools.cached_property
    def slow_turns(self) -> Profile:
        return self.watch.slow_turns

    @functools.cached_property
    def stats(self) -> Mapping[str, int | float]:
        return self.watch.stats()


def one(read: Callable[[Look], float | None]) -> Callable[[Look], Iterator[Point]]:
    def points(look: Look) -> Iterator[Point]:
        if (value := read(look)) is not None:
            yield (), value

    return points


def by_window(read: Callable[[Lag], float | None]) -> Callable[[Look], Iterator[Point]]:
    def points(look: Look) -> Iterator[Point]:
        for name, window in look.windows:
            if (value := read(window)) is not None:
                yield (name,), value

    return points


def by_quantile(read: Callable[[Lag, float], float | None]) -> Callable[[Look], Iterator[Point]]:
    """Of the first window alone: in a scrape they cost more than all else, by the number of buckets in use."""

    def points(look: Look) -> Iterator[Point]:
        for name, window in look.windows[:1]:
            for q in QUANTILES:
                if (value := read(window, q)) is not None:
                    yield (name, str(q)), value

    return points


def by_key(rows: str, attribute: str) -> Callable[[Look], Iterator[Point]]:
    """Of a mapping: its keys are the label."""

    def points(look: Look) -> Iterator[Point]:
        for key, row in getattr(look, rows).items():
            if (value := getattr(row, attribute)) is not None:
                yield (str(key),), value

    return points


def by_site(profile: str) -> Callable[[Look], Iterator[Point]]:
    def points(look: Look) -> Iterator[Point]:
        seconds: dict[str, float] = {}
        for row in getattr(look, profile).top(TOP):
            if row.frame is not None:
                site = f"{relative_path(row.frame.filename)}:{row.frame.qualname}"
                seconds[site] = seconds.get(site, 0.0) + row.seconds
        for site, value in seconds.items():
            yield (site,), value

    return points


def profile_causes(look: Look) -> Iterator[Point]:
    for verdict, seconds in look.profile.causes.items():
        yield (str(verdict),), seconds


@functools.lru_cache(maxsize=8)
def _first_above(edge: Callable[[int], int], bounds: tuple[float, ...]) -> list[int]:
    """For each bound the first native bucket whose middle is above it."""
    middles = middles_ns(edge)
    return [bisect_right(range(BUCKETS), bound * 1e9, key=middles.__getitem__) for bound in bounds]


def turn_histogram(lag: Lag, bounds: tuple[float, ...] = BOUNDS) -> Histogram | None:
    """Each turn counts as the middle of its native bucket, as in Lag, so the counts are as exact as these are wide
    (1 %); together they are all turns."""
    if lag.turns is None or lag.busy is None:
        return None
    buckets, counts = columns(lag.buckets)
    ranks = [0, *accumulate(counts)]
    cumulative = [ranks[bisect_left(buckets, above)] for above in _first_above(lag.edge, bounds)]
    below = [0, *cumulative]
    return Histogram(tuple(map(operator.sub, [*cumulative, ranks[-1]], below)), lag.busy)


def turns(look: Look) -> Iterator[Point]:
    if (histogram := turn_histogram(look.lag)) is not None:
        yield (), histogram


def watch_info(look: Look) -> Iterator[Point]:
    yield (look.watch.pulse, look.watch.capture), 1


# --- reading the process ---


def loops(watches: list[Watch]) -> Iterator[Point]:
    yield (), len(watches)


def watchdog(counter: str) -> Callable[[list[Watch]], Iterator[Point]]:
    """The watchdog is one of the process: any watch knows its counters."""

    def points(watches: list[Watch]) -> Iterator[Point]:
        if watches:
            yield (), watches[0].stats()[counter]

    return points


def exporter_failures(_: list[Watch]) -> Iterator[Point]:
    for name, count in outlets.failures.copy().items():
        yield (name,), count


def gc(attribute: str) -> Callable[[list[Watch]], Iterator[Point]]:
    def points(_: list[Watch]) -> Iterator[Point]:
        for pauses in gc_pauses():
            yield (str(pauses.generation),), getattr(pauses, attribute)

    return points
