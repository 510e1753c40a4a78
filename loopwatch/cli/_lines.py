"""`loopwatch top` without a terminal: a line a second, and each stall's stack once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from loopwatch._page import Page
from loopwatch.cli import _pages

_LINE_SECONDS: Final = 1.0
_END_SECONDS: Final = 2.0
"""From the moment at which a process takes its page along until it is gone."""

LOST: Final = "has no status page any more: it is not watched with one"


def follow(page: Page, every: float) -> int:
    """Until the process is gone. The exit status."""
    shown: set[int] = set()
    known = {stall["id"] for stall in page.body.get("stalls", ())}
    due = 0.0
    lost_at: float | None = None
    try:
        while True:
            now = _pages.moment(page, lost=lost_at is not None)
            if page.body and now.written and time.monotonic() >= due:
                due = time.monotonic() + _LINE_SECONDS
                _say(_summary(page, now))
            _say(_stalls(page, now, shown, known))
            if not now.alive:
                _say([f"process {page.pid} is gone"])
                return 0
            if lost_at is not None and time.monotonic() - lost_at > _END_SECONDS:
                _say([f"process {page.pid} {LOST}"])
                return 0
            time.sleep(every)
            new = reread(page)
            page = new or page
            lost_at = None if new else lost_at or time.monotonic()
    except KeyboardInterrupt:
        return 0


def reread(page: Page) -> Page | None:
    """The page as it is now. None: there is none any more, whether its process has ended or is no longer watched."""
    try:
        return _pages.read(page.path)
    except (OSError, ValueError):
        return None


def _say(lines: Iterator[str] | list[str]) -> None:
    for line in lines:
        print(f"{datetime.now().astimezone():%H:%M:%S} {line}", flush=True)


def _summary(page: Page, now: _pages.Now) -> Iterator[str]:
    for loop in page.body["loops"]:
        row = _pages.loop_row(loop, page, now)
        yield (
            f"{row.thread}: {row.state}, busy {row.busy}, worst turn {row.worst}, waits p99 {row.waiting}, "
            f"gc {row.gc}, stalls {row.stalls}"
        )
    for stall in page.body["current"]:
        yield f"{_pages.thread_of(stall, page.body)}: {_pages.current_line(stall, now)}"


def _stalls(page: Page, now: _pages.Now, shown: set[int], known: set[int]) -> Iterator[str]:
    """The stack of a stall that began, and a line for each that has ended."""
    for stall in page.body.get("current", ()):
        if stall["id"] not in shown and "stack" in stall:
            shown.add(stall["id"])
            yield f"{_pages.thread_of(stall, page.body)}: {_pages.current_line(stall, now)}"
            yield from _pages.stack_lines(stall, page)
    for stall in reversed(page.body.get("stalls", ())):
        if stall["id"] not in known:
            known.add(stall["id"])
            yield f"ended: {_pages.past_line(stall, page)}"
