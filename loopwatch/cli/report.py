"""loopwatch report: one report of the JSON lines of any number of processes."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from loopwatch._text import counted
from loopwatch.cli import USAGE_ERROR, add_command

EXAMPLES = """\
  loopwatch report loopwatch.jsonl
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
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write FILE.html, FILE.speedscope.json or FILE.jsonl (default: a summary to standard output)",
    )


def run(arguments: argparse.Namespace) -> int:
    from loopwatch import report
    from loopwatch.report.text import summary

    progress = Progress()
    try:
        if arguments.output is None:
            made = report.load(*arguments.files, progress=progress)
        else:
            made = report.write(arguments.output, *arguments.files, progress=progress)
    except ValueError as problem:
        return _failed(progress, problem, USAGE_ERROR)
    except (OSError, ImportError) as problem:
        return _failed(progress, problem, 1)
    progress.end()
    if arguments.output is None:
        print(summary(made))
        return 0
    for left_out in made.problems[:10]:
        print(left_out, file=sys.stderr)
    without = f"; {counted(made.problem_count, 'line')} left out" if made.problem_count else ""
    print(f"{arguments.output}: {counted(len(made.stalls), 'stall')}{without}")
    return 0


def _failed(progress: Progress, problem: Exception, status: int) -> int:
    progress.end()
    print(f"loopwatch report: {problem}", file=sys.stderr)
    return status


class Progress:
    """On standard error, from the second second on: one line that changes, where that is a terminal."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _QUIET_SECONDS
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def __call__(self, what: str, share: float) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_PAUSE_SECONDS if self._terminal else 10 * _PAUSE_SECONDS)
        begin, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
        print(f"{begin}{what}: {share:.0%}", end=end, file=sys.stderr, flush=True)
        self._shown = True

    def end(self) -> None:
        if self._shown and self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
