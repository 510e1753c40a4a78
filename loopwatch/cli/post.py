"""loopwatch post: what the status page of a process that is gone said last, and which pages there are."""

from __future__ import annotations

import argparse
from typing import Final

from loopwatch.cli import add_command
from loopwatch.cli._say import say

EXAMPLES = """\
  loopwatch post
  loopwatch post 4242
  loopwatch post /run/app/page

The number of `loopwatch run`, or of a pre-fork master, stands for its processes. Without one the pages are listed.
"""

PAGE_HELP: Final = "the process, or its page (install(status=PATH))"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        "post",
        run,
        summary="show what the status page of a process said last, also of one that was killed",
        examples=EXAMPLES,
    )
    command.add_argument(
        "page", nargs="?", metavar="PID|PATH", help=f"{PAGE_HELP}; without it: which pages there are"
    )


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _pages

    if arguments.page is None:
        return _list()
    page = _pages.asked_for(arguments.page, "post")
    if page is None:
        return 1
    print("\n".join(_pages.report(page)))
    return 0


def _list() -> int:
    from loopwatch.cli import _families, _page_list

    pages = _families.known_pages()
    if not pages:
        say("loopwatch post: no process has left a status page, or keeps one")
        return 1
    print("\n".join(_page_list.lines(pages)))
    return 0
