"""The frameworks: their own names of routes, their own tasks, and a real server."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from asgi_client import ask, converse
from scenario import block, new_loop, pulse_of, quiet, wait_until
from stalling import counts as burn

import loopwatch
from loopwatch.asgi import LoopwatchMiddleware

CPU = 0.02

# What they warn of in each other's newest versions is not ours to answer for.
pytestmark = pytest.mark.filterwarnings("ignore")


def routes_of(main: Callable[[], Coroutine[Any, Any, object]]) -> dict[str, loopwatch.RouteStats]:
    loop = new_loop()
    watch = loopwatch.install(loop, **quiet())
    try:
        loop.run_until_complete(main())
        assert not watch.sinks.requests._in_flight
    finally:
        loop.close()
    return dict(watch.routes)


def counts(routes: dict[str, loopwatch.RouteStats]) -> dict[str, int]:
    return {name: route.count for name, route in routes.items()}


def test_starlette() -> None:
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route, WebSocketRoute

    async def item(_request: Any) -> PlainTextResponse:
        await asyncio.sleep(0.001)
        burn(CPU)
        return PlainTextResponse("")

    async def feed(socket: Any) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text.upper())

    inner = Starlette(routes=[Route("/{id:int}", item)])
    app = Starlette(
        routes=[
            Route("/items/{id:int}", item, methods=["GET", "PUT"]),
            WebSocketRoute("/feed/{x}", feed),
            Mount("/shops/{shop}", routes=[Route("/items/{id}", item), Mount("/deep", app=inner)]),
        ]
    )
    app.add_middleware(LoopwatchMiddleware)

    async def main() -> None:
        assert (
            await ask(app, "/items/1")
            == await ask(app, "/items/2")
            == await ask(app, "/items/1", "PUT")
            == 200
        )
        assert await ask(app, "/shops/acme/items/5") == await ask(app, "/shops/other/deep/7") == 200
        assert await ask(app, "/items/x") == 404
        assert await ask(app, "/items/1/") == 307
        assert await ask(app, "/items/1", "DELETE") == 405
        assert await converse(app, "/feed/5", "a") == ["A"]

    routes = routes_of(main)
    assert counts(routes) == {
        "GET /items/{id}": 2,
        "PUT /items/{id}": 1,
        "GET /shops/{shop}/items/{id}": 1,
        "GET /shops/{shop}/deep/{id}": 1,
        "GET <unmatched>": 2,
        "DELETE /items/{id}": 1,
        "WS /feed/{x}": 1,
    }
    assert routes["GET /items/{id}"].cpu >= 2 * CPU


@pytest.mark.parametrize("place", ["outside", "inside", "both", "around"])
def test_a_middleware_that_runs_the_application_in_a_task(place: str) -> None:
    pytest.importorskip("starlette")
    from starlette.applications import Starlette
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    class Own(BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            return await call_next(request)

    async def item(_request: Any) -> PlainTextResponse:
        await asyncio.sleep(0.001)
        burn(CPU)
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/items/{id}", item)])
    if place in ("inside", "both"):
        app.add_middleware(LoopwatchMiddleware)
    app.add_middleware(Own)
    app.add_middleware(Own)
    if place in ("outside", "both"):
        app.add_middleware(LoopwatchMiddleware)

    asked: Any = LoopwatchMiddleware(app) if place == "around" else app

    async def main() -> None:
        assert await ask(asked, "/items/1") == 200
        assert await ask(asked, "/items/1") == 200

    began = time.process_time()
    routes = routes_of(main)
    assert counts(routes) == {"GET /items/{id}": 2}
    # Starlette puts its middlewares together at the first call, which is too late for that one.
    least = CPU if place == "around" else 2 * CPU
    assert least <= routes["GET /items/{id}"].cpu <= time.process_time() - began


def test_fastapi() -> None:
    pytest.importorskip("fastapi")
    from fastapi import APIRouter, FastAPI

    router = APIRouter(prefix="/items")

    @router.get("/{number}")
    async def item(number: int) -> int:
        burn(CPU)
        return number

    @router.get("/plain/{number}")
    def plain(number: int) -> int:
        burn(10 * CPU)  # in a thread
        return number

    app, mounted = FastAPI(), FastAPI()
    app.include_router(router, prefix="/api")
    app.include_router(router)
    mounted.include_router(router)
    app.mount("/sub", mounted)

    @app.middleware("http")
    async def own(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    app.add_middleware(LoopwatchMiddleware)

    async def main() -> None:
        for path in ("/api/items/1", "/items/2", "/sub/items/3", "/items/plain/4"):
            assert await ask(app, path) == 200
        assert await ask(app, "/items/x") == 422
        assert await ask(app, "/nowhere") == 404

    routes = routes_of(main)
    assert counts(routes) == {
        "GET /api/items/{number}": 1,
        "GET /items/{number}": 2,
        "GET /sub/items/{number}": 1,
        "GET /items/plain/{number}": 1,
        "GET <unmatched>": 1,
    }
    assert routes["GET /items/{number}"].cpu >= CPU
    assert routes["GET /items/plain/{number}"].cpu < 10 * CPU


def test_litestar() -> None:
    pytest.importorskip("litestar")
    from litestar import Litestar, Router, get

    @get("/{number:int}")
    async def item(number: int) -> int:
        burn(CPU)
        return number

    item.fn.__annotations__ = {"number": int, "return": int}  # not text, which it would look up
    app = LoopwatchMiddleware(Litestar([Router("/items", route_handlers=[item])]))

    async def main() -> None:
        assert await ask(app, "/items/1") == 200
        assert await ask(app, "/items/x") == 404

    routes = routes_of(main)
    assert counts(routes) == {"GET /items/{number}": 1, "GET <unmatched>": 1}
    assert routes["GET /items/{number}"].cpu >= CPU


@pytest.mark.parametrize("around", ["asgi_app", "app"])
def test_quart(around: str) -> None:
    pytest.importorskip("quart")
    from quart import Quart, websocket

    made = Quart(__name__)

    @made.get("/items/<int:number>")
    async def item(number: int) -> str:
        burn(CPU)
        await asyncio.sleep(0.001)
        burn(CPU)
        return str(number)

    @made.websocket("/feed/<x>")
    async def feed(x: str) -> None:
        while True:
            await websocket.send((await websocket.receive()).upper() + x)

    app: Any = made
    if around == "app":
        app = LoopwatchMiddleware(made)
    else:
        made.asgi_app = LoopwatchMiddleware(made.asgi_app)  # type: ignore[method-assign]

    async def main() -> None:
        assert await ask(app, "/items/1") == 200
        assert await ask(app, "/items/x") == 404
        assert await converse(app, "/feed/z", "a") == ["Az"]

    routes = routes_of(main)
    assert counts(routes) == {"GET /items/{number}": 1, "GET <unmatched>": 1, "WS /feed/{x}": 1}
    assert routes["GET /items/{number}"].cpu >= 2 * CPU


# --- a real server ---


class Server:
    """uvicorn on a loop of this kind, in a thread of its own, watched."""

    def __init__(self, kind: str, app: Any) -> None:
        import uvicorn

        self.loop = new_loop(kind)
        self.watch = loopwatch.install(self.loop, **quiet(pulse=pulse_of(kind)))
        config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        self.loop.run_until_complete(self.server.serve())
        self.loop.close()

    def __enter__(self) -> Server:
        self.thread.start()
        assert wait_until(lambda: self.server.started)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join()

    def get(self, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status


@pytest.mark.parametrize("kind", ["turn", "uv"])
def test_a_real_server(kind: str) -> None:
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    if kind == "uv":
        pytest.importorskip("uvloop")
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def light(_request: Any) -> PlainTextResponse:
        await asyncio.sleep(0.5)
        return PlainTextResponse("")

    async def heavy(_request: Any) -> PlainTextResponse:
        block(0.25)
        return PlainTextResponse("")

    app = Starlette(routes=[Route("/light/{id}", light), Route("/heavy/{id}", heavy)])
    app.add_middleware(LoopwatchMiddleware)
    with Server(kind, app) as server:
        waiting = threading.Thread(target=server.get, args=("/light/1",))
        waiting.start()
        assert wait_until(lambda: server.watch.sinks.requests._in_flight)
        assert server.get("/heavy/1") == 200
        waiting.join()
        assert server.get("/nowhere") == 404
    routes = server.watch.routes
    assert counts(dict(routes)) == {"GET /light/{id}": 1, "GET /heavy/{id}": 1, "GET <unmatched>": 1}
    assert {"route": "GET /heavy/{id}"} in [one.labels for one in server.watch.stalls]
    assert 0.2 <= routes["GET /light/{id}"].worst_suffered <= max(one.duration for one in server.watch.stalls)
