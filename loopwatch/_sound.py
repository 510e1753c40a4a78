"""Whether a value that another process wrote is of the kind that it should be. ValueError where it is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def text(*values: object) -> None:
    for value in values:
        if not isinstance(value, str):
            raise _wrong("text", value)


def whole(*values: object, least: float, most: float) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _wrong("a whole number", value)


def numbers(values: Iterable[object], *, least: float, most: float) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise _wrong("a number", value)


def _wrong(expected: str, value: Any) -> ValueError:
    return ValueError(f"{expected} was expected, not {value!r:.80}")
