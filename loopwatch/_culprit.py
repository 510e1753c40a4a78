"""Whom to look at first: from weighted stacks to a function, a line, a stack and a task.

A stack of the loop's thread holds three parts: who started the loop, the loop itself, and the callback that
runs in this turn. Only the last can be to blame, so the search for the program's own code stays inside it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from loopwatch._paths import is_own, module_name, relative_path
from loopwatch._stall import Frame, Sample, Stall, Verdict

T = TypeVar("T", bound=Hashable)

Function = tuple[str, str]
"""(filename, qualname)"""

_TURN = {
    ("asyncio/base_events.py", "BaseEventLoop._run_once"),
    ("asyncio/runners.py", "Runner.run"),  # where the loop itself is C: uvloop
}


_IMPORT_SYSTEM = ("<frozen importlib.", "<frozen zipimport>")


def function_of(frame: Frame) -> Function:
    return frame.filename, frame.qualname


def _is_turn(frame: Frame) -> bool:
    return any(
        frame.qualname == qualname and frame.filename.replace("\\", "/").endswith(path)
        for path, qualname in _TURN
    )


def inside_turn(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The part of a stack that the turn runs, above the loop's own frames; the innermost of these where
    nothing runs in it, and the whole stack where no loop is seen."""
    for index in range(len(frames) - 1, -1, -1):
        if _is_turn(frames[index]):
            return frames[index + 1 :] or frames[index:]
    return frames


def is_import_machinery(frame: Frame) -> bool:
    return frame.filename.startswith(_IMPORT_SYSTEM)


@dataclass(frozen=True, slots=True)
class Import:
    """A module being imported: what was asked for first, not what that imports in its turn."""

    by: int
    """Index in the stack of the innermost frame outside the import system."""
    module: str
    """"" while the import system still looks for it."""


def find_import(frames: Sequence[Frame]) -> Import | None:
    """The outermost import of the turn: imports nest, and a user can move the statement that started it."""
    start = len(frames) - len(inside_turn(frames))
    for index in range(start + 1, len(frames)):
        if is_import_machinery(frames[index]):
            body = next((frame for frame in frames[index:] if not is_import_machinery(frame)), None)
            named = body is not None and body.qualname == "<module>"
            return Import(index - 1, module_name(body.filename) if body is not None and named else "")
    return None


def blamed_frame(
    frames: Sequence[Frame], own: tuple[str, ...] = (), coroutine: str | None = None
) -> Frame | None:
    """The frame to look at first: the innermost of the program's own code, but the one that imports where a
    module is being imported; where none is own, that of the task's coroutine, else the innermost of any."""
    importing = find_import(frames)
    inside = inside_turn(frames)
    if importing is not None:
        outside = frames[len(frames) - len(inside) : importing.by + 1]
        if (frame := _innermost_own(outside, own)) is not None:
            return frame
    if (frame := _innermost_own(inside, own)) is not None:
        return frame
    if coroutine is not None:
        for frame in inside:
            if frame.qualname == coroutine:
                return frame
    return inside[-1] if inside else None


def _innermost_own(frames: Sequence[Frame], own: tuple[str, ...]) -> Frame | None:
    return next((frame for frame in reversed(frames) if is_own(frame.filename, own)), None)


@dataclass(frozen=True, slots=True)
class Site:
    """A function to blame, at its heaviest line."""

    frame: Frame
    seconds: float
    members: tuple[int, ...]
    """Indexes of the samples it was blamed in."""


def find_sites(
    samples: Sequence[Sample],
    own: tuple[str, ...] = (),
    coroutines: Sequence[str | None] | None = None,
    members: Iterable[int] | None = None,
) -> tuple[Site, ...]:
    """Samples grouped by the function to blame, largest first; those without frames belong to none.

    `coroutines`: that of the task that ran in each sample. `members`: indexes of the samples to look at, all
    unless given."""
    lines: dict[Function, dict[Frame, float]] = defaultdict(lambda: defaultdict(float))
    found: dict[Function, list[int]] = defaultdict(list)
    blamed: dict[tuple[int, str | None], Frame | None] = {}  # a stack repeats as the same object
    for index in range(len(samples)) if members is None else members:
        sample = samples[index]
        coroutine = coroutines[index] if coroutines is not None else None
        key = id(sample.frames), coroutine
        if key not in blamed:
            blamed[key] = blamed_frame(sample.frames, own, coroutine)
        frame = blamed[key]
        if frame is not None:
            lines[function_of(frame)][frame] += sample.weight
            found[function_of(frame)].append(index)
    sites = [
        Site(heaviest_line(weights), sum(weights.values()), tuple(found[function]))
        for function, weights in lines.items()
    ]
    return tuple(sorted(sites, key=lambda site: -site.seconds))


def stood(stalls: Iterable[Stall]) -> Frame | None:
    """Where the loop was found most, in stalls that nobody is to blame for."""
    sites = find_sites([sample for stall in stalls for sample in stall.samples])
    return sites[0].frame if sites else None


def heaviest_line(weights: Mapping[Frame, float]) -> Frame:
    """The heaviest line, and on it the heaviest expression."""
    by_line: dict[int, float] = defaultdict(float)
    for frame, weight in weights.items():
        by_line[frame.lineno] += weight
    return max(weights, key=lambda frame: (by_line[frame.lineno], weights[frame]))


def heaviest(pairs: Iterable[tuple[T, float]]) -> T | None:
    """The key with the most weight in all; the first of equals; None where there is none."""
    totals: dict[T, float] = defaultdict(float)
    for key, weight in pairs:
        totals[key] += weight
    return max(totals, key=totals.__getitem__, default=None)


def _distinct(samples: Iterable[Sample]) -> list[tuple[Sample, float]]:
    """The first sample of each stack, with the weight of all: to compare stacks takes long, and one that repeats is
    the same object. Equal ones that are not stay apart."""
    first: dict[int, Sample] = {}
    weights: dict[int, float] = defaultdict(float)
    for sample in samples:
        first.setdefault(id(sample.frames), sample)
        weights[id(sample.frames)] += sample.weight
    return [(sample, weights[key]) for key, sample in first.items()]


def heaviest_stack(samples: Sequence[Sample], site: Site | None) -> Sample | None:
    """A sample with the heaviest stack that contains the culprit; without one, with the heaviest of all."""
    if site is not None:
        members = _distinct(samples[index] for index in site.members)
        chosen = [(sample, weight) for sample, weight in members if site.frame in sample.frames]
    else:
        chosen = [(sample, weight) for sample, weight in _distinct(samples) if sample.frames]
    frames = heaviest((sample.frames, weight) for sample, weight in chosen)
    return next((sample for sample, _ in chosen if sample.frames == frames), None)


def fingerprint(verdict: Verdict, culprit: Frame | None) -> str:
    """The same in any process, on any host, and after lines moved."""
    path, qualname = (relative_path(culprit.filename), culprit.qualname) if culprit else ("", "")
    return hashlib.sha256(f"{verdict}\0{path}\0{qualname}".encode(errors="replace")).hexdigest()[:16]
