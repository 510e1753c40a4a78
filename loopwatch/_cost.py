"""What of a stall the program itself cost. A test fails for that, not for what a busy machine did to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import NamedTuple

from loopwatch._build import expression_of
from loopwatch._culprit import find_sites, fingerprint, heaviest_stack, is_import_machinery
from loopwatch._hints import hint
from loopwatch._reporter import NAME as REPORTER
from loopwatch._stall import OWN, Frame, Sample, Stall, Verdict

_SHORT_CALLBACKS = {Verdict.PYTHON, Verdict.NATIVE}


class Cost(NamedTuple):
    """Seconds that are the program's, and what they are blamed on: all of it for the same cause."""

    seconds: float
    cause: Verdict
    culprit: Frame | None
    frames: tuple[Frame, ...]
    """Outermost first, with the culprit."""
    fingerprint: str
    hint: str


def cost_of(stall: Stall) -> Cost:
    """Without the import of modules: it happens once in a process, in whichever test comes first."""
    parts = _parts(stall)
    imported = [sample for sample in stall.samples if parts.get(_cause(sample, stall)) and _in_import(sample)]
    seconds = max(0.0, sum(parts.values()) - sum(sample.weight for sample in imported))
    for sample in imported:
        parts[_cause(sample, stall)] -= sample.weight
    cause = max(OWN, key=lambda verdict: parts.get(verdict, 0.0))
    if cause is stall.verdict and not imported:
        return Cost(seconds, cause, stall.culprit, stall.frames, stall.fingerprint, stall.hint)
    # The stall itself may blame something that is not charged.
    culprit, frames = _blamed(stall, cause, parts)
    charged = dataclasses.replace(stall, breakdown={cause: seconds}, culprit=culprit, frames=frames)
    advice = hint(charged, expression_of(frames))
    return Cost(seconds, cause, culprit, frames, fingerprint(cause, culprit), advice)


def _parts(stall: Stall) -> dict[Verdict, float]:
    """Seconds by cause, with imports."""
    free = set(Verdict) - set(OWN)
    if stall.holder is not None and stall.holder.name == REPORTER:
        free.add(Verdict.GIL)
    return {verdict: part for verdict, part in stall.breakdown.items() if verdict not in free}


def _cause(sample: Sample, stall: Stall) -> Verdict:
    """Under which name the breakdown has it."""
    if sample.verdict in _SHORT_CALLBACKS and sample.verdict not in stall.breakdown:
        return Verdict.MANY_CALLBACKS
    return sample.verdict


def _blamed(
    stall: Stall, cause: Verdict, charged: Container[Verdict]
) -> tuple[Frame | None, tuple[Frame, ...]]:
    """The culprit and its stack; without a culprit, the stack of the stall."""
    ours = [
        index
        for index, sample in enumerate(stall.samples)
        if _cause(sample, stall) in charged and _shows_who(sample, stall) and not _in_import(sample)
    ]
    exactly = [index for index in ours if _cause(stall.samples[index], stall) is cause]
    sites = find_sites(stall.samples, members=exactly or ours)
    stack = heaviest_stack(stall.samples, sites[0]) if sites else None
    if stack is None:
        return None, stall.frames
    return sites[0].frame, stack.frames


def _shows_who(sample: Sample, stall: Stall) -> bool:
    """Its frames are those of the thread to blame: somebody saw who held the GIL."""
    return sample.verdict is not Verdict.GIL or sample.native_thread_id != stall.native_thread_id


def _in_import(sample: Sample) -> bool:
    return any(is_import_machinery(frame) for frame in sample.frames)
