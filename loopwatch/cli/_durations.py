"""Lengths of time as people write them: 200ms, 1.5s, 2m, or plain seconds. The pytest plugin takes them too."""

from __future__ import annotations

import argparse
import math
import re
from typing import Final

from loopwatch._options import THRESHOLD_MAX, THRESHOLD_MIN

_UNITS: Final = {
    "": 1.0, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0
}  # fmt: skip
_PATTERN: Final = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zµ]*)\s*")
THRESHOLDS: Final = (
    f"a length of time from {THRESHOLD_MIN * 1000:g}ms to {THRESHOLD_MAX / 3600:g}h, as 50ms, 0.05s or 0.05"
)


def seconds(text: str) -> float:
    """ValueError where it is no length of time."""
    found = _PATTERN.fullmatch(text.lower())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"must be a length of time, as 200ms or 1.5s, not {text!r}")
    return float(found[1]) * _UNITS[found[2]]


def is_threshold(value: float) -> bool:
    """Whether install() takes it."""
    return THRESHOLD_MIN <= value <= THRESHOLD_MAX


# --- for argparse ---


def duration(text: str) -> float:
    """More than nothing."""
    try:
        value = seconds(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a length of time, as 200ms or 1.5s, not {text!r}")
    return value


def threshold_time(text: str) -> float:
    """Of a stall."""
    try:
        value = seconds(text)
    except ValueError:
        value = math.nan
    if not is_threshold(value):
        raise argparse.ArgumentTypeError(f"must be {THRESHOLDS}, not {text!r}")
    return value
