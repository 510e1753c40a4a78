"""The clocks, also where the program has put others in the place of time's: a test that freezes or mocks time."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

# Not names of a module: what freezes time replaces those in every module.
_CLOCKS: Final = (time.monotonic_ns, time.time_ns, datetime.now)


def monotonic_ns() -> int:
    return _CLOCKS[0]()


def monotonic() -> float:
    return _CLOCKS[0]() / 1e9


def wall_ns() -> int:
    """Since the epoch."""
    return _CLOCKS[1]()


def wall() -> float:
    return _CLOCKS[1]() / 1e9


def date() -> datetime:
    """With its time zone."""
    return _CLOCKS[2](UTC)
