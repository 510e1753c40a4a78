"""How often a report of one kind is told, and what becomes of the others.

The first of a kind is told at once, and so is one that is much longer than what was told. The others are held back,
and told as one sum when the time is over or the watch ends. Each is told once, alone or in a sum.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from loopwatch._alarms import Alarm
from loopwatch._clock import monotonic
from loopwatch._registry import registry

MUCH_LONGER: Final = 3.0
"""Times the longest that was told: so long a report is told at once, and then only one three times as long again."""
KINDS_MAX: Final = 256
"""Kinds remembered, each with the longest report held back. The one that began first is forgotten first, and told."""
ALARM_MAX: Final = 60.0
"""Seconds. An alarm that is not needed any more is remembered until its time, so none is set for much later."""

T = TypeVar("T")
CallLater = Callable[[float, Callable[[], object]], Alarm]


@dataclass(frozen=True, slots=True)
class HeldBack(Generic[T]):
    """Reports of one kind that were not told one by one."""

    count: int
    seconds: float
    """Of all of them."""
    worst: T
    worst_seconds: float
    over: float
    """Seconds since the first report of that time was told."""


class _Kind(Generic[T]):
    """One kind of report, since one of it was told."""

    def __init__(self, now: float, every: float, told_seconds: float) -> None:
        self._began_at, self.due_at, self.told_seconds = now, now + every, told_seconds
        self.count, self.seconds = 0, 0.0
        self.worst: T | None = None
        self.worst_seconds = 0.0

    def hold_back(self, report: T, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        if self.worst is None or seconds > self.worst_seconds:
            self.worst, self.worst_seconds = report, seconds

    def held_back(self, now: float) -> HeldBack[T] | None:
        if self.worst is None:
            return None
        return HeldBack(self.count, self.seconds, self.worst, self.worst_seconds, now - self._began_at)


def _call_later(seconds: float, callback: Callable[[], object]) -> Alarm:
    return registry().alarms.call_later(seconds, callback)


class Limiter(Generic[T]):
    """On the reporter's thread, apart from what says otherwise. `tell` gets each sum, and does not raise."""

    def __init__(
        self,
        every: float,
        tell: Callable[[HeldBack[T]], object],
        *,
        call_later: CallLater = _call_later,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._every, self._tell, self._call_later, self._clock = every, tell, call_later, clock
        self._kinds: OrderedDict[str, _Kind[T]] = OrderedDict()  # in the order in which their times are over
        self._holding = 0  # kinds whose sum is not told yet
        self._alarm: Alarm | None = None
        self._alarm_for: _Kind[T] | None = None

    @property
    def holds_back(self) -> bool:
        """There is a sum that is not told yet. Any thread."""
        return self._holding > 0

    def ask(self, name: str, seconds: float) -> bool:
        """Whether a report of this kind is to be told. If not, hold it back."""
        self._tell_due()
        kind = self._kinds.get(name)
        if kind is not None and seconds < MUCH_LONGER * kind.told_seconds:
            return False
        self.told(name, seconds)
        return True

    def told(self, name: str, seconds: float) -> None:
        """A report of this kind is told, whether asked for or not."""
        self._tell_due()
        if kind := self._kinds.get(name):
            kind.told_seconds = max(kind.told_seconds, seconds)
        elif self._every:
            self._begin(name, seconds)

    def hold_back(self, name: str, report: T, seconds: float) -> None:
        """After ask() said no."""
        kind = self._kinds[name]
        self._holding += not kind.count
        kind.hold_back(report, seconds)
        self._set_alarm()

    def tell_all(self) -> None:
        """The watch is over: nothing is to be waited for."""
        kinds, self._kinds = self._kinds, OrderedDict()
        for kind in kinds.values():
            self._tell_sum(kind)
        self._set_alarm()

    def _begin(self, name: str, seconds: float) -> None:
        self._kinds[name] = _Kind(self._clock(), self._every, seconds)
        while len(self._kinds) > KINDS_MAX:
            self._tell_sum(self._kinds.popitem(last=False)[1])

    def _tell_due(self) -> None:
        """A sum is a report of its kind: the next one comes when the time is over once more."""
        while self._kinds:
            name, kind = next(iter(self._kinds.items()))
            if self._clock() < kind.due_at:
                break
            del self._kinds[name]
            if kind.count:
                self._begin(name, kind.worst_seconds)
                self._tell_sum(kind)
        self._set_alarm()

    def _tell_sum(self, kind: _Kind[T]) -> None:
        if (held_back := kind.held_back(self._clock())) is not None:
            self._tell(held_back)
            self._holding -= 1  # not before: who waits for the watch's end waits for this

    # --- the alarm ---

    def _set_alarm(self) -> None:
        """For the kind whose sum is due first, if there is any."""
        first = next((kind for kind in self._kinds.values() if kind.count), None)
        if first is self._alarm_for:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_for = first
        if first is not None:
            left = first.due_at - self._clock()
            self._alarm = self._call_later(min(max(left, 0.0), ALARM_MAX), self._ring)

    def _ring(self) -> None:
        self._alarm_for = None  # it may not be due yet
        self._tell_due()
