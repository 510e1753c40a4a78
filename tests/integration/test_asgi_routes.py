"""Routes of requests in real loops: their names, how many there may be, and whose a stall is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgi_app import Routed, run, spend, wait
from asgi_client import ask
from kinds import kind_fixture
from scenario import block, wait_until

import loopwatch
from loopwatch.asgi import LoopwatchMiddleware

kind = kind_fixture("turn", "uv")


def longest(watch: loopwatch.Watch) -> loopwatch.Stall:
    """A busy machine may make others."""
    return max(watch.stalls, key=lambda one: one.duration)


async def stall() -> None:
    await asyncio.sleep(0.05)
    block(0.25)


# --- names ---


def test_only_so_many_routes() -> None:
    async def main() -> None:
        for number in range(30):
            await ask(app, f"/{number}/x")

    app = LoopwatchMiddleware(Routed(), max_routes=5, route=lambda scope: scope["path"])
    routes = run("turn", main).routes
    assert list(routes) == [*(f"GET /{n}/x" for n in range(5)), "<other>"]
    assert routes["<other>"].count == 25


def test_the_programs_own_names() -> None:
    def name(scope: Any) -> Any:
        if scope["path"] == "/bad":
            return 5
        if scope["path"] == "/fails":
            raise LookupError
        return "/mine" if scope["path"] == "/a" else None

    app = LoopwatchMiddleware(Routed(spend=spend), route=name)

    async def main() -> None:
        for path in ("/a", "/spend/1", "/bad", "/fails", "/fails"):
            assert await ask(app, path) == 200

    watch = run("turn", main)
    assert {name: route.count for name, route in watch.routes.items()} == {
        "GET /mine": 1,
        "GET /spend/{id}": 1,
        "GET <unmatched>": 3,
    }
    assert wait_until(lambda: watch.stats()["callback_errors"]) == 2


def test_names_are_redacted(kind: str) -> None:
    app = LoopwatchMiddleware(Routed(stall=stall))

    async def main() -> None:
        await ask(app, "/stall/1")

    watch = run(kind, main, redact=lambda text: text.replace("stall", "***"))
    stalled = longest(watch)
    assert stalled.labels == {"route": "GET /***/{id}"}
    assert list(watch.routes) == ["GET /***/{id}"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_routes": 0}, ValueError),
        ({"max_routes": "5"}, TypeError),
        ({"max_routes": True}, TypeError),
        ({"route": "GET /"}, TypeError),
    ],
)
def test_bad_options(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        LoopwatchMiddleware(Routed(), **options)


# --- stalls ---


def test_the_route_of_a_stall_and_who_suffered(kind: str) -> None:
    app = LoopwatchMiddleware(Routed(stall=stall, wait=wait))

    async def main() -> None:
        await asyncio.gather(ask(app, "/wait/1"), ask(app, "/stall/1"))

    watch = run(kind, main)
    stalled = longest(watch)
    assert stalled.labels == {"route": "GET /stall/{id}"}
    assert "route=GET /stall/{id}" in " ".join(stalled.format().split())
    assert loopwatch.Stall.from_dict(stalled.to_dict()).labels == stalled.labels
    maker, other = watch.routes["GET /stall/{id}"], watch.routes["GET /wait/{id}"]
    if stalled.verdict is loopwatch.Verdict.BLOCKING_CALL:  # it is, unless the machine took more
        assert maker.worst_caused == stalled.duration
    assert other.worst_caused == 0
    assert 0.2 <= other.worst_suffered <= max(one.duration for one in watch.stalls)


def test_a_stall_in_the_first_step_while_it_goes_on(kind: str) -> None:
    seen: list[loopwatch.Stall] = []

    async def hang() -> None:
        block(0.6)

    app = LoopwatchMiddleware(Routed(hang=hang))

    async def main() -> None:
        await asyncio.sleep(0.01)
        await ask(app, "/hang/1")

    run(kind, main, hang_after=0.2, on_stall=seen.append)
    assert [(one.ongoing, dict(one.labels)) for one in seen if one.labels] == [
        (True, {"route": "GET /hang/{id}"}),
        (False, {"route": "GET /hang/{id}"}),
    ]


def test_a_stall_outside_of_requests_has_no_route(kind: str) -> None:
    app = LoopwatchMiddleware(Routed(wait=wait))

    async def main() -> None:
        asking = asyncio.create_task(ask(app, "/wait/1"))
        await asyncio.sleep(0.01)
        block(0.25)
        await asking

    watch = run(kind, main)
    assert longest(watch).labels == {}
    route = watch.routes["GET /wait/{id}"]
    assert route.worst_caused == 0
    assert route.worst_suffered >= 0.2


def test_many_short_requests_of_one_route(kind: str) -> None:
    async def short() -> None:
        await asyncio.sleep(0)
        block(0.02)

    app = LoopwatchMiddleware(Routed(short=short))

    async def main() -> None:
        await asyncio.sleep(0.01)
        await asyncio.gather(*(ask(app, f"/short/{n}") for n in range(20)))

    watch = run(kind, main)
    assert {"route": "GET /short/{id}"} in [one.labels for one in watch.stalls]
    assert watch.routes["GET /short/{id}"].count == 20
