"""Which page a process id means. `loopwatch run` and the master of a pre-fork server have none of their own, or one
without a loop: the pages of the processes below them are meant, also after all of these were killed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from loopwatch import _page
from loopwatch._page import Page
from loopwatch.cli import _page_check

_DEPTH_MAX: Final = 8


def page_of_process(pid: int) -> Path:
    """FileNotFoundError, or ValueError where several are meant."""
    try:
        own = _page.find(pid)
    except FileNotFoundError as problem:
        own, why = None, str(problem)
    if own is not None and _has_loops(own):
        return own
    family: Mapping[int, Path] = _living_pages(pid) or _noted_pages(pid)
    meant: Mapping[int, Path] = {
        child: path for child, path in family.items() if path != own and _has_loops(path)
    }
    if own is None:
        meant = meant or family
    if len(meant) > 1:
        numbers = ", ".join(map(str, meant))
        raise ValueError(
            f"process {pid} has no loop of its own; several of its children have a status page: {numbers}"
        )
    if meant:
        return next(iter(meant.values()))
    if own is None:
        raise FileNotFoundError(why)
    return own


def descendants(pid: int, depth: int = 0) -> Iterator[int]:
    if depth > _DEPTH_MAX:
        return
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from descendants(child, depth + 1)


def known_pages() -> list[Page]:
    """Those that can be read, as _page.left_in_default_places() has them; the one written last first."""
    pages = [page for path in _page.left_in_default_places() if (page := _page_or_none(path)) is not None]
    return sorted(pages, key=lambda page: -page.written_ns)


def _living_pages(pid: int) -> Mapping[int, Path]:
    found = {}
    for child in descendants(pid):
        try:
            found[child] = _page.find(child)
        except FileNotFoundError:
            continue
    return found


def _noted_pages(pid: int) -> Mapping[int, Path]:
    """Those of ours that name the process as one above theirs; of several that had the number, the last one."""
    starts: dict[int, dict[int, Path]] = {}
    for page in known_pages():
        if page.owner != os.geteuid():
            continue
        for parent, start in page.head.get("ancestors", ()):
            if parent == pid:
                starts.setdefault(start, {})[page.pid] = page.path
    now = _page.process_start(pid)
    return starts.get(max(starts, default=0) if now is None else now, {})


def _page_or_none(path: Path) -> Page | None:
    try:
        return _page_check.read(path)
    except (OSError, ValueError):
        return None


def _has_loops(path: Path) -> bool:
    page = _page_or_none(path)
    return page is None or bool(page.body.get("loops"))
