"""What the hints look at, and what a rule of theirs is."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loopwatch._culprit import find_import, inside_turn
from loopwatch._paths import library_module
from loopwatch._stall import Stall, Verdict


@dataclass(frozen=True, slots=True)
class Platform:
    """What decides where work can go."""

    gil: bool
    interpreters: bool
    """concurrent.futures has InterpreterPoolExecutor."""

    @classmethod
    def here(cls) -> Platform:
        gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
        return cls(gil, sys.version_info >= (3, 14))


@dataclass(frozen=True, slots=True)
class Clues:
    """What the rules look at."""

    stall: Stall
    functions: tuple[tuple[str, str], ...]
    """(module, qualname) of the library frames that the culprit called into, outermost first."""
    expression: str
    """What the innermost frame was executing, as source text."""
    platform: Platform

    def calls_into(self, patterns: Sequence[str]) -> bool:
        return any(names(pattern, function) for pattern in patterns for function in self.functions)

    def first_of(self, table: Mapping[str, str]) -> str:
        """What the table has for the first of its packages that is seen; "" where none is."""
        return next((entry for name, entry in table.items() if self.calls_into((name,))), "")

    @property
    def importing(self) -> str | None:
        """The module that is being imported ("" where its name is not known yet), None: nothing is."""
        found = find_import(self.stall.frames)
        return None if found is None else found.module

    def part(self, verdict: Verdict) -> float:
        return self.stall.breakdown.get(verdict, 0.0)


def names(pattern: str, function: tuple[str, str]) -> bool:
    """ "package", "package.module" or "package.module:qualname"; each also stands for what is below it."""
    wanted, _, qualname = pattern.partition(":")
    module, name = function
    return (module == wanted or module.startswith(f"{wanted}.")) and (
        not qualname or name == qualname or name.startswith(f"{qualname}.")
    )


@dataclass(frozen=True, slots=True)
class Rule:
    """Advice for stalls of these verdicts, where `when` holds and, if any of `modules`, `expression` and
    `syscalls` is given, one of them is seen."""

    name: str
    verdicts: frozenset[Verdict]
    advice: str
    """May have fields in braces."""
    why: str
    modules: tuple[str, ...] = ()
    expression: str = ""
    """A regular expression, searched in what the innermost frame was executing."""
    syscalls: tuple[str, ...] = ()
    when: Callable[[Clues], bool] = lambda _: True

    def applies(self, clues: Clues) -> bool:
        if clues.stall.verdict not in self.verdicts or not self.when(clues):
            return False
        if not (self.modules or self.expression or self.syscalls):
            return True
        return (
            clues.calls_into(self.modules)
            or (bool(self.expression) and re.search(self.expression, clues.expression) is not None)
            or clues.stall.evidence.syscall in self.syscalls
        )


def library_functions(stall: Stall) -> tuple[tuple[str, str], ...]:
    """What is library code below the culprit; in a stack without one, in the turn."""
    frames = inside_turn(stall.frames)
    if stall.culprit in frames:
        last = max(index for index, frame in enumerate(frames) if frame == stall.culprit)
        frames = frames[last:]
    named = ((library_module(frame.filename), frame.qualname) for frame in frames)
    return tuple((module, qualname) for module, qualname in named if module)
