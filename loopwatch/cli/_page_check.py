"""Whether what a page says is what src/status/content.c would write. Its check sum tells only that it is whole, not
who wrote it: no reader must fail on one that somebody else made up."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from loopwatch import _page
from loopwatch._page import Page, PageError
from loopwatch._sound import numbers, text, whole

_MOST: Final = (1 << 63) - 1
"""Of any number: of nanoseconds, 292 years."""
_TOTALS: Final = ("turns", "busy", "idle", "gil_wait")

_whole = functools.partial(whole, least=0, most=_MOST)
_numbers = functools.partial(numbers, least=0, most=_MOST)


def read(path: Path) -> Page:
    """OSError where it cannot be read, PageError where it is no page."""
    return sound(_page.read(path))


def sound(page: Page) -> Page:
    """The page. PageError where it is none of loopwatch."""
    try:
        _head(page.head)
        if page.body != {}:
            _body(page.body)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise PageError(f"{page.path} is not a status page of loopwatch: {problem!r}") from problem
    return page


def _head(head: Mapping[str, Any]) -> None:
    _whole(head["pid"], head["created"])
    if head["start"] is not None:  # where there is no /proc
        _whole(head["start"])
    for parent, start in _list(head.get("ancestors", [])):
        _whole(parent, start)
    text(head["python"], head["loopwatch"], *_list(head["argv"]))


def _body(body: Mapping[str, Any]) -> None:
    _whole(body["at"], body["wall"], body.get("more_loops", 0))
    for loop in _list(body["loops"]):
        _loop(loop)
    for stall in _list(body["stalls"]):
        _stall(stall)
        _whole(stall["end"])
    for stall in _list(body["current"]):
        _stall(stall)
        _whole(stall["seen"], *dict.values(stall["causes"]))
        text(stall.get("stack", ""))
    for it in _list(body.get("executors") or []):
        text(it["name"])
        _numbers(it[name] for name in ("at", "waited", "busy", "workers", "queued"))


def _loop(loop: Mapping[str, Any]) -> None:
    _whole(loop["key"], loop["stalls"])
    text(loop["pulse"], loop.get("thread", ""), loop.get("phase", ""))
    _whole(*(loop[name] for name in _TOTALS if name in loop))
    if "recent" in loop:
        recent = loop["recent"]
        _numbers([recent["seconds"]])
        _whole(recent["worst"], *(recent[name] for name in (*_TOTALS, "waiting_p99", "gc") if name in recent))


def _stall(stall: Mapping[str, Any]) -> None:
    _whole(stall["id"], stall["key"], stall["begin"])
    text(stall["verdict"], stall.get("task", ""))
    if "function" in stall:
        text(stall["function"], stall["file"])
        if isinstance(stall["line"], bool) or not isinstance(stall["line"], int):
            raise ValueError("a line is a number")


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"a list was expected, not {type(value).__name__}")
    return value
