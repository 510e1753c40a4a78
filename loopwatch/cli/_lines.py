"""`loopwatch top` without a terminal: a line a second, one for each stall that has ended, and the stack of those that
go on for long."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from loopwatch._page import Page
from loopwatch.cli import _page_check, _pages

_LINE_SECONDS: Final = 1.0
_END_SECONDS: Final = 2.0
"""From the moment at which a process takes its page along until it is gone."""

_LONG_NS: Final = 1_000_000_000
"""From this age on a stall that goes on is told; of a shorter one, that it has ended."""

LOST: Final = "has no status page any more: it is not watched with one"


def follow(page: Page, every: float) -> int:
    """Until the process is gone. The exit status."""
    told = Told(page)
    due = 0.0
    lost_at: float | None = None
    try:
        while True:
            now = _pages.moment(page, lost=lost_at is not None)
            _say(told.ended(page))
            if time.monotonic() >= due and now.written:
                due = time.monotonic() + _LINE_SECONDS
                _say([*_summary(page, now), *told.going_on(page, now)])
            if not now.alive:
                if lost_at is None:  # it was killed: in order it takes its page along
                    _say([*told.going_on(page, now), _pages.written_line(page)])
                _say([f"process {page.pid} is gone"])
                return 0
            if lost_at is not None and time.monotonic() - lost_at > _END_SECONDS:
                _say([f"process {page.pid} {LOST}"])
                return 0
            _say(told.stop(page, now))
            time.sleep(every)
            new = reread(page)
            page = new or page
            lost_at = None if new else lost_at or time.monotonic()
    except KeyboardInterrupt:
        return 0


def reread(page: Page) -> Page | None:
    """The page as it is now. None: there is none any more, whether its process has ended or is no longer watched."""
    try:
        return _page_check.read(page.path)
    except (OSError, ValueError):
        return None


def _say(lines: Iterator[str] | list[str]) -> None:
    for line in lines:
        print(f"{datetime.now().astimezone():%H:%M:%S} {line}", flush=True)


def _summary(page: Page, now: _pages.Now) -> Iterator[str]:
    for loop in page.body.get("loops", ()):
        row = _pages.loop_row(loop, page, now)
        yield (
            f"{row.thread}: {row.state}, busy {row.busy}, worst turn {row.worst}, waits p99 {row.waiting}, "
            f"gc {row.gc}, stalls {row.stalls}"
        )
    yield from _pages.no_loop_lines(page, now)


class Told:
    """What has been said already."""

    def __init__(self, page: Page) -> None:
        self._ended = {stall["id"] for stall in page.body.get("stalls", ())}
        self._places: set[tuple[Any, ...]] = set()
        self._stopped = False

    def ended(self, page: Page) -> Iterator[str]:
        """A line for each."""
        for stall in reversed(_pages.past(page)):
            if stall["id"] not in self._ended:
                self._ended.add(stall["id"])
                yield f"ended: {_pages.past_line(stall, page)}"

    def going_on(self, page: Page, now: _pages.Now) -> Iterator[str]:
        """Those that take long, or that their process died in; the stack once a place."""
        for stall in page.body.get("current", ()):
            if now.written and _pages.age_ns(stall) < _LONG_NS:
                continue
            yield f"{_pages.thread_of(stall, page.body)}: {_pages.current_line(stall, now)}"
            place = _place(stall)
            if "stack" in stall and place not in self._places:
                self._places.add(place)
                yield from _pages.stack_lines(stall, page)

    def stop(self, page: Page, now: _pages.Now) -> Iterator[str]:
        """That it is stopped, once, and with what it was doing."""
        if now.stopped and not self._stopped:
            yield from self.going_on(page, now)
            yield f"process {page.pid} is stopped: {_pages.written_line(page)}"
        self._stopped = now.stopped


def _place(stall: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(stall.get(name) for name in ("file", "function"))
