"""An ASGI application without a framework, what its requests do, and the watch of a loop that they ran in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from scenario import new_loop, pulse_of, quiet
from stalling import counts as burn

import loopwatch

CPU = 0.02


def run(kind: str, main: Callable[[], Coroutine[Any, Any, object]], **options: Any) -> loopwatch.Watch:
    """The watch of a loop in which it has run, and that is closed."""
    loop = new_loop(kind)
    watch = loopwatch.install(loop, **quiet(pulse=pulse_of(kind), **options))
    try:
        loop.run_until_complete(main())
        assert not watch.sinks.requests._in_flight
    finally:
        loop.close()
    return watch


class Routed:
    """An application without a framework: routes by the first part of the path, as the scope says."""

    def __init__(self, **handlers: Callable[[], Awaitable[object]]) -> None:
        self.handlers = handlers
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "lifespan":
            return
        name = scope["path"].split("/")[1]
        if name in self.handlers:
            scope["loopwatch.route"] = f"/{name}/{{id}}"
            await self.handlers[name]()
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})


async def spend() -> None:
    burn(CPU)


async def wait() -> None:
    await asyncio.sleep(0.3)
