"""loopwatch post: what the status page of a process that is gone said last."""

from __future__ import annotations

import argparse

from loopwatch.cli import add_command

EXAMPLES = """\
  loopwatch post 4242
  loopwatch post /run/app/page
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        "post",
        run,
        summary="show what the status page of a process said last, also of one that was killed",
        examples=EXAMPLES,
    )
    add_page(command)


def add_page(command: argparse.ArgumentParser) -> None:
    command.add_argument("page", metavar="PID|PATH", help="the process, or its page (install(status=PATH))")


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _pages

    page = _pages.asked_for(arguments.page, "post")
    if page is None:
        return 1
    print("\n".join(_pages.report(page)))
    return 0
