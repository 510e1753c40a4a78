"""How late a loop looks at its events: a snapshot of the histogram of its turns.

A turn is busy from when its wait in the kernel returns until the selector is called again. An event that
becomes ready meanwhile waits for the rest of it, so the busy times say both how long turns are (`quantile`)
and how long events wait (`waiting`).
"""

import functools
import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import accumulate

from loopwatch._buckets import NativeBuckets, columns

NS_PER_SECOND = 1e9
QUANTILES = (0.5, 0.9, 0.99, 0.999)  # what to_dict() says


def _core_edge(bucket: int) -> int:
    from loopwatch._core import histogram_edge  # here, so that a Lag works where the native half is not built

    return histogram_edge(bucket)


@dataclass(frozen=True, slots=True, repr=False)
class Lag:
    """A snapshot, immutable. Times without a unit in their name are seconds.

    What the pulse cannot tell is None, and only that: before the first turn everything is 0. `newer - older`
    of two snapshots of one watch is the lag of the time between them.
    """

    buckets: Sequence[tuple[int, int]]
    """(bucket, turns in it) of the buckets in use, in order."""
    _: KW_ONLY
    turns: int | None
    """How many turns ended; None: the pulse sees no single turns."""
    busy_ns: int | None
    idle_ns: int | None
    gil_wait_ns: int | None
    max_ns: int | None
    edge: Callable[[int], int] = field(default=_core_edge, compare=False)
    """The least nanoseconds of a bucket."""
    _known_shape: "_Shape | None" = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.buckets, NativeBuckets):
            return  # in order and positive as they are
        buckets, counts = columns(self.buckets)
        if any(map(operator.ge, buckets, buckets[1:])):
            raise ValueError("buckets must be in ascending order, each once")
        if min(counts, default=0) < 0:
            raise ValueError("a count must not be negative")
        used = self.buckets if 0 not in counts else [pair for pair in self.buckets if pair[1]]
        object.__setattr__(self, "buckets", tuple(used))

    # --- totals ---

    @property
    def busy(self) -> float | None:
        """Seconds in which an event that became ready had to wait."""
        return _seconds(self.busy_ns)

    @property
    def idle(self) -> float | None:
        """Seconds in which the loop waited for an event."""
        return _seconds(self.idle_ns)

    @property
    def gil_wait(self) -> float | None:
        """The part of `busy` in which the loop's thread, back from its wait, waited for the GIL."""
        return _seconds(self.gil_wait_ns)

    @property
    def utilization(self) -> float | None:
        """busy / (busy + idle)"""
        if self.busy_ns is None or self.idle_ns is None:
            return None
        return _ratio(self.busy_ns, self.busy_ns + self.idle_ns)

    # --- busy time by turn ---

    @property
    def max(self) -> float | None:
        """The longest turn; of an interval, the upper edge of the highest bucket that grew."""
        return _seconds(self.max_ns)

    @property
    def mean(self) -> float | None:
        if self.busy_ns is None or self.turns is None:
            return None
        return _ratio(self.busy_ns, self.turns) / NS_PER_SECOND

    def quantile(self, q: float) -> float | None:
        """The least busy time that at least the share `q` of the turns did not exceed."""
        _check_share(q)
        if self.turns is None:
            return None
        return self._shape.quantile_ns(q) / NS_PER_SECOND

    # --- waiting of events ---

    def waiting(self, q: float) -> float | None:
        """The quantile `q` of how long an event waits that becomes ready at a random moment of this time.

        It waits 0 where it finds the loop idle, else for the rest of the turn. So of all moments, those in
        which the rest is longer than w make up P(W > w) = sum over turns of max(0, busy - w) / (busy + idle):
        falling, convex, and straight between two neighbouring busy times, where it is inverted.

        Each turn counts as the middle of its bucket. The share of idle moments is exact all the same, since
        only the shape is taken from the histogram, and the totals from the clock.
        """
        _check_share(q)
        utilization = self.utilization
        if utilization is None or self.turns is None:
            return None
        if 1 - q >= utilization:
            return 0.0
        return self._shape.rest_exceeded_in_ns((1 - q) / utilization) / NS_PER_SECOND

    @property
    def _shape(self) -> "_Shape":
        if self._known_shape is None:
            object.__setattr__(self, "_known_shape", _Shape(*self._busy_times()))
        assert self._known_shape is not None
        return self._known_shape

    def _busy_times(self) -> tuple[list[float], list[int]]:
        """(nanoseconds, turns), ascending: the middle of each bucket, and the longest turn as it is."""
        if not self.buckets:
            return [], []
        middles = middles_ns(self.edge)
        buckets, turns = columns(self.buckets)
        values_ns, counts = list(map(middles.__getitem__, buckets)), list(turns)
        if self.max_ns is None:
            return values_ns, counts
        # Not below its own bucket: the maximum may have been read just before the turn was counted.
        longest_ns = max(self.max_ns, self.edge(buckets[-1]))
        top_ns, in_top = values_ns.pop(), counts.pop()
        if in_top > 1:
            values_ns.append(min(top_ns, longest_ns))
            counts.append(in_top - 1)
        return [*values_ns, longest_ns], [*counts, 1]

    # --- intervals ---

    def __sub__(self, older: "Lag") -> "Lag":
        """ValueError where `older` is the newer one, or of another kind of pulse."""
        if not isinstance(older, Lag):
            return NotImplemented
        before = dict(older.buckets)
        grown = [(bucket, count - before.pop(bucket, 0)) for bucket, count in self.buckets]
        if before or any(growth < 0 for _, growth in grown):
            raise ValueError("the lag to subtract is newer than this one, or of another watch")
        grown = [(bucket, growth) for bucket, growth in grown if growth]
        return Lag(
            grown,
            turns=_growth("turns", self.turns, older.turns),
            busy_ns=_growth("busy", self.busy_ns, older.busy_ns),
            idle_ns=_growth("idle", self.idle_ns, older.idle_ns),
            gil_wait_ns=_growth("gil_wait", self.gil_wait_ns, older.gil_wait_ns),
            max_ns=self._max_of_interval_ns(older, grown),
            edge=self.edge,
        )

    def _max_of_interval_ns(self, older: "Lag", grown: Sequence[tuple[int, int]]) -> int | None:
        if _growth("max", self.max_ns, older.max_ns) is None or self.max_ns is None:
            return None
        if not grown:
            return 0
        top = grown[-1][0]
        upper_ns = self.edge(top + 1)
        # The last bucket also holds what is above its edge.
        return max(upper_ns, self.max_ns) if top == self.buckets[-1][0] else upper_ns

    # --- as text and data ---

    def __repr__(self) -> str:
        said = [f"turns={self.turns}"]
        if self.utilization is not None:
            said.append(f"utilization={self.utilization:.3f}")
        times = [
            ("mean", self.mean),
            ("p99", self.quantile(0.99)),
            ("max", self.max),
            ("waiting_p99", self.waiting(0.99)),
        ]
        said += [f"{name}={seconds * 1e3:.3f}ms" for name, seconds in times if seconds is not None]
        return f"<{type(self).__name__} {' '.join(said)}>"

    def to_dict(self) -> dict[str, int | float | dict[str, float | None] | None]:
        """Ready for JSON; seconds."""
        return {
            "turns": self.turns,
            "busy": self.busy,
            "idle": self.idle,
            "gil_wait": self.gil_wait,
            "utilization": self.utilization,
            "max": self.max,
            "mean": self.mean,
            "quantiles": {str(q): self.quantile(q) for q in QUANTILES},
            "waiting": {str(q): self.waiting(q) for q in QUANTILES},
        }


class _Middles(dict[int, float]):
    """The middle of each bucket in nanoseconds, worked out when it is first asked for."""

    def __init__(self, edge: Callable[[int], int]) -> None:
        super().__init__()
        self._edge = edge

    def __missing__(self, bucket: int) -> float:
        self[bucket] = (self._edge(bucket) + self._edge(bucket + 1)) / 2
        return self[bucket]


@functools.lru_cache(maxsize=8)
def middles_ns(edge: Callable[[int], int]) -> Mapping[int, float]:
    return _Middles(edge)


class _Shape:
    """Busy times in ascending order, with the sums that make each question about them a search."""

    __slots__ = ("_exceeded_ns", "_longer", "_ranks", "_values_ns")

    def __init__(self, values_ns: list[float], counts: list[int]) -> None:
        self._values_ns = values_ns
        self._ranks: list[int] = list(accumulate(counts))
        # From the longest down: how many turns are at least that long, and for how long all of these together
        # exceed the next lower busy time; at the end 0, which is to say all busy moments.
        self._longer: list[int] = list(accumulate(reversed(counts)))
        gaps_ns = list(map(operator.sub, values_ns, [0.0, *values_ns[:-1]]))
        self._exceeded_ns: list[float] = list(accumulate(map(operator.mul, self._longer, reversed(gaps_ns))))

    def quantile_ns(self, q: float) -> float:
        """The least that at least the share `q` does not exceed."""
        if not self._ranks:
            return 0.0
        rank = max(1, math.ceil(q * self._ranks[-1]))
        return self._values_ns[bisect_left(self._ranks, rank)]

    def rest_exceeded_in_ns(self, share: float) -> float:
        """The rest w that is exceeded in this share of all busy moments: sum of count * max(0, value - w) is the
        share of the sum of count * value. Between one value and the next lower one, that sum grows by the number
        of turns that are longer, for each nanosecond that w falls."""
        if not self._exceeded_ns:
            return 0.0
        longer_ns = share * self._exceeded_ns[-1]
        index = bisect_left(self._exceeded_ns, longer_ns)
        if index == len(self._exceeded_ns):
            return 0.0
        before_ns = self._exceeded_ns[index - 1] if index else 0.0
        return self._values_ns[-1 - index] - (longer_ns - before_ns) / self._longer[index]


def _growth(name: str, newer: int | None, older: int | None) -> int | None:
    if newer is None and older is None:
        return None
    if newer is None or older is None:
        raise ValueError(f"{name} is known of one lag only: they are of different pulses")
    if newer < older:
        raise ValueError(f"{name} falls: the lag to subtract is newer than this one, or of another watch")
    return newer - older


def _check_share(q: float) -> None:
    if isinstance(q, bool) or not isinstance(q, (int, float)):
        raise TypeError(f"q must be a number from 0 to 1, not {type(q).__name__}")
    if not 0 <= q <= 1:  # NaN too
        raise ValueError(f"q must be from 0 to 1, not {q}")


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_SECOND


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
