"""loopwatch top: a process's loops and the stall that goes on, live, from its status page."""

from __future__ import annotations

import argparse
import sys

from loopwatch.cli import add_command
from loopwatch.cli._durations import duration
from loopwatch.cli._say import say
from loopwatch.cli.post import PAGE_HELP

EXAMPLES = """\
  loopwatch top 4242
  loopwatch top 4242 --every 100ms
  loopwatch top 4242 > lines.txt

The process needs a status page: `loopwatch run`, `loopwatch attach`, or install(status=True).
Keys: q quit, p pause, s stack on or off. Plain lines where standard output is no terminal.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        "top",
        run,
        summary="show a process's loops and the stall that goes on, live",
        examples=EXAMPLES,
    )
    command.add_argument("page", metavar="PID|PATH", help=PAGE_HELP)
    command.add_argument(
        "--every", type=duration, default=0.25, metavar="TIME", help="between two looks (default: 250ms)"
    )


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _lines, _pages

    page = _pages.asked_for(arguments.page, "top")
    if page is None:
        return 1
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        return _lines.follow(page, arguments.every)
    try:
        from loopwatch.cli import _screen
    except ImportError as problem:
        say(f"loopwatch top: {problem}: pip install 'loopwatch[cli]'; plain lines instead")
        return _lines.follow(page, arguments.every)
    return _screen.follow(page, arguments.every)
