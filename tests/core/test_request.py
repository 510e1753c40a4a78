"""A request's own clocks, whose step runs, and how its route is looked for."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest
from hooking import MS, running, spend
from request_steps import burn, drive, nowhere, steps

from loopwatch import _testcore as core

# --- clocks ---


def test_cpu_and_busy_time() -> None:
    def check(_slot: object) -> None:
        request, route = core.Request({}, nowhere), core.Route(1)
        request.route = route
        began, began_cpu = time.monotonic_ns(), time.thread_time_ns()
        drive(core.Stepper(request, steps(lambda: burn(20), lambda: time.sleep(0.05))))
        cpu, busy = time.thread_time_ns() - began_cpu, time.monotonic_ns() - began
        assert 20 * MS <= route.cpu_ns <= cpu
        assert 70 * MS <= route.busy_ns <= busy
        assert route.cpu_ns < route.busy_ns
        assert route.count == 0
        request.end()
        request.end()
        assert route.count == 1

    running(check)


def test_what_was_counted_before_the_route_was_known_is_the_routes() -> None:
    def check(_slot: object) -> None:
        request, route = core.Request({}, nowhere), core.Route(1)
        drive(core.Stepper(request, steps(lambda: burn(10))))
        request.route = route
        counted = route.cpu_ns
        assert counted >= 10 * MS
        drive(core.Stepper(request, steps(lambda: burn(5))))
        assert route.cpu_ns >= counted + 5 * MS

    running(check)


def test_time_between_steps_is_nobodys() -> None:
    def check(_slot: object) -> None:
        request, route = core.Request({}, nowhere), core.Route(1)
        request.route = route
        for _ in core.Stepper(request, steps(lambda: None, lambda: None)):
            spend(20)
        assert route.busy_ns < 20 * MS

    running(check)


def test_a_step_inside_one_of_the_same_request_counts_once() -> None:
    def check(_slot: object) -> None:
        request, route = core.Request({}, nowhere), core.Route(1)
        request.route = route

        async def outer() -> None:
            await core.Stepper(request, steps(lambda: burn(20)))

        began = time.thread_time_ns()
        drive(core.Stepper(request, outer()))
        assert 20 * MS <= route.cpu_ns <= time.thread_time_ns() - began

    running(check)


def test_whose_step_runs() -> None:
    def check(_slot: object) -> None:
        outer, inner = core.Request({}, nowhere), core.Request({}, nowhere)
        seen: list[object] = []

        def look() -> None:
            seen.append(core.Request.current())

        async def ask() -> None:
            look()
            await core.Stepper(inner, steps(look))
            look()

        drive(core.Stepper(outer, ask()))
        look()
        assert seen == [outer, inner, outer, None]

    running(check)


def test_another_thread_and_another_loop_are_not_counted() -> None:
    def check(_slot: object) -> None:
        request, route = core.Request({}, nowhere), core.Route(1)
        request.route = route

        def work() -> None:
            drive(core.Stepper(request, steps(lambda: spend(2))))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        running(lambda _: work())
        assert (route.cpu_ns, route.busy_ns) == (0, 0)
        work()
        assert route.busy_ns >= 2 * MS

    running(check)


def test_without_a_watched_loop() -> None:
    assert core.Request.loop() == 0
    request, route = core.Request({}, nowhere), core.Route(1)
    request.route = route
    drive(core.Stepper(request, steps(lambda: spend(1))))
    assert request.end() is False
    assert (route.count, route.busy_ns) == (1, 0)


def test_the_loop_has_its_slots_key() -> None:
    running(lambda slot: slot.key == core.Request.loop() or pytest.fail("another key"))


# --- looking for the route ---


def test_the_route_is_looked_for_when_a_step_has_suspended() -> None:
    def check(_slot: object) -> None:
        asked: list[object] = []
        route = core.Route(1)

        def find(scope: object) -> object:
            asked.append(scope)
            return route if len(asked) == 2 else None

        scope = {"type": "http"}
        request = core.Request(scope, find)
        stepper = core.Stepper(request, steps(*[lambda: burn(1)] * 4))
        next(stepper)
        assert request.route is None
        next(stepper)
        assert request.route is route
        drive(stepper)
        assert asked == [scope, scope]
        assert asked[0] is request.scope is scope
        assert route.cpu_ns >= 4 * MS

    running(check)


def test_it_is_looked_for_less_and_less_often() -> None:
    def check(_slot: object) -> None:
        asked: list[int] = []
        suspended = 0

        def find(_scope: object) -> None:
            asked.append(suspended)

        stepper = core.Stepper(core.Request({}, find), steps(*[lambda: None] * 100))
        for suspended in range(1, 101):  # noqa: B007 - find() reads it
            next(stepper)
        assert asked == [1, 2, 3, 4, 8, 16, 32, 64]

    running(check)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("answer", ["GET /", 1, LookupError("mine")])
def test_what_goes_wrong_there_does_not_reach_the_request(answer: object) -> None:
    def find(_scope: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    def check(_slot: object) -> None:
        request = core.Request({}, find)
        drive(core.Stepper(request, steps(lambda: None)))
        assert request.route is None

    running(check)


# --- bad input, garbage ---


def test_a_route_is_set_once() -> None:
    request = core.Request({}, nowhere)
    for wrong in (None, "GET /", 1):
        with pytest.raises(TypeError, match="Route"):
            request.route = wrong
    with pytest.raises(TypeError):
        del request.route
    request.route = core.Route(1)
    with pytest.raises(RuntimeError, match="already"):
        request.route = core.Route(2)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: core.Route(0), ValueError),
        (lambda: core.Route("1"), TypeError),
        (lambda: core.Route(), TypeError),
        (lambda: core.Request({}), TypeError),
        (lambda: core.Stepper(1, 2), TypeError),
        (lambda: core.Stepper(core.Request({}, nowhere), asyncio.sleep), TypeError),
        (lambda: core.Stepper(core.Request({}, nowhere), iter([])), TypeError),
    ],
)
def test_bad_arguments(make: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


def test_ids_and_times() -> None:
    before = time.monotonic_ns()
    first, second = core.Request({}, nowhere), core.Request({}, nowhere)
    assert first.id < second.id
    assert before <= first.begun_ns <= second.begun_ns
    assert first.ended_ns is None
    first.end()
    assert first.begun_ns <= first.ended_ns <= time.monotonic_ns()
    assert first.find is nowhere


def test_cycles_are_collected() -> None:
    class Scope(dict[str, object]):
        pass

    scope = Scope()
    request = scope["request"] = core.Request(scope, nowhere)

    async def main(held: object) -> None:
        await asyncio.sleep(0)
        del held

    coroutine = main(request)
    stepper = scope["stepper"] = core.Stepper(request, coroutine)
    next(stepper)
    gone = weakref.ref(scope)
    del scope, request, coroutine, stepper
    gc.collect()
    assert gone() is None
