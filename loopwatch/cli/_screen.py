"""`loopwatch top` on a terminal, drawn with rich on the alternate screen."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from loopwatch._page import Page
from loopwatch.cli import _pages
from loopwatch.cli._lines import LOST, reread

_FOOTER: Final = "q quit   p pause   s stack on/off"
_WIDTHS: Final = (15, 13, 6, 12, 11, 8, 8, 7)  # 80 columns
_PAST_SHOWN: Final = 5
_PAST_TITLE: Final = 2
"""Lines above them."""
_STACK_ROOM: Final = 6


@dataclass
class View:
    """What the keys have chosen."""

    paused: bool = False
    stack: bool = True
    ended: bool = False

    def press(self, key: str) -> None:
        if key == "p":
            self.paused = not self.paused
        elif key == "s":
            self.stack = not self.stack
        elif key in ("q", "Q", "\x03", "\x04", ""):
            self.ended = True


def follow(page: Page, every: float) -> int:
    """Until a key ends it, or the terminal is gone; a process that is gone is shown as it was last."""
    try:
        page = _follow(page, every)
        # On the terminal's own screen: something stays.
        print(_pages.title(page, _pages.moment(page)), flush=True)
    except OSError:
        if _terminal_is_there():
            raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())  # for what is in its buffer: the interpreter flushes it at its end
        os.close(null)
    return 0


def _terminal_is_there() -> bool:
    try:
        termios.tcgetattr(sys.stdin.fileno())
    except termios.error:
        return False
    return True


def _follow(page: Page, every: float) -> Page:
    """What it said last."""
    console = Console()
    view = View()
    lost = False
    with keys() as descriptor, Live(console=console, screen=True, auto_refresh=False) as live:
        while not view.ended:
            now = _pages.moment(page, lost=lost)
            with contextlib.suppress(OSError):  # rich would believe COLUMNS and LINES, which do not change
                console.size = ConsoleDimensions(*os.get_terminal_size(sys.stdout.fileno()))
            live.update(draw(page, now, view, console.width, console.height), refresh=True)
            if (pressed := _wait_for_key(descriptor, every)) is not None:
                view.press(pressed)
            if not view.paused:
                new = reread(page)
                page, lost = new or page, new is None
    return page


def _wait_for_key(descriptor: int, every: float) -> str | None:
    """Each key; "" where the terminal is gone."""
    try:
        ready, _, _ = select.select([descriptor], [], [], every)
        return os.read(descriptor, 1).decode(errors="replace") if ready else None
    except InterruptedError:
        return None
    except OSError:
        return ""


@contextlib.contextmanager
def keys() -> Iterator[int]:
    """Standard input, a key at a time."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    except KeyboardInterrupt:
        pass
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


# --- the picture ---


def draw(page: Page, now: _pages.Now, view: View, width: int, height: int) -> Text:
    """Exactly `height` lines of at most `width` columns. Of a stack that does not fit, the end stays."""
    state = "" if now.alive else "  [gone]"
    top = [_line(f"{_pages.title(page, now)}{state}", width, "bold")]
    notes = ["paused"] * view.paused + [LOST] * (now.alive and not now.stopped and not now.written)
    if not now.written:
        notes.append(_pages.written_line(page))
    top.append(_line("   ".join([time.strftime("%H:%M:%S"), *notes]), width, "dim"))
    top += _loops(page, now, width)
    stacks = _current(page, now, view, width)
    past = _past(page, width)
    footer = _line(_FOOTER, width, "reverse")
    room = height - len(top) - len(past) - 1
    if stacks and room < _STACK_ROOM:  # the stall that goes on matters more
        past = past[: max(0, len(past) - (_STACK_ROOM - room))]
        if len(past) <= _PAST_TITLE:
            past = []
        room = height - len(top) - len(past) - 1
    lines = [*top, *_cut_middle(stacks, max(0, room)), *past][: height - 1]
    lines += [Text("")] * (height - 1 - len(lines))
    return Text("\n", no_wrap=True, overflow="crop", end="").join([*lines, footer])


def _line(text: str, width: int, style: str = "") -> Text:
    line = Text(text, style=style, no_wrap=True, end="")
    line.truncate(width, overflow="ellipsis")
    return line


def _columns(width: int) -> list[slice]:
    """Those of a line, and those of the next ones, where the terminal is too narrow for all."""
    groups, begin, used = [], 0, 0
    for column, wide in enumerate(_WIDTHS):
        if used + wide > width and column > begin:
            groups.append(slice(begin, column))
            begin, used = column, 0
        used += wide
    return [*groups, slice(begin, len(_WIDTHS))]


def _cells(row: _pages.LoopRow, width: int) -> list[str]:
    values = [getattr(row, field.name) for field in fields(row)]
    cells = [
        f"{values[0][: _WIDTHS[0] - 1]:{_WIDTHS[0]}}",
        f"{values[1]:{_WIDTHS[1]}}",
        *(f"{value:>{wide}}" for value, wide in zip(values[2:], _WIDTHS[2:], strict=True)),
    ]
    return ["".join(cells[group]) for group in _columns(width)]


def _loops(page: Page, now: _pages.Now, width: int) -> list[Text]:
    loops = page.body.get("loops", ())
    if not loops:
        return [Text(""), *(_line(line, width) for line in _pages.no_loop_lines(page, now))]
    stalled = {stall["key"] for stall in page.body["current"]}
    lines = [Text(""), *(_line(line, width, "bold") for line in _cells(_pages.LOOP_TITLES, width))]
    for loop in loops:
        style = "bold red" if loop["key"] in stalled else ""
        lines += [_line(line, width, style) for line in _cells(_pages.loop_row(loop, page, now), width)]
    if more := page.body.get("more_loops"):
        lines.append(_line(f"and {more} more", width))
    lines += [_line(line, width) for line in _pages.executor_lines(page, now)]
    return lines


def _current(page: Page, now: _pages.Now, view: View, width: int) -> list[Text]:
    lines: list[Text] = []
    for stall in page.body.get("current", ()):
        thread = _pages.thread_of(stall, page.body)
        lines += [Text(""), _line(f"{thread}: {_pages.current_line(stall, now)}", width, "bold red")]
        if causes := _pages.causes_line(stall):
            lines.append(_line(f"  {causes}", width))
        if view.stack:
            lines += [_line(line, width) for line in _pages.stack_lines(stall, page)]
    return lines


def _cut_middle(lines: list[Text], room: int) -> list[Text]:
    """The headline, and the end of the stack."""
    if len(lines) <= room:
        return lines
    kept = max(0, room - 4)
    return [*lines[:3], Text("  ..."), *lines[len(lines) - kept :]][:room]


def _past(page: Page, width: int) -> list[Text]:
    stalls = _pages.past(page)[:_PAST_SHOWN]
    if not stalls:
        return []
    return [
        Text(""),
        _line("Last stalls", width, "bold"),
        *(_line(f"  {_pages.past_line(stall, page)}", width) for stall in stalls),
    ]
