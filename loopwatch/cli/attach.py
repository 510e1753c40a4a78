"""loopwatch attach: watch the event loops of a process that runs already."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from loopwatch._text import counted, printable
from loopwatch.cli import add_command
from loopwatch.cli._durations import duration, threshold_time

EXAMPLES = """\
  loopwatch attach 4242
  loopwatch attach 4242 --threshold 50ms --report /tmp/stalls.jsonl
  loopwatch top 4242
  loopwatch detach 4242

Both sides need the same Python, 3.14 or newer, and the process must be able to import loopwatch. It acts when the
process's main thread runs Python the next time. Nothing is restarted; stalls go to the process's logger "loopwatch".
"""

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
        "--report", type=Path, metavar="FILE.jsonl", help="append what is seen to this file, as JSON lines"
    )
    add_wait(command)


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
        print(f"loopwatch attach: {problem}", file=sys.stderr)
        return 1
    number, version = counted(done["loops"], "event loop"), printable(done["version"])
    print(f"process {arguments.pid}: {number} watched, and each that begins to run (loopwatch {version})")
    if done["failures"]:
        print(f"{done['failures']} could not be watched: its standard error says why")
    print(f"live: loopwatch top {arguments.pid}; to end it: loopwatch detach {arguments.pid}")
    return 0
