"""What a loop did lately: a rolling window as a Lag, the last hour by the second, and stalls by verdict.

The native half keeps the times (src/history/). Stalls are counted here, as the reporter delivers them: each that
`Watch.stalls` lists, so none that was ignored or exempt, nor a debugger's stop.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from loopwatch._buckets import NativeBuckets
from loopwatch._lag import NS_PER_SECOND, Lag
from loopwatch._stall import Verdict

if TYPE_CHECKING:
    from loopwatch._core import Slot
    from loopwatch._inert import InertSlot
    from loopwatch._options import Pulse

CELLS_MAX: Final = 3600
WINDOW_MAX: Final = 300.0
_SECOND_NS: Final = 1_000_000_000
_RECENT_SECONDS: Final = int(WINDOW_MAX) + 10  # a window may be a little longer than asked for


@dataclass(frozen=True, slots=True)
class StallTotal:
    """The stalls of one verdict since the install."""

    count: int = 0
    seconds: float = 0.0
    """How long they were together."""
    worst: float = 0.0
    """The longest of them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One second of a loop. Times are seconds; one in which it did not run has neither `busy` nor `idle`."""

    at: float
    """When it began: unix time, as the wall clock was set then."""
    busy: float
    """A turn longer than a second is spread over its seconds. Heartbeat: by how much its beats were late."""
    idle: float | None
    """None: the pulse cannot tell (heartbeat)."""
    worst: float
    """The longest turn that ended in it; or, of one that went on, how old it was at the second's end."""
    gc: float | None
    """Garbage collections on the loop's thread. None: not measured, because the program emptied gc.callbacks."""
    gil_wait: float | None
    """The part of `busy` in which the thread waited for the GIL. None: the pulse cannot tell."""
    stalls: int
    """How many ended in it, as far as they are reported already."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Window(Lag):
    """The lag of the last so many seconds. A turn that goes on counts as if it had just ended.

    It is an interval already: two of them cannot be subtracted.
    """

    seconds: float
    """What it covers: what was asked for, some seconds more, or all there is; 0.0 before the loop's first run."""
    stalls: Mapping[Verdict, int]
    """How many ended in that time; every verdict has its number."""
    stalled: Mapping[Verdict, float]
    """How many seconds these took; the whole stall, also where it began before the window."""

    def __sub__(self, older: Lag) -> Lag:
        raise TypeError("a Window is an interval already; subtract two of Watch.lag")

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; seconds."""
        return {
            **super(Window, self).to_dict(),
            "seconds": self.seconds,
            "stalls": {str(verdict): count for verdict, count in self.stalls.items()},
            "stalled": {str(verdict): seconds for verdict, seconds in self.stalled.items()},
        }


class _Known(TypedDict):
    turns: int | None
    busy_ns: int | None
    idle_ns: int | None
    gil_wait_ns: int | None
    max_ns: int | None


_NO_STALLS: Final[dict[Verdict, StallTotal]] = dict.fromkeys(Verdict, StallTotal())


class StallCounts:
    """Finished stalls by verdict, in all and for the last minutes, and by the second in which they ended.

    The reporter adds, in the order in which they ended; any thread reads. What is kept of one second is a few
    numbers, however many stalls ended in it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = _NO_STALLS.copy()
        self._recent: collections.deque[tuple[int, dict[Verdict, tuple[int, int]]]] = collections.deque()
        self._by_second: collections.deque[tuple[int, int]] = collections.deque()

    def renew(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.Lock()

    def add(self, verdict: Verdict, duration_ns: int, end_ns: int) -> None:
        second, seconds = end_ns // _SECOND_NS, duration_ns / NS_PER_SECOND
        with self._lock:
            total = self._totals[verdict]
            self._totals[verdict] = StallTotal(
                total.count + 1, total.seconds + seconds, max(total.worst, seconds)
            )
            if not self._recent or self._recent[-1][0] < second:
                self._begin(second)
            second, by_verdict = self._recent[-1]
            count, sum_ns = by_verdict.get(verdict, (0, 0))
            by_verdict[verdict] = (count + 1, sum_ns + duration_ns)
            self._by_second[-1] = (second, self._by_second[-1][1] + 1)

    def _begin(self, second: int) -> None:
        self._recent.append((second, {}))
        self._by_second.append((second, 0))
        while self._recent[0][0] < second - _RECENT_SECONDS:
            self._recent.popleft()
        while self._by_second[0][0] <= second - CELLS_MAX:
            self._by_second.popleft()

    @property
    def totals(self) -> Mapping[Verdict, StallTotal]:
        with self._lock:
            return MappingProxyType(dict(self._totals))

    def since(self, begin_ns: int) -> tuple[Mapping[Verdict, int], Mapping[Verdict, float]]:
        """(how many, seconds) by verdict, of those that ended in the second of begin_ns or later."""
        counts, sums = dict.fromkeys(Verdict, 0), dict.fromkeys(Verdict, 0)
        with self._lock:
            for second, by_verdict in reversed(self._recent):
                if second < begin_ns // _SECOND_NS:
                    break
                for verdict, (count, sum_ns) in by_verdict.items():
                    counts[verdict] += count
                    sums[verdict] += sum_ns
        seconds = {verdict: sum_ns / NS_PER_SECOND for verdict, sum_ns in sums.items()}
        return MappingProxyType(counts), MappingProxyType(seconds)

    def by_second(self) -> dict[int, int]:
        """How many ended in each second of CLOCK_MONOTONIC in which any did."""
        with self._lock:
            return dict(self._by_second)


class History:
    """Reads one watch's history."""

    def __init__(self, slot: Slot | InertSlot, counts: StallCounts, pulse: Pulse) -> None:
        self._slot, self._counts = slot, counts
        self._knows_turns = pulse != "heartbeat"
        self.knows_gil_wait = False

    @property
    def lag(self) -> Lag:
        buckets, sums = self._slot.histogram()
        return Lag(NativeBuckets(buckets), **self._known(sums))

    def window(self, seconds: float) -> Window:
        length_ns = round(_check_window(seconds) * NS_PER_SECOND)
        buckets, sums, begin_ns, end_ns = self._slot.window(length_ns)
        stalls, stalled = self._counts.since(begin_ns)
        return Window(
            NativeBuckets(buckets),
            **self._known(sums),
            seconds=(end_ns - begin_ns) / NS_PER_SECOND,
            stalls=stalls,
            stalled=stalled,
        )

    def cells(self, seconds: int) -> tuple[Cell, ...]:
        return tuple(cell for _, cell in self.numbered(_check_cells(seconds)))

    def numbered(self, seconds: int) -> list[tuple[int, Cell]]:
        """Each with the number of its second, on CLOCK_MONOTONIC."""
        stalls = self._counts.by_second()
        return [
            (
                number,
                Cell(
                    at=at_ns / NS_PER_SECOND,
                    busy=busy_ns / NS_PER_SECOND,
                    idle=idle_ns / NS_PER_SECOND if self._knows_turns else None,
                    worst=worst_ns / NS_PER_SECOND,
                    gc=None if gc_ns is None else gc_ns / NS_PER_SECOND,
                    gil_wait=gil_wait_ns / NS_PER_SECOND if self.knows_gil_wait else None,
                    stalls=stalls.get(number, 0),
                ),
            )
            for number, at_ns, busy_ns, idle_ns, worst_ns, gc_ns, gil_wait_ns in self._slot.cells(seconds)
        ]

    def _known(self, sums: dict[str, int]) -> _Known:
        """What the pulse cannot tell is None."""
        return {
            "turns": sums["turns"] if self._knows_turns else None,
            "busy_ns": sums["busy_ns"],
            "idle_ns": sums["idle_ns"] if self._knows_turns else None,
            "gil_wait_ns": sums["gil_wait_ns"] if self.knows_gil_wait else None,
            "max_ns": sums["max_ns"],
        }


def _check_window(seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"seconds must be a number, not {seconds!r}")
    if not 0 < seconds <= WINDOW_MAX:  # NaN too
        raise ValueError(f"seconds must be more than 0 and at most {WINDOW_MAX:.0f}, not {seconds!r}")
    return seconds


def _check_cells(seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise TypeError(f"seconds must be a whole number, not {seconds!r}")
    if not 1 <= seconds <= CELLS_MAX:
        raise ValueError(f"seconds must be from 1 to {CELLS_MAX}, not {seconds!r}")
    return seconds
