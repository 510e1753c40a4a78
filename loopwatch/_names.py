"""Names that are given by number where they are taken."""

from __future__ import annotations

from collections.abc import Iterable


def unused_name(name: str, used: Iterable[str]) -> str:
    """The name itself, or with the smallest number from 2 on that makes it a new one."""
    taken = set(used)
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate
