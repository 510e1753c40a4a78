"""loopwatch detach: take off what attach put on."""

from __future__ import annotations

import argparse
from typing import Final

from loopwatch.cli import add_command
from loopwatch.cli._say import say
from loopwatch.cli.attach import add_wait

EXAMPLES = """\
  loopwatch detach 4242
"""

_ANSWER: Final = {"attached": bool, "left": int}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands, "detach", run, summary="end what attach began, and leave nothing of it", examples=EXAMPLES
    )
    command.add_argument("pid", type=int, metavar="PID")
    add_wait(command)


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _remote

    try:
        done = _remote.call(arguments.pid, "detach", arguments.wait, _ANSWER)
    except (_remote.RemoteError, OSError) as problem:
        say(f"loopwatch detach: {problem}")
        return 1
    if not done["attached"]:
        say(f"loopwatch detach: nothing was attached to process {arguments.pid}")
        return 1
    left = f"; {done['left']} watched by the program itself" if done["left"] else ""
    print(f"process {arguments.pid}: detached{left}")
    return 0
