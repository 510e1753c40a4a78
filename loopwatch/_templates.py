"""The template of the route that a request was matched to, from what frameworks leave in its ASGI scope.

Never the path that was asked for: that is the client's choice, and there is no end of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from typing import Any, Final

Scope = MutableMapping[str, Any]

NAMED: Final = "loopwatch.route"
"""A program of its own kind may put its template under this key of the scope."""
QUART: Final = "loopwatch.quart"
"""Quart's own request, which knows its rule once it is matched."""

_PREFIXES_MAX: Final = 1024
_UNKNOWN_MOUNT: Final = "/{mount}"
_CONVERTER: Final = re.compile(r"\{(\w+):[^{}]*\}")
_QUART_PART: Final = re.compile(r"<(?:[^<>]*:)?(\w+)>")


class Templates:
    """Finds the template in a scope; None where nothing was matched, or not yet."""

    def __init__(self) -> None:
        self._prefixes: dict[tuple[int, str], str] = {}

    def find(self, scope: Scope) -> str | None:
        named = scope.get(NAMED) or scope.get("path_template")  # Litestar's
        if isinstance(named, str):
            return named
        if (quart := scope.get(QUART)) is not None:
            return of_quart(quart)
        return self._of_starlette(scope)

    def _of_starlette(self, scope: Scope) -> str | None:
        """Starlette's and FastAPI's: the innermost router's route, below the mounts on the way to it."""
        route = scope.get("route")
        if route is None:
            return _searched(scope)
        path = _path_of(route, scope)
        if path is None:
            return None
        prefix = self._prefix(scope) if "app_root_path" in scope else ""
        if _is_mount(route):  # what is mounted has no routes, or none that matched
            path = "/{path}"
            prefix = prefix or str(route.path)
        return _plain(prefix + path)

    def _prefix(self, scope: Scope) -> str:
        """The mounts' own templates: the scope has only what was asked for."""
        asked = scope["root_path"][len(scope["app_root_path"]) :]
        if not asked:
            return ""
        router = scope.get("router")
        known = self._prefixes.get((id(router), asked))
        if known is None:
            known = _mounted(getattr(router, "routes", ()), asked)
            known = _UNKNOWN_MOUNT if known is None else known
            if len(self._prefixes) >= _PREFIXES_MAX:
                self._prefixes.clear()
            self._prefixes[id(router), asked] = known
        return known


def of_quart(request: Any) -> str | None:
    rule = getattr(getattr(request, "url_rule", None), "rule", None)
    return _QUART_PART.sub(r"{\1}", rule) if isinstance(rule, str) else None


def _path_of(route: Any, scope: Scope) -> str | None:
    # FastAPI keeps a router that is included as it is, and the path with the prefix beside it.
    included = scope.get("fastapi")
    context = included.get("effective_route_context") if isinstance(included, dict) else None
    if context is not None and getattr(context, "original_route", None) is route:
        route = getattr(context, "starlette_route", None) or context
    path = getattr(route, "path", None)
    return path if isinstance(path, str) else None


def _is_mount(route: Any) -> bool:
    return not hasattr(route, "endpoint")


def _plain(path: str) -> str:
    """Without the converters: {id:int} is {id}."""
    return _CONVERTER.sub(r"{\1}", path) if ":" in path else path


def _mounted(routes: Iterable[Any], asked: str) -> str | None:
    """The template of the mounts that lead to `asked`."""
    for route in routes:
        if not _is_mount(route):
            continue
        regex = getattr(route, "path_regex", None)
        if regex is None:  # a host
            found, path = _mounted(getattr(route, "routes", None) or (), asked), ""
        else:
            match = regex.match(asked + "/")
            if match is None:
                continue
            rest = ("/" + match["path"]).rstrip("/")
            found, path = _mounted(route.routes or (), rest) if rest else "", route.path
        if found is not None:
            return str(path) + found
    return None


def _searched(scope: Scope) -> str | None:
    """An older Starlette says only which endpoint it was."""
    endpoint, router = scope.get("endpoint"), scope.get("router")
    if endpoint is None or router is None:
        return None
    path = scope["path"].removeprefix(scope.get("app_root_path", scope.get("root_path", "")))
    found = _leaf(getattr(router, "routes", ()), path, endpoint)
    return None if found is None else _plain(found)


def _leaf(routes: Iterable[Any], path: str, endpoint: object) -> str | None:
    for route in routes:
        regex = getattr(route, "path_regex", None)
        match = regex.match(path) if regex is not None else None
        if match is None:
            continue
        if not _is_mount(route):
            if route.endpoint is endpoint:
                return str(route.path)
        elif (found := _leaf(route.routes or (), "/" + match["path"], endpoint)) is not None:
            return str(route.path) + found
        elif route.app is endpoint:
            return f"{route.path}/{{path}}"
    return None
