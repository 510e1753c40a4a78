"""loopwatch doctor: what works here and why not, and a stall of each kind to see that its verdict is right."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING

from loopwatch.cli import add_command

if TYPE_CHECKING:
    from loopwatch._doctor import Report

EXAMPLES = """\
  loopwatch doctor
  loopwatch doctor --quick
  loopwatch doctor --json > doctor.json

The exit status is 0 where every verdict that this system can tell came out right. What it cannot tell is listed
with its reason.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands,
        "doctor",
        run,
        summary="say what works here and why not, and test it on a stall of each kind",
        examples=EXAMPLES,
    )
    command.add_argument(
        "--quick", action="store_true", help="without the stalls, which take about ten seconds"
    )
    command.add_argument("--json", action="store_true", help="as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _selftest

    report = look()
    outcomes: list[_selftest.Outcome] = []
    if not arguments.json:
        print(report)
    if not arguments.quick:
        if not arguments.json:
            print("\nA stall of each kind, each in a process of its own:", flush=True)
        for outcome in _selftest.run():
            outcomes.append(outcome)
            # Where standard output waits for the whole, this tells that something happens.
            print(outcome, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    right = all(outcome.result != "wrong" for outcome in outcomes)
    if arguments.json:
        told = {"ok": right, "self_test": [outcome.to_dict() for outcome in outcomes]}
        print(json.dumps(report.to_dict() | told, indent=2))
    return 0 if right else 1


def look() -> Report:
    """doctor() beside a loop that is watched: what the watchdog reads is known only while there is one."""
    import loopwatch
    from loopwatch._doctor import Check, Report

    async def watched() -> Report:
        with loopwatch.install(log=False, dump_to=False, status=False):
            return loopwatch.doctor()

    try:
        return asyncio.run(watched())
    except (OSError, RuntimeError, ValueError) as problem:
        report = loopwatch.doctor()
        return Report(
            (*report.checks, Check("own loop", False, f"cannot be watched: {problem}")), report.facts
        )
