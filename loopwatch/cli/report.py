"""loopwatch report: one report of the JSON lines of any number of processes."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loopwatch._text import counted, printable
from loopwatch.cli import USAGE_ERROR, add_command
from loopwatch.cli._say import say

if TYPE_CHECKING:
    from loopwatch.report import Report

EXAMPLES = """\
  loopwatch report loopwatch.jsonl
  loopwatch report --full loopwatch.jsonl
  loopwatch report loopwatch.jsonl -o report.html
  loopwatch report web-*.jsonl worker.jsonl -o all.html
  loopwatch report loopwatch.jsonl -o stalls.speedscope.json
"""

_QUIET_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.5


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        "report",
        run,
        summary="make one report of the JSON lines of several processes",
        examples=EXAMPLES,
    )
    command.add_argument(
        "files", nargs="+", metavar="FILE.jsonl", help="what loopwatch.jsonl.JsonLines wrote"
    )
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write FILE.html, FILE.speedscope.json or FILE.jsonl (default: a summary to standard output)",
    )
    what.add_argument(
        "--full", action="store_true", help="also the full text of the stalls, the longest first"
    )
    what.add_argument(
        "--stall", type=_rank, metavar="N", help="the full text of one: 1 is the longest, 2 the next"
    )


def run(arguments: argparse.Namespace) -> int:
    from loopwatch import report
    from loopwatch.report.place import check_place, replace

    progress = Progress()
    output = None if arguments.output is None else Path(arguments.output)
    suffix = ""
    try:
        if output is not None:
            suffix = report.check(output)
            check_place(output)
    except ImportError as problem:
        return _failed(progress, problem, 1)
    except (OSError, ValueError) as problem:
        return _failed(progress, getattr(problem, "strerror", None) or problem, USAGE_ERROR)
    try:
        made = report.load(*arguments.files, progress=progress)
        if made.not_lines:
            return _failed(progress, f"{made.not_lines[0]} is not a file of JSON lines of loopwatch", 1)
        if output is None:
            progress.end()
            return _print(made, arguments)
        progress("writing", 0.0)
        replace(output, report.render(made, suffix))
    except OSError as problem:
        return _failed(progress, problem, 1)
    progress.end()
    for left_out in made.problems[:10]:
        say(left_out)
    without = f"; {counted(made.problem_count, 'line')} left out" if made.problem_count else ""
    print(f"{output}: {counted(len(made.stalls), 'stall')}{without}")
    return 0


def _print(made: Report, arguments: argparse.Namespace) -> int:
    from loopwatch.report import text

    number: int | None = arguments.stall
    if number is None:
        print(text.summary(made))
        if arguments.full and made.stalls:
            print(f"\n\n{text.full(made)}")
    elif number <= len(made.stalls):
        print(text.full_stall(made, number))
    else:
        there = counted(len(made.stalls), "stall")
        say(f"loopwatch report: --stall {number}: there is no such one, of {there}")
        return USAGE_ERROR
    return 0


def _rank(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)


def _failed(progress: Progress, problem: object, status: int) -> int:
    progress.end()
    say(printable(f"loopwatch report: {problem}"))
    return status


class Progress:
    """On standard error, from the second second on: one line that changes, where that is a terminal."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_SECONDS
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown = False

    def __call__(self, what: str, share: float) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_PAUSE_SECONDS if self._terminal else 10 * _PAUSE_SECONDS)
        begin, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
        say(f"{begin}{what}: {share:.0%}", end=end)
        self._shown = True

    def end(self) -> None:
        if self._shown and self._terminal:
            say("\r\x1b[K", end="")
