"""What tells a process from an earlier one with its number: in a container the first process is always number 1."""

from __future__ import annotations

import os
from typing import NamedTuple

from loopwatch._clock import date


class Process(NamedTuple):
    pid: int
    started: str
    """As process_started() has it; "": not known."""


_known = os.getpid(), date().isoformat()


def process_started() -> str:
    """When this process began to use loopwatch, as text; a forked child did so after its fork. The same at each call,
    also where the clock was set."""
    global _known
    if _known[0] != os.getpid():
        _known = os.getpid(), date().isoformat()
    return _known[1]
