"""Like looks as one entry: the twin of src/profile/tally.c, with a dict."""

from __future__ import annotations

from typing import NamedTuple

ENTRIES = 64
LOOKS = 256
TASKS = 32
PYTHON, NATIVE = 4, 5  # lw_cause
ENOUGH = 8


class Look(NamedTuple):
    stack: tuple[tuple[int, int], ...]
    """(code, line), innermost first"""
    coroutine: str
    cause: int
    weight: int
    count: int
    worst: int
    moved: int
    """1, 0, or -1: that was not looked at"""


class Entry:
    def __init__(self) -> None:
        self.weight = self.count = self.worst = self.pairs = self.moved = 0


Key = tuple[tuple[tuple[int, int], ...], str, int]


def full(entries: dict[Key, Entry]) -> bool:
    coroutines = {coroutine for _, coroutine, _ in entries if coroutine}
    looks = sum(entry.count for entry in entries.values())
    return len(entries) >= ENTRIES or looks >= LOOKS or len(coroutines) == TASKS


def fold(looks: list[Look]) -> dict[Key, Entry]:
    """As many as fit."""
    entries: dict[Key, Entry] = {}
    for look in looks:
        if full(entries):
            break
        entry = entries.setdefault((look.stack, look.coroutine, look.cause), Entry())
        entry.weight += look.weight
        entry.count += look.count
        entry.worst = max(entry.worst, look.worst)
        if look.moved >= 0 and look.cause in (PYTHON, NATIVE):
            entry.pairs += 1
            entry.moved += look.moved
    return entries


def settled(entries: dict[Key, Entry], key: Key) -> int:
    """The entry's cause, where it ran: by how often its line, or else its function, was found moved."""
    stack, _, cause = key
    if cause not in (PYTHON, NATIVE):
        return cause

    def motion(depth: int) -> tuple[int, int]:
        place = stack[0][:depth] if stack else ()
        like = [
            entry for (other, _, _), entry in entries.items() if (other[0][:depth] if other else ()) == place
        ]
        return sum(entry.pairs for entry in like), sum(entry.moved for entry in like)

    pairs, moved = motion(2)
    if pairs < ENOUGH:
        pairs, moved = motion(1)
    if not pairs:
        return cause
    return PYTHON if moved * 5 >= pairs else NATIVE
