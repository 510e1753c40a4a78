"""Which status pages there are: a line for each, and one more for each loop that is blocked, or was at the end."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from datetime import datetime

from loopwatch._page import Page
from loopwatch._text import printable
from loopwatch.cli import _pages

_TITLE = f"{'PID':>8}  {'last written':19}  {'state':7}  command"
_INDENT = " " * 10


def lines(pages: Iterable[Page]) -> Iterator[str]:
    yield _TITLE
    for page in pages:
        now = _pages.moment(page)
        written = datetime.fromtimestamp(page.written_ns / 1e9).astimezone()
        state = "stopped" if now.stopped else "runs" if now.alive else "gone"
        yield printable(
            f"{page.pid:>8}  {written:%Y-%m-%d %H:%M:%S}  {state:7}  {_pages.command_of(page)}{_whose(page)}"
        )
        for stall in page.body.get("current", ()):
            yield _INDENT + (_pages.current_line(stall, now) if now.alive else _pages.last_line(stall))


def _whose(page: Page) -> str:
    """Root sees everybody's; another's is shown by its path."""
    if page.owner == os.geteuid():
        return ""
    try:
        name = pwd.getpwuid(page.owner).pw_name
    except KeyError:
        name = str(page.owner)
    return f"  ({name}'s: {page.path})"
