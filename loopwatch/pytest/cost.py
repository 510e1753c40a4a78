"""What of a stall the program itself cost. A test fails for that, not for what a busy machine did to it."""

from __future__ import annotations

from typing import NamedTuple

from loopwatch._culprit import find_sites, fingerprint, heaviest_stack, is_import_machinery
from loopwatch._reporter import NAME as REPORTER
from loopwatch._stall import OWN, Frame, Sample, Stall, Verdict, own_seconds


class Cost(NamedTuple):
    """Seconds that are the program's, and what they are blamed on."""

    seconds: float
    cause: Verdict
    culprit: Frame | None
    frames: tuple[Frame, ...]
    """Outermost first, with the culprit."""
    fingerprint: str


def cost_of(stall: Stall) -> Cost:
    """Without the import of modules: it happens once in a process, in whichever test comes first."""
    spent = own_seconds(stall.breakdown)
    if stall.holder is not None and stall.holder.name == REPORTER:
        spent -= stall.breakdown.get(Verdict.GIL, 0.0)
    seconds = max(0.0, spent - sum(sample.weight for sample in stall.samples if _imports(sample)))
    cause = max(OWN, key=lambda verdict: stall.breakdown.get(verdict, 0.0))
    if stall.verdict in OWN:
        return Cost(seconds, cause, stall.culprit, stall.frames, stall.fingerprint)
    # The stall itself blames the machine for most of it.
    ours = [index for index, sample in enumerate(stall.samples) if _counts(sample)]
    sites = find_sites(stall.samples, members=ours)
    if not sites:
        return Cost(seconds, cause, None, stall.frames, stall.fingerprint)
    culprit = sites[0].frame
    stack = heaviest_stack(stall.samples, sites[0])
    return Cost(seconds, cause, culprit, stack.frames if stack else (), fingerprint(cause, culprit))


def _counts(sample: Sample) -> bool:
    return sample.verdict in OWN and not _in_import(sample)


def _imports(sample: Sample) -> bool:
    return sample.verdict in OWN and _in_import(sample)


def _in_import(sample: Sample) -> bool:
    return any(is_import_machinery(frame) for frame in sample.frames)
