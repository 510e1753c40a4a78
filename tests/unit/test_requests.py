"""Requests by route: labels, caused and suffered stalls, snapshots; from records, without a loop."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import pytest
from records import MS, record, stall

from loopwatch import _core
from loopwatch._requests import OTHER, Requests, RouteStats, tracing
from loopwatch._stall import Verdict

BEGIN_MS, END_MS = 1000, 1300


def requests(**options: Any) -> Requests:
    made: dict[str, Any] = {
        "redact": str,
        "counters": collections.Counter(),
        "note_failure": lambda _problem, _where: None,
    }
    return Requests(**made | options)


def took(*times: tuple[int, float], longest: tuple[int, int, float] = (1, 0, 0.0)) -> Any:
    """Of a stall of 300 ms: (route, milliseconds); (request, route, milliseconds) of the longest step."""
    request, route, ms = longest
    return record(
        begin_ns=BEGIN_MS * MS,
        end_ns=END_MS * MS,
        routes=(request, route, round(ms * MS), [(number, round(ms * MS)) for number, ms in times]),
    )


def ended(verdict: Verdict = Verdict.PYTHON) -> Any:
    return stall(duration=0.3, breakdown={verdict: 0.3})


class Fake:
    """A request that began and ended at given times."""

    def __init__(
        self, number: int, route: _core.Route | None, begun_ms: float, ended_ms: float | None = None
    ):
        self.id, self.route = number, route
        self.begun_ns = round(begun_ms * MS)
        self.ended_ns = None if ended_ms is None else round(ended_ms * MS)
        self.scope = {"route": route}

    def find(self, scope: dict[str, Any]) -> _core.Route | None:
        assert scope is self.scope
        return None

    def end(self) -> bool:
        return True


# --- labels ---


@pytest.mark.parametrize(
    ("made", "label"),
    [
        (took(longest=(0, 0, 0)), None),
        (took((1, 160)), "GET /one"),
        (took((1, 150)), "GET /one"),
        (took((1, 149), (2, 148)), None),
        (took((2, 200), (1, 20)), "GET /two"),
        (took(longest=(99, 0, 300)), None),
        (took((1, 200), longest=(99, 0, 90)), "GET /one"),
    ],
)
def test_the_route_with_half_of_the_stall(made: Any, label: str | None) -> None:
    known = requests()
    assert [known.route(name).number for name in ("GET /one", "GET /two")] == [1, 2]
    assert known.labels(made).get("route") == label


def test_a_route_that_was_not_known_then_is_asked_for_now() -> None:
    known = requests()
    one = known.route("GET /one")
    flight: Any = Fake(7, None, 0)
    known.begin(flight)
    assert known.labels(took(longest=(7, 0, 200))) == {}
    flight.find = lambda _scope: one
    assert known.labels(took(longest=(7, 0, 200))) == {"route": "GET /one"}
    assert known.labels(took((1, 100), longest=(7, 0, 60))) == {"route": "GET /one"}


def test_labels_are_redacted_once() -> None:
    asked: list[str] = []

    def redact(text: str) -> str:
        asked.append(text)
        return text.replace("secret", "***")

    known = requests(redact=redact)
    known.route("GET /secret")
    for _ in range(3):
        assert known.labels(took((1, 300))) == {"route": "GET /***"}
        assert list(known.snapshot()) == ["GET /***"]
    assert asked == ["GET /secret"]


# --- caused and suffered ---


def worst(known: Requests) -> dict[str, tuple[float, float]]:
    return {
        name: (round(route.worst_caused, 6), round(route.worst_suffered, 6))
        for name, route in known.snapshot().items()
    }


def test_the_maker_and_those_who_wait() -> None:
    known = requests()
    heavy, light = known.route("GET /heavy"), known.route("GET /light")
    for request in (Fake(1, heavy, 900), Fake(2, heavy, 900), Fake(3, light, 1100), Fake(4, light, 1300)):
        known.begin(request)  # type: ignore[arg-type]
    known.note(took((1, 290), longest=(1, 1, 290)), ended())
    assert worst(known) == {"GET /heavy": (0.3, 0.3), "GET /light": (0.0, 0.2)}


def test_alone_it_does_not_suffer_from_itself() -> None:
    known = requests()
    known.begin(Fake(1, known.route("GET /heavy"), 900))  # type: ignore[arg-type]
    known.note(took((1, 290), longest=(1, 1, 290)), ended())
    assert worst(known) == {"GET /heavy": (0.3, 0.0)}


def test_those_that_ended_before_the_reporter_came() -> None:
    known = requests()
    route = known.route("GET /")
    for request in (Fake(1, route, 900, 1001), Fake(2, route, 900, 999)):
        known.begin(request)  # type: ignore[arg-type]
        known.end(request)  # type: ignore[arg-type]
    known.note(took(), ended())
    assert worst(known) == {"GET /": (0.0, 0.001)}
    known.begin(Fake(3, route, 1250))  # type: ignore[arg-type]
    known.note(took(), ended())
    assert worst(known) == {"GET /": (0.0, 0.05)}


@pytest.mark.parametrize("verdict", [Verdict.GIL, Verdict.NOT_SCHEDULED, Verdict.SUSPENDED])
def test_a_stall_that_others_made_is_suffered_by_all(verdict: Verdict) -> None:
    known = requests()
    known.begin(Fake(1, known.route("GET /"), 900))  # type: ignore[arg-type]
    made = took((1, 300), longest=(1, 1, 300))
    assert known.labels(made) == {"route": "GET /"}
    known.note(made, ended(verdict))
    assert worst(known) == {"GET /": (0.0, 0.3)}


def test_a_shorter_one_changes_nothing() -> None:
    known = requests()
    known.route("GET /")
    for seconds in (0.5, 0.3):
        known.note(took((1, 300)), dataclasses.replace(ended(), duration=seconds))
    assert worst(known) == {"GET /": (0.5, 0.0)}


def test_many_in_flight_are_counted_and_not_kept() -> None:
    counters: collections.Counter[str] = collections.Counter()
    known = requests(counters=counters)
    route = known.route("GET /")
    flights: list[Any] = [Fake(n, route, 900, 1001) for n in range(1, 12_001)]
    for flight in flights:
        known.begin(flight)
    assert counters["requests_unseen"] == 2000
    for flight in flights:
        known.end(flight)
    assert not known._in_flight
    assert len(known._past) == 4096


def test_a_forked_child_has_none_in_flight() -> None:
    known = requests()
    known.begin(Fake(1, known.route("GET /"), 900))  # type: ignore[arg-type]
    with known._lock:  # as another thread of the parent held it
        known.renew()
    known.note(took(), ended())
    assert worst(known) == {"GET /": (0.0, 0.0)}
    known.route("GET /new")


# --- routes ---


def test_only_so_many_routes() -> None:
    known = requests()
    numbers = {known.route(f"GET /{n}", 10).number for n in range(50)}
    assert len(numbers) == 11
    assert known.route("GET /3", 10) is known.route("GET /3", 10)
    assert known.route("GET /49", 10) is known.route(OTHER, 10)
    assert list(known.snapshot()) == [*(f"GET /{n}" for n in range(10)), OTHER]


def test_a_snapshot_of_nothing() -> None:
    snapshot = requests().snapshot()
    assert snapshot == {}
    with pytest.raises(TypeError):
        snapshot["GET /"] = None  # type: ignore[index]


def test_routes_that_redaction_makes_one() -> None:
    known = requests(redact=lambda text: text.split("/")[0] + "/")
    for name in ("GET /a", "GET /b", "PUT /c"):
        known.route(name)
    known.note(took((2, 300)), ended())
    assert worst(known) == {"GET /": (0.3, 0.0), "PUT /": (0.0, 0.0)}


def test_stats() -> None:
    stats = RouteStats("GET /", 4, 0.2, 0.5, 0.0, 0.0)
    assert stats.cpu_per_request == pytest.approx(0.05)
    assert stats.ceiling == pytest.approx(20)
    assert stats.cpu == 0.2
    none = RouteStats("GET /", 0, 0.2, 0.5, 0.0, 0.0)
    assert none.cpu_per_request is none.ceiling is None
    assert RouteStats("GET /", 1, 0.0, 0.0, 0.0, 0.0).ceiling is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.count = 5  # type: ignore[misc]


def test_the_trace_of_the_request_that_made_the_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "labels", lambda: {"trace_id": "7"})
    known = requests()
    going_on, over = Fake(1, known.route("GET /1"), 900), Fake(2, known.route("GET /2"), 900, 1310)
    known.begin(going_on)  # type: ignore[arg-type]
    known.begin(over)  # type: ignore[arg-type]
    known.end(over)  # type: ignore[arg-type]
    assert known.labels(took((1, 200), longest=(1, 1, 160))) == {"route": "GET /1", "trace_id": "7"}
    assert known.labels(took((2, 200), longest=(2, 2, 160))) == {"route": "GET /2", "trace_id": "7"}
    assert known.labels(took((1, 200), longest=(1, 1, 100))) == {"route": "GET /1"}, "of many requests"
    assert known.labels(took(longest=(9, 0, 200))) == {}, "nobody knows it"
