"""The environment's word: LOOPWATCH=0 switches off, LOOPWATCH_THRESHOLD and its like set defaults."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def _switch(text: str) -> bool:
    word = text.strip().lower()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise ValueError(f"must be 1 or 0, not {text!r}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"must be a number of seconds, not {text!r}") from None


def _hertz(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"must be a number of samples a second, not {text!r}") from None


def _number_or_none(text: str) -> float | None:
    return None if text.strip().lower() == "none" else _number(text)


def _word(text: str) -> str:
    return text.strip().lower()


def _dump_to(text: str) -> str | bool | None:
    word = text.strip().lower()
    if word in _NO:
        return False
    return None if word == "stderr" else text


def _status(text: str) -> str | bool:
    word = text.strip().lower()
    if word in _YES:
        return True
    return False if word in _NO else text


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "threshold": _number,
    "log": _switch,
    "hang_after": _number_or_none,
    "pulse": _word,
    "capture": _word,
    "dump_to": _dump_to,
    "own": _list,
    "ignore": _list,
    "log_every": _number,
    "profile_hz": _hertz,
    "status": _status,
}


def enabled() -> bool:
    """False under LOOPWATCH=0."""
    text = os.environ.get("LOOPWATCH", "")
    try:
        return not text or _switch(text)
    except ValueError as problem:
        raise ValueError(f"environment variable LOOPWATCH: {problem}") from None


def defaults() -> dict[str, tuple[str, object]]:
    """option → (variable, value) for each variable that is set and not empty."""
    found: dict[str, tuple[str, object]] = {}
    for option, parse in _PARSERS.items():
        variable = f"LOOPWATCH_{option.upper()}"
        if text := os.environ.get(variable, ""):
            try:
                found[option] = variable, parse(text)
            except ValueError as problem:
                raise ValueError(f"environment variable {variable} {problem}") from None
    return found
