"""Requests by route: a pure ASGI middleware for Starlette, FastAPI, Litestar, Quart and any other.

    app.add_middleware(LoopwatchMiddleware)             # Starlette, FastAPI
    app.asgi_app = LoopwatchMiddleware(app.asgi_app)    # Quart
    app = LoopwatchMiddleware(app)                      # any

Counted are the steps of a request on the thread of the loop that serves it, where that loop is watched: what
runs from one suspension to the next. Threads and processes that it uses are no time of the loop. docs/requests.md
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from types import CoroutineType
from typing import Any, Final, TypeVar

from loopwatch import _core
from loopwatch._registry import registry
from loopwatch._requests import MAX_ROUTES, Requests
from loopwatch._templates import NAMED, QUART, Scope, Templates, of_quart

__all__ = ["LoopwatchMiddleware", "counted"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_T = TypeVar("_T")

_REQUEST: Final = "loopwatch.request"
_KINDS: Final = {"http", "websocket"}
_METHODS: Final = {
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY", "WS",
}  # fmt: skip
UNMATCHED: Final = "<unmatched>"
_LAYERS_MAX: Final = 100


class LoopwatchMiddleware:
    """Counts the requests of the application beneath it, for Watch.routes and Stall.labels["route"].

    `max_routes`: how many are told apart on one loop; the rest is "<other>". `route(scope)`: the template of a
    request in the program's own words, None to find it as usual; called on the loop's thread, once or twice for
    a request, and for a report on loopwatch's.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_routes: int = MAX_ROUTES,
        route: Callable[[Scope], str | None] | None = None,
    ) -> None:
        if isinstance(max_routes, bool) or not isinstance(max_routes, int):
            raise TypeError(f"max_routes must be an int, not {max_routes!r}")
        if max_routes < 1:
            raise ValueError(f"max_routes must be at least 1, not {max_routes}")
        if route is not None and not callable(route):
            raise TypeError(f"route must be callable or None, not {route!r}")
        self.app = app
        self._max_routes, self._route = max_routes, route
        self._templates = Templates()
        self._counting: tuple[int, _Counting | None] = 0, None
        _reach_tasks(app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _core.Request.loop()
        if not key or scope["type"] not in _KINDS:
            await self.app(scope, receive, send)
            return
        if (request := scope.get(_REQUEST)) is not None:  # there is one of us around this one
            await _core.Stepper(request, _coroutine(self.app(scope, receive, send)))
            return
        known, counting = self._counting
        if known != key:
            counting = self._find(key)
        if counting is None:
            await self.app(scope, receive, send)
            return
        request = scope[_REQUEST] = _core.Request(scope, counting.find)
        counting.requests.begin(request)
        try:
            await _core.Stepper(request, _coroutine(self.app(scope, receive, send)))
        finally:
            counting.end(request)
            scope.pop(_REQUEST, None)  # each refers to the other

    def _find(self, key: int) -> _Counting | None:
        watch = registry().by_key(key)
        if watch is None:
            return None
        counting = _Counting(watch.sinks.requests, self._template, self._max_routes)
        if _reach_tasks(self.app):
            self._counting = key, counting
        return counting

    def _template(self, scope: Scope) -> str | None:
        if self._route is not None and (said := self._route(scope)) is not None:
            if not isinstance(said, str):
                raise TypeError(f"route must return a str or None, not {said!r}")
            return said
        return self._templates.find(scope)


class _Counting:
    """The routes of one loop as one middleware names them."""

    def __init__(self, requests: Requests, template: Callable[[Scope], str | None], max_routes: int) -> None:
        self.requests = requests
        self._template, self._max_routes = template, max_routes
        self._known: dict[tuple[str, str], _core.Route] = {}

    def find(self, scope: Scope) -> _core.Route | None:
        """None: it is not matched yet."""
        try:
            template = self._template(scope)
        except Exception as problem:
            self.requests.failed(problem, "finding a route")
            template = None
        return None if template is None else self._of(scope, template)

    def end(self, request: _core.Request) -> None:
        if request.route is None:
            request.route = self.find(request.scope) or self._of(request.scope, UNMATCHED)
        self.requests.end(request)

    def _of(self, scope: Scope, template: str) -> _core.Route:
        method = "WS" if scope["type"] == "websocket" else scope.get("method")
        if method not in _METHODS:  # a client's own invention
            method = "<method>"
        route = self._known.get((method, template))
        if route is None:
            route = self.requests.route(f"{method} {template}", self._max_routes)
            if len(self._known) < self._max_routes:
                self._known[method, template] = route
        return route


def counted(awaitable: Awaitable[_T]) -> Coroutine[Any, Any, _T]:
    """A coroutine that awaits it and counts its steps for the request whose step this is called in.

    For tasks that a handler starts: `asyncio.create_task(counted(work(item)))`. Elsewhere nothing is counted.
    """
    coroutine = _coroutine(awaitable)
    request = _core.Request.current()
    if request is None:
        return coroutine
    made: Coroutine[Any, Any, _T] = _await(_core.Stepper(request, coroutine))
    _name_after(made, coroutine)
    return made


def _name_after(made: Any, coroutine: Any) -> None:
    made.__name__, made.__qualname__ = coroutine.__name__, coroutine.__qualname__


def _coroutine(awaitable: Awaitable[_T]) -> Coroutine[Any, Any, _T]:
    return awaitable if isinstance(awaitable, CoroutineType) else _await(awaitable)


async def _await(awaitable: Awaitable[_T]) -> _T:
    return await awaitable


# --- frameworks that run the application in a task of its own ---


class _Counted:
    """An application beneath a middleware that runs it in a task of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (request := scope.get(_REQUEST)) is None:
            await self.app(scope, receive, send)
        else:
            await _core.Stepper(request, _coroutine(self.app(scope, receive, send)))


def _is_a(thing: object, module: str, name: str) -> bool:
    return any(base.__module__ == module and base.__name__ == name for base in type(thing).__mro__)


def _reach_tasks(app: object) -> bool:
    """Have the steps counted that are run in a task of the framework's: instances are changed, no class. False:
    Starlette has yet to put its middlewares together, at its first call."""
    owner = getattr(app, "__self__", app)
    if _is_a(owner, "quart.app", "Quart"):
        _reach_quart(owner)
        return True
    layer: Any = app
    for _ in range(_LAYERS_MAX):
        if _is_a(layer, "starlette.middleware.base", "BaseHTTPMiddleware") and not isinstance(
            layer.app, _Counted | LoopwatchMiddleware
        ):
            layer.app = _Counted(layer.app)
        if hasattr(layer, "middleware_stack"):
            layer = layer.middleware_stack
            if layer is None:
                return False
        else:
            layer = getattr(layer, "app", None)
            if layer is None:
                break
    return True


def _reach_quart(app: Any) -> None:
    """Quart handles each request in a task of its own, in these two methods."""
    for name in ("handle_request", "handle_websocket"):
        handle = getattr(app, name)
        if name not in vars(app):
            setattr(app, name, _noting(handle))


def _noting(handle: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    @functools.wraps(handle)
    async def noting(connection: Any) -> Any:
        request = connection.scope.get(_REQUEST)
        if request is None:
            return await handle(connection)
        connection.scope[QUART] = connection
        try:
            return await _core.Stepper(request, _coroutine(handle(connection)))
        finally:
            if (template := of_quart(connection)) is not None:
                connection.scope[NAMED] = template
            del connection.scope[QUART]  # each refers to the other

    return noting
