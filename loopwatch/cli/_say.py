"""What a command says beside its output, on standard error: where that is closed or full, nothing comes of it."""

from __future__ import annotations

import os
import sys


def say(line: str, end: str = "\n") -> None:
    if sys.stderr is None:
        return
    try:
        print(line, end=end, file=sys.stderr, flush=True)
    except OSError:
        give_up(2)


def give_up(descriptor: int) -> None:
    """What is still buffered for it would fail again at exit, and change the exit status."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)
