"""The command line: `loopwatch` and `python -m loopwatch`.

Each command is a module of this package with `add(commands)`, which adds its parser and sets `run` to what takes
the parsed arguments and returns the exit status. What a command needs beyond the core it imports when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from loopwatch import _core
from loopwatch.cli._say import give_up, say

COMMANDS: Final = ("run", "top", "post", "attach", "detach", "report", "doctor")
"""In the order of the help."""

USAGE_ERROR: Final = 2


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="loopwatch",
        description="Who froze the asyncio event loop, and where did the time go?",
        epilog="loopwatch COMMAND --help shows examples of each.",
    )
    whole.add_argument("--version", action="version", version=f"loopwatch {_core.VERSION}")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"loopwatch.cli.{name}").add(commands)
    return whole


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    examples: str,
) -> argparse.ArgumentParser:
    """A command's parser, its help ending with examples."""
    command = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status. A usage error exits with 2, as argparse does."""
    whole = parser()
    parsed = whole.parse_args(arguments)
    if not hasattr(parsed, "run"):  # no command was named
        whole.exit(USAGE_ERROR, whole.format_help())
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        status = run(parsed)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # `| head` has seen enough
        pass
    except OSError as problem:  # of the output, or unforeseen
        say(f"loopwatch: {problem}")
    except KeyboardInterrupt:  # it ends as other programs do
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    give_up(1)
    return 1
