"""The requests of one watched loop, by route: what they took, the stalls they caused and suffered.

The loop's thread counts, in the native half (_core.Request): it takes no lock here and waits for nobody. What
a stall means for the requests is worked out on the reporter's thread, once the stall has ended.
"""

from __future__ import annotations

import collections
import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from loopwatch import _core
from loopwatch._registry import registry
from loopwatch._shared import copy_shared
from loopwatch._stall import Stall, Verdict

if TYPE_CHECKING:
    from loopwatch._core import Record

OTHER: Final = "<other>"
"""The route of all that come after the last one there is room for."""
MAX_ROUTES: Final = 200
_IN_FLIGHT_MAX: Final = 10_000
_PAST_MAX: Final = 4096

_OF_OTHERS = {Verdict.GIL, Verdict.NOT_SCHEDULED, Verdict.SUSPENDED}
"""Verdicts that blame another thread or the machine: the request whose step it was is a victim too."""


@dataclass(frozen=True, slots=True)
class RouteStats:
    """What the requests of one route have taken of the loop's thread since the install. Seconds."""

    route: str
    """Method and template: "GET /items/{id}", "WS /feed"."""
    count: int
    """Requests that have ended."""
    cpu: float
    """CPU time of the loop's thread in their steps, those that go on among them."""
    busy: float
    """The same by the wall clock: with the waits for a CPU, for the GIL, in a blocking call."""
    worst_caused: float
    """The longest stall that their own steps made."""
    worst_suffered: float
    """The most of a stall that one of them lived through and did not make."""

    @property
    def cpu_per_request(self) -> float | None:
        """None before the first has ended."""
        return self.cpu / self.count if self.count else None

    @property
    def ceiling(self) -> float | None:
        """Requests a second at which one process with one loop has no CPU time left: 1 / cpu_per_request."""
        each = self.cpu_per_request
        return 1 / each if each else None


class _Past(NamedTuple):
    """A request that lived through a stall which the reporter may not have seen yet, or has a trace."""

    id: int
    begun_ns: int
    ended_ns: int
    number: int
    trace: Mapping[str, str]


TraceLabels = Callable[[], Mapping[str, str]]
_TRACE: Final = "loopwatch.trace"
_UNTRACED: Final[Mapping[str, str]] = MappingProxyType({})


class Tracing:
    """Who knows the trace that a request belongs to; nobody unless an exporter is told of one."""

    def __init__(self) -> None:
        self.labels: TraceLabels | None = None


tracing = Tracing()


class Requests:
    """Of one watch. `redact` makes the labels; `counters` and `note_failure` are the watch's."""

    def __init__(
        self,
        redact: Callable[[str], str],
        counters: collections.Counter[str],
        note_failure: Callable[[BaseException, str], None],
    ) -> None:
        self._redact, self._counters, self._note_failure = redact, counters, note_failure
        self._failed: set[type[BaseException]] = set()
        self._lock = threading.Lock()  # for a new route only
        self._routes: dict[str, _core.Route] = {}
        self._names = [""]  # by Route.number
        self._shown: dict[str, str] = {}
        self._in_flight: dict[int, _core.Request] = {}
        self._past: collections.deque[_Past] = collections.deque(maxlen=_PAST_MAX)
        self._worst_caused: dict[int, float] = {}
        self._worst_suffered: dict[int, float] = {}

    def renew(self) -> None:
        """In a forked child: somebody may have held the lock, and who was in flight is not of here."""
        self._lock = threading.Lock()
        self._in_flight.clear()
        self._past.clear()

    # --- the loop's thread ---

    def route(self, name: str, max_routes: int = MAX_ROUTES) -> _core.Route:
        """Any thread."""
        route = self._routes.get(name)
        return route if route is not None else self._add(name, max_routes)

    def _add(self, name: str, max_routes: int) -> _core.Route:
        with self._lock:
            if len(self._routes) >= max_routes:
                name = OTHER
            route = self._routes.get(name)
            if route is None:
                route = _core.Route(len(self._names))
                self._names.append(name)
                self._routes[name] = route
            return route

    def begin(self, request: _core.Request) -> None:
        if tracing.labels is not None:
            request.scope[_TRACE] = tracing.labels()
        if len(self._in_flight) < _IN_FLIGHT_MAX:
            self._in_flight[request.id] = request
        else:
            self._counters["requests_unseen"] += 1

    def end(self, request: _core.Request) -> None:
        """It has a route."""
        lived_through_a_stall = request.end()
        trace = request.scope.get(_TRACE, _UNTRACED)  # it may end in the very turn that it stalls
        if (lived_through_a_stall or trace) and request.route is not None and request.ended_ns is not None:
            self._past.append(
                _Past(request.id, request.begun_ns, request.ended_ns, request.route.number, trace)
            )
        self._in_flight.pop(request.id, None)  # after it is in the past: never in neither

    def failed(self, problem: BaseException, where: str) -> None:
        """Any thread: the first of each type is noted by the reporter, because that reads source files."""
        if type(problem) not in self._failed:
            self._failed.add(type(problem))
            registry().alarms.call_later(0.0, functools.partial(self._note_failure, problem, where))

    # --- the reporter's thread ---

    def labels(self, record: Record) -> dict[str, str]:
        """Of a stall: the route whose steps took at least half of it, and the trace of a request that did."""
        number = self._majority(record)
        route = {"route": self._show(self._names[number])} if number else {}
        return {**route, **self._trace_of(_maker(record))}

    def _trace_of(self, request_id: int) -> Mapping[str, str]:
        request = self._in_flight.get(request_id)
        if request is not None:
            trace: Mapping[str, str] = request.scope.get(_TRACE, _UNTRACED)
            return trace
        return next((past.trace for past in copy_shared(self._past) if past.id == request_id), _UNTRACED)

    def note(self, record: Record, stall: Stall) -> None:
        """A stall has ended: who made it, and who lived through it."""
        begin_ns, end_ns = record["begin_ns"], record["end_ns"]
        maker = 0
        if stall.verdict not in _OF_OTHERS:
            if number := self._majority(record):
                _raise_to(self._worst_caused, number, stall.duration)
            maker = _maker(record)
        while self._past and self._past[0].ended_ns <= begin_ns:
            self._past.popleft()
        for past in copy_shared(self._past):
            if past.id != maker:
                self._suffer(past.number, max(begin_ns, past.begun_ns), min(end_ns, past.ended_ns))
        for request in self._in_flight.copy().values():
            if request.id != maker:
                self._suffer(self._number_of(request), max(begin_ns, request.begun_ns), end_ns)

    def _suffer(self, number: int, from_ns: int, until_ns: int) -> None:
        if number and until_ns > from_ns:
            _raise_to(self._worst_suffered, number, (until_ns - from_ns) / 1e9)

    def _majority(self, record: Record) -> int:
        """The number of a route; 0: none has half of the stall."""
        request_id, number, longest_ns, times = record["routes"]
        if not request_id:
            return 0
        sums = collections.Counter(dict(times))
        if not number:  # not known in that moment, so not among them
            sums[self._number_of(self._in_flight.get(request_id))] += longest_ns
        sums.pop(0, None)
        number, most_ns = max(sums.items(), key=lambda item: item[1], default=(0, 0))
        return number if 2 * most_ns >= record["end_ns"] - record["begin_ns"] else 0

    def _number_of(self, request: _core.Request | None) -> int:
        """0: it is not known which route, or not any more."""
        route = request and (request.route or request.find(request.scope))
        return route.number if route else 0

    # --- any thread ---

    def snapshot(self) -> Mapping[str, RouteStats]:
        """By label. Routes that `redact` makes one of are one."""
        stats: dict[str, RouteStats] = {}
        for name, route in self._routes.copy().items():
            label = self._show(name)
            made = RouteStats(
                route=label,
                count=route.count,
                cpu=route.cpu_ns / 1e9,
                busy=route.busy_ns / 1e9,
                worst_caused=self._worst_caused.get(route.number, 0.0),
                worst_suffered=self._worst_suffered.get(route.number, 0.0),
            )
            stats[label] = _sum(stats[label], made) if label in stats else made
        return MappingProxyType(stats)

    def _show(self, name: str) -> str:
        shown = self._shown.get(name)
        if shown is None:
            shown = self._shown[name] = self._redact(name)
        return shown


def _maker(record: Record) -> int:
    """The request of which one step took at least half of a stall; 0: there is none."""
    request_id, _, longest_ns, _ = record["routes"]
    return request_id if 2 * longest_ns >= record["end_ns"] - record["begin_ns"] else 0


def _raise_to(worst: dict[int, float], number: int, seconds: float) -> None:
    worst[number] = max(seconds, worst.get(number, 0.0))


def _sum(one: RouteStats, other: RouteStats) -> RouteStats:
    return RouteStats(
        route=one.route,
        count=one.count + other.count,
        cpu=one.cpu + other.cpu,
        busy=one.busy + other.busy,
        worst_caused=max(one.worst_caused, other.worst_caused),
        worst_suffered=max(one.worst_suffered, other.worst_suffered),
    )
