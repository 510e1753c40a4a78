"""Programs that stall as stalling.py says, each by itself, and what was reported of them.

What a program computes is measured in CPU time and run before the others, so that a busy machine does not turn it
into a wait for a CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import run_program

HEAD = """
import asyncio, os, sys, time
import loopwatch
from stalling import *
"""


def stalls_of(source: str, *args: str | Path, **options: Any) -> list[dict[str, Any]]:
    """What was reported of each block of a program, each with the promises that hold for all of them."""
    facts = run_program(HEAD + source, *args, **options).check()
    assert None not in facts["stalls"], facts
    for stall in facts["stalls"]:
        keeps_promises(stall)
    stalls: list[dict[str, Any]] = facts["stalls"]
    return stalls


def keeps_promises(stall: dict[str, Any]) -> None:
    breakdown = stall["breakdown"]
    assert sum(breakdown.values()) == pytest.approx(stall["duration"], abs=0.001)
    assert breakdown[stall["verdict"]] == max(breakdown.values())
