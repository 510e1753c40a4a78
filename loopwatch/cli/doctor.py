"""loopwatch doctor: what works here and why not, and a stall of each kind to see that its verdict is right."""

from __future__ import annotations

import argparse
import json
import sys

from loopwatch.cli import add_command

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
    from loopwatch import doctor
    from loopwatch.cli import _selftest

    report = doctor()
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
