"""The template of a route from what a framework leaves in the scope: never the path that was asked for."""

from __future__ import annotations

import re
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from loopwatch._templates import Templates


def endpoint() -> None: ...


def route(path: str, regex: str | None = None, at: object = endpoint) -> Thing:
    pattern = re.sub(r"\{(\w+)(:\w+)?\}", r"(?P<\1>[^/]+)", path) if regex is None else regex
    return Thing(path=path, path_regex=re.compile(f"^{pattern}$"), endpoint=at)


def mount(path: str, *routes: Any, app: object = None) -> Thing:
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
    return Thing(path=path, path_regex=re.compile(f"^{pattern}/(?P<path>.*)$"), routes=list(routes), app=app)


def find(**scope: Any) -> str | None:
    return Templates().find({"type": "http", "path": "/secret", "root_path": "", **scope})


def test_nothing_is_matched() -> None:
    assert find() is None
    assert find(route=None, endpoint=None, path_template=None, fastapi=None) is None
    assert find(route=Thing()) is None


def test_litestar_and_the_programs_own() -> None:
    assert find(path_template="/items/{id}") == "/items/{id}"
    assert find(**{"path_template": "/theirs", "loopwatch.route": "/mine/{x}"}) == "/mine/{x}"


@pytest.mark.parametrize(
    ("rule", "template"),
    [
        ("/items/<int:id>", "/items/{id}"),
        ("/<path:rest>", "/{rest}"),
        ("/<any(a, b):which>/<x>", "/{which}/{x}"),
        ("/plain", "/plain"),
        (None, None),
    ],
)
def test_quart(rule: str | None, template: str | None) -> None:
    request = Thing(url_rule=Thing(rule=rule) if rule else None)
    assert find(**{"loopwatch.quart": request}) == template


def test_starlette() -> None:
    assert find(route=route("/items/{id}")) == "/items/{id}"
    assert find(route=route("/items/{id:int}/{rest:path}")) == "/items/{id}/{rest}"


def test_fastapi_with_an_included_router() -> None:
    own = route("/{id}")
    for context in (
        Thing(original_route=own, starlette_route=None, path="/api/{id}"),
        Thing(original_route=own, starlette_route=route("/api/{id}"), path="/wrong"),
    ):
        assert find(route=own, fastapi={"effective_route_context": context}) == "/api/{id}"
    other = Thing(original_route=route("/elsewhere"), starlette_route=None, path="/wrong")
    assert find(route=own, fastapi={"effective_route_context": other}) == "/{id}"


def below(asked: str, *routes: Any, inner: Any = None, base: str = "") -> str | None:
    return find(
        route=inner or route("/{id}"),
        app_root_path=base,
        root_path=base + asked,
        router=Thing(routes=list(routes)),
    )


def test_mounts() -> None:
    tree = (
        route("/m/{x}"),
        mount("/static"),
        mount("/m/{org}", mount("/deep", route("/{id}")), route("/{id}")),
        Thing(routes=[mount("/hosted", route("/{id}"))]),  # a host
    )
    assert below("", *tree) == "/{id}"
    assert below("/m/acme", *tree) == "/m/{org}/{id}"
    assert below("/m/acme/deep", *tree) == "/m/{org}/deep/{id}"
    assert below("/m/acme/deep", *tree, base="/proxy") == "/m/{org}/deep/{id}"
    assert below("/hosted", *tree) == "/hosted/{id}"
    assert below("/who/knows", *tree) == "/{mount}/{id}"
    assert below("/static", *tree, inner=tree[1]) == "/static/{path}"
    assert find(route=tree[1]) == "/static/{path}"


def test_what_was_asked_for_is_remembered_only_so_long() -> None:
    templates = Templates()
    router = Thing(routes=[mount("/m/{org}", route("/{id}"))])
    for n in range(5000):
        scope = {
            "type": "http",
            "route": router.routes[0].routes[0],
            "app_root_path": "",
            "root_path": f"/m/{n}",
            "router": router,
        }
        assert templates.find(scope) == "/m/{org}/{id}"
    assert len(templates._prefixes) <= 1024


def test_an_older_starlette_says_only_the_endpoint() -> None:
    def other() -> None: ...

    app = object()
    router = Thing(
        routes=[
            Thing(path="/host"),
            route("/a/{x}", at=other),
            route("/{any}/{x:int}"),
            mount("/m", route("/b/{y}")),
            mount("/files", app=app),
        ]
    )
    assert find(path="/a/5", endpoint=other, router=router) == "/a/{x}"
    assert find(path="/a/5", endpoint=endpoint, router=router) == "/{any}/{x}"
    assert find(path="/m/b/5", endpoint=endpoint, router=router) == "/m/b/{y}"
    assert find(path="/p/m/b/5", app_root_path="/p", endpoint=endpoint, router=router) == "/m/b/{y}"
    assert find(path="/files/x/y", endpoint=app, router=router) == "/files/{path}"
    assert find(path="/a/5", endpoint=object(), router=router) is None
