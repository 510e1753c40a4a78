"""Which test, phase and fixture a moment belongs to."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from loopwatch._clock import wall

When = Literal["setup", "call", "teardown"]

_SLACK: Final = 0.002  # a stall's begin is given to the microsecond, on a clock that may be corrected


class Place(NamedTuple):
    nodeid: str
    when: When
    fixture: str = ""
    scope: str = "function"
    """The fixture's."""

    @property
    def shared(self) -> bool:
        """Other tests may use what happens here too."""
        return self.scope != "function"

    def __str__(self) -> str:
        """ "" in a test's own body."""
        if self.fixture:
            scope = f" ({self.scope} scope)" if self.shared else ""
            return f"{self.when} of fixture {self.fixture!r}{scope}"
        return "" if self.when == "call" else self.when


class _Span:
    __slots__ = ("begin", "end", "place")

    def __init__(self, place: Place, begin: float, end: float = float("inf")) -> None:
        self.place, self.begin, self.end = place, begin, end


class Places:
    """The phase that goes on and what happened in it. The thread that runs the tests writes."""

    def __init__(self) -> None:
        self._phase: _Span | None = None
        self._fixtures: list[_Span] = []
        self._open: list[_Span] = []
        self._torn_down_until = 0.0

    @property
    def phase(self) -> Place | None:
        return self._phase.place if self._phase is not None else None

    def enter(self, nodeid: str, when: When) -> None:
        now = wall()
        self._phase = _Span(Place(nodeid, when), now)
        self._fixtures, self._open = [], []
        self._torn_down_until = now

    def leave(self) -> None:
        self._phase = None

    def fixture_begins(self, name: str, scope: str) -> None:
        phase = self.phase
        if phase is not None:
            span = _Span(Place(phase.nodeid, phase.when, name, scope), wall())
            self._open.append(span)
            self._fixtures.append(span)

    def fixture_ends(self) -> None:
        if self._open:
            self._open.pop().end = wall()

    def fixture_is_down(self, name: str, scope: str) -> None:
        """pytest says when a fixture has been taken down; it began when the one before had been."""
        phase = self.phase
        if phase is not None:
            now = wall()
            place = Place(phase.nodeid, phase.when, name, scope)
            self._fixtures.append(_Span(place, self._torn_down_until, now))
            self._torn_down_until = now

    def where(self, at: float) -> Place | None:
        """None: before the phase that goes on, or between two."""
        phase = self._phase
        if phase is None or at < phase.begin - _SLACK:
            return None
        around = [span for span in self._fixtures if span.begin - _SLACK <= at <= span.end]
        return max(around, key=lambda span: span.begin, default=phase).place
