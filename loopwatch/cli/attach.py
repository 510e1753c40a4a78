"""loopwatch attach: watch the event loops of a process that runs already."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from loopwatch._text import counted, printable
from loopwatch.cli import add_command
from loopwatch.cli._durations import duration, threshold_time
from loopwatch.cli._say import say

EXAMPLES = """\
  loopwatch attach 4242
  loopwatch attach 4242 --threshold 50ms --report /tmp/stalls.jsonl
  loopwatch top 4242
  loopwatch detach 4242

Both sides need the same Python, 3.14 or newer, and the process must be able to import loopwatch. It acts when the
process's main thread runs Python the next time. Nothing is restarted; stalls go to the process's logger "loopwatch".
"""

_COMMAND_WIDTH: Final = 120
_SUFFIX: Final = ".jsonl"
_ANSWER: Final = {"loops": int, "failures": int, "version": str}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands, "attach", run, summary="watch the event loops of a process that runs", examples=EXAMPLES
    )
    command.add_argument("pid", type=int, metavar="PID")
    command.add_argument(
        "--threshold", type=threshold_time, metavar="TIME", help="what counts as a stall (default: 100ms)"
    )
    command.add_argument(
        "--report",
        type=_report_path,
        metavar="FILE.jsonl",
        help="append what is seen to this file, as JSON lines",
    )
    add_wait(command)


def _report_path(text: str) -> Path:
    """run makes other formats at the end of the program, which nobody here waits for."""
    if not text.lower().endswith(_SUFFIX):
        raise argparse.ArgumentTypeError(
            f"it is appended to as JSON lines, so its name must end in {_SUFFIX}, not {Path(text).name!r}; "
            f"loopwatch report makes the other formats of it"
        )
    return Path(text)


def add_wait(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--wait", type=duration, default=10.0, metavar="TIME", help="for the process to act (default: 10s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _remote

    report = None if arguments.report is None else str(arguments.report.absolute())
    try:
        done = _remote.call(
            arguments.pid, "attach", arguments.wait, _ANSWER, threshold=arguments.threshold, report=report
        )
    except (_remote.RemoteError, OSError) as problem:
        say(f"loopwatch attach: {problem}")
        return 1
    for line in _told(arguments.pid, done):
        print(line)
    print(f"live: loopwatch top {arguments.pid}; to end it: loopwatch detach {arguments.pid}")
    return 0


def _told(pid: int, done: Mapping[str, Any]) -> Iterator[str]:
    from loopwatch.cli import _pythons

    version = printable(done["version"])
    if done["loops"]:
        number = counted(done["loops"], "event loop")
        yield f"process {pid}: {number} watched, and each that begins to run (loopwatch {version})"
    else:
        yield (
            f"process {pid}: no event loop was found that runs there; each that begins to run is watched "
            f"(loopwatch {version})"
        )
    if done["failures"]:
        yield f"{done['failures']} could not be watched: its standard error says why"
    if not done["loops"] and (children := _pythons.below(pid)):
        yield "its loops may be in the processes below it; those that are Python, each to be attached to by itself:"
        for child, command in children.items():
            yield printable(f"  {child}  {command}")[:_COMMAND_WIDTH]
