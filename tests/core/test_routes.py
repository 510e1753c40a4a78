"""What the requests of a turn took of it, by route."""

from __future__ import annotations

import collections
from typing import Any

from hooking import HOUR_NS, MS, running, spend, watched
from hypothesis import given
from hypothesis import strategies as st
from request_steps import drive, nowhere, steps

from loopwatch import _testcore as core

ROUTES_MAX = 8


# --- the times of a turn ---


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 1000)), max_size=80))
def test_frequent_routes_stay(times: list[tuple[int, int]]) -> None:
    """Nothing counts too high, and nothing is short by more than a ninth of all."""
    true: collections.Counter[int] = collections.Counter()
    with watched() as slot:
        core.next_turn(slot)
        for route, ns in times:
            core.add_route_time(slot, route, ns)
            true[route] += ns
        _, _, _, said = core.collect_routes(slot, HOUR_NS)
    assert len(said) == len(dict(said)) <= ROUTES_MAX
    for route in true:
        counted = dict(said).get(route, 0)
        assert true[route] - true.total() / (ROUTES_MAX + 1) <= counted <= true[route]


def test_few_routes_are_exact() -> None:
    def check(slot: object) -> None:
        core.next_turn(slot)
        for route in range(1, ROUTES_MAX + 1):
            core.add_route_time(slot, route, route)
            core.add_route_time(slot, route, 10)
        assert core.collect_routes(slot, HOUR_NS)[3] == [(n, n + 10) for n in range(1, ROUTES_MAX + 1)]
        assert core.collect_routes(slot, 3)[3] == [(n, 3) for n in range(1, ROUTES_MAX + 1)]
        core.next_turn(slot)
        assert core.collect_routes(slot, HOUR_NS) == (0, 0, 0, [])

    running(check)


# --- the steps of requests ---


def test_a_step_while_it_runs_and_when_it_has_ended() -> None:
    def check(slot: object) -> None:
        request = core.Request({}, nowhere)
        core.next_turn(slot)
        seen = []

        def look() -> None:
            spend(5)
            seen.append(core.collect_routes(slot, HOUR_NS))

        drive(core.Stepper(request, steps(look)))
        ((whose, route, ns, known),) = seen
        assert (whose, route, known) == (request.id, 0, [])
        assert ns >= 5 * MS
        assert core.collect_routes(slot, HOUR_NS)[:2] == (request.id, 0)
        request.route = core.Route(3)
        whose, route, ns, known = core.collect_routes(slot, HOUR_NS)
        assert (whose, route) == (request.id, 3)
        assert [number for number, _ in known] == [3]
        assert known[0][1] >= ns >= 5 * MS

    running(check)


def test_the_route_of_an_open_step_is_told_as_soon_as_it_is_set() -> None:
    def check(slot: object) -> None:
        request = core.Request({}, nowhere)
        core.next_turn(slot)
        seen = []

        def look() -> None:
            spend(2)
            request.route = core.Route(7)
            seen.append(core.collect_routes(slot, HOUR_NS))

        drive(core.Stepper(request, steps(look)))
        assert seen[0][1] == 7
        assert [number for number, _ in seen[0][3]] == [7]

    running(check)


def test_steps_of_an_earlier_turn_are_not_of_this_one() -> None:
    def check(slot: object) -> None:
        request = core.Request({}, nowhere)
        drive(core.Stepper(request, steps(lambda: spend(5))))
        core.next_turn(slot)
        request.route = core.Route(1)
        assert core.collect_routes(slot, HOUR_NS) == (0, 0, 0, [])
        assert request.route.busy_ns >= 5 * MS

    running(check)


def test_the_longest_step_says_whose_it_was() -> None:
    def check(slot: object) -> None:
        core.next_turn(slot)
        short, long, shorter = (core.Request({}, nowhere) for _ in range(3))
        for request, ms in ((short, 5), (long, 40), (shorter, 1)):
            drive(core.Stepper(request, steps(lambda ms=ms: spend(ms))))
        assert core.collect_routes(slot, HOUR_NS)[0] == long.id

    running(check)


def test_a_request_inside_a_step_of_another_counts_for_both() -> None:
    def check(slot: object) -> None:
        core.next_turn(slot)
        outer, inner = core.Request({}, nowhere), core.Request({}, nowhere)
        outer.route, inner.route = core.Route(1), core.Route(2)

        async def ask() -> None:
            await core.Stepper(inner, steps(lambda: spend(10)))
            spend(10)

        drive(core.Stepper(outer, ask()))
        assert inner.route.busy_ns >= 10 * MS
        assert outer.route.busy_ns >= inner.route.busy_ns + 10 * MS
        assert core.collect_routes(slot, HOUR_NS)[0] == outer.id

    running(check)


def test_unwatched_in_the_middle_of_a_step() -> None:
    def check(slot: Any) -> None:
        request = core.Request({}, nowhere)

        def stop() -> None:
            slot.retire(10**9)
            with watched() as other:  # it may have the same memory
                assert core.collect_routes(other, HOUR_NS) == (0, 0, 0, [])

        drive(core.Stepper(request, steps(stop)))
        request.route = core.Route(1)
        assert request.end() is False

    running(check)
