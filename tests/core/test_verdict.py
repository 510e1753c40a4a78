"""The rules as a whole: C against its twin, and both against stalls whose truth is known."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import BEGIN, CLOCKS, MS, judge
from reference import simulate, verdict
from reference.evidence import ALL, PAIRS, Known, Look, Stand
from reference.interval import Cause, Parts
from reference.verdict import Turn

from loopwatch import _testcore as core
from loopwatch._stall import Verdict

HOUR = 3_600_000 * MS


# --- C is its twin ---

spans = st.one_of(st.integers(0, 20 * MS), st.integers(0, HOUR), st.just(0))
looks = st.builds(
    Look,
    at=spans,
    cpu=spans,
    run_queue=spans,
    throttled=spans,
    stopped=st.one_of(st.just(0), spans),
    gc=spans,
    stand=st.sampled_from(Stand),
    known=st.one_of(st.just(ALL), st.integers(0, 255).map(Known)),
    moved=st.integers(0, PAIRS),
    gil_others=st.booleans(),
    in_gc=st.booleans(),
    in_finalizer=st.booleans(),
    turn_callbacks=st.integers(-1, 5),
    turn_callback=st.integers(-1, 5),
)


def in_order(steps: list[Look], begin: int) -> list[Look]:
    """Clocks that go forward: each look's are added to those of the one before."""
    sums = dict.fromkeys(CLOCKS, 0) | {"at": begin}
    result = []
    for look in steps:
        sums = {name: sums[name] + getattr(look, name) for name in CLOCKS}
        result.append(dataclasses.replace(look, **sums))
    return result


@st.composite
def stalls(draw: st.DrawFn) -> tuple[Turn, list[Look]]:
    steps = draw(st.lists(looks, min_size=0, max_size=12))
    if draw(st.booleans()):
        steps = in_order(steps, draw(spans))
    begin = draw(spans)
    end = begin + draw(spans)
    ends = [draw(st.one_of(st.none(), looks)) for _ in range(2)]
    gil_begin = draw(st.one_of(st.just(0), spans))
    if steps and draw(st.booleans()):
        ends, steps = [steps[0], steps[-1]], steps[1:-1]
    return Turn(begin, end, gil_begin, *ends), steps


@settings(max_examples=400, deadline=None)
@given(stalls())
def test_c_is_its_twin_to_the_nanosecond(stall: tuple[Turn, list[Look]]) -> None:
    turn, samples = stall
    parts = judge(turn, samples)
    assert parts == verdict.judge(turn, samples)
    assert sum(map(sum, parts)) == turn.end - turn.begin


@given(st.lists(st.integers(0, 3) | st.integers(0, HOUR), min_size=len(Cause), max_size=len(Cause)))
def test_the_largest_cause_is_the_first_of_equals(parts: Parts) -> None:
    assert core.verdict_largest(*parts) == verdict.largest(parts) == parts.index(max(parts))


def test_causes_have_the_names_and_the_order_of_the_package() -> None:
    assert [core.verdict_cause_name(cause) for cause in Cause] == list(Verdict)
    assert core.verdict_cause_name(len(Cause)) == core.verdict_cause_name(-1) == "unknown"


# --- stalls whose truth is known ---


def judged(atoms: list[simulate.Atom], random: Random, *, known: Known = ALL, most: int = 256) -> Parts:
    line = simulate.Timeline(atoms, BEGIN)
    turn, samples = simulate.Watchdog(line, random, known=known).watch(most=most)
    parts = judge(turn, samples)
    assert parts == verdict.judge(turn, samples)
    assert sum(map(sum, parts)) == turn.end - turn.begin
    return verdict.total(parts)


def off_by(parts: Parts, true: Parts) -> int:
    """How far the worst part is from the truth, less what is allowed: 10 % of the duration, or 5 ms."""
    return max(abs(a - b) for a, b in zip(parts, true, strict=True)) - max(sum(true) // 10, 5 * MS)


@pytest.mark.parametrize("most", [256, 16], ids=["all_samples", "merged_samples"])
def test_known_mixes(most: int) -> None:
    """Of one to three parts of 60 to 250 ms. With 16 samples at most, what is left of them lies far apart."""
    mixes, near, clear, right = 400, 0, 0, 0
    for seed in range(mixes):
        random = Random(seed)
        atoms = simulate.mix(random)
        true = simulate.truth(atoms)
        parts = judged(atoms, random, most=most)
        near += off_by(parts, true) <= 0
        first, second = sorted(true, reverse=True)[:2]
        if first - second > sum(true) // 10:
            clear += 1
            right += verdict.largest(parts) == true.index(first)
    assert clear > mixes // 2
    assert near >= (0.97 if most == 256 else 0.85) * mixes
    assert right >= (0.99 if most == 256 else 0.97) * clear


@pytest.mark.parametrize("part", [part for parts in simulate.PARTS.values() for part in parts])
def test_one_part(part: simulate.Part) -> None:
    """Of up to 2 s, so that the samples get far apart; the parts of a mix are shorter."""
    stalls, near = 40, 0
    for seed in range(stalls):
        random = Random(seed)
        atoms = part(random.randint(120 * MS, 2_000 * MS), random)
        near += off_by(judged(atoms, random), simulate.truth(atoms)) <= 0
    assert near >= 0.9 * stalls


@pytest.mark.parametrize(
    ("hidden", "near_at_least"),
    [(Known.RUN_QUEUE, 0.9), (Known.THROTTLED, 0.97), (Known.FAULTS, 0.97), (Known.CPU, 0.8)],
)
def test_known_mixes_without_a_source(hidden: Known, near_at_least: float) -> None:
    """The rest makes up for it. Without a CPU clock, C that computes without the GIL seems to wait for it."""
    mixes, near = 200, 0
    for seed in range(mixes):
        random = Random(seed)
        atoms = simulate.mix(random)
        near += off_by(judged(atoms, random, known=ALL & ~hidden), simulate.truth(atoms)) <= 0
    assert near >= near_at_least * mixes


def test_known_mixes_without_stands() -> None:
    """The clocks still tell what runs, collects, is not scheduled or is stopped; what is left waits."""
    waits = {Cause.LOCK, Cause.BLOCKING_CALL}
    causes = [cause for cause in simulate.PARTS if cause != Cause.GIL]
    mixes, near = 200, 0
    for seed in range(mixes):
        random = Random(seed)
        atoms = [dataclasses.replace(atom, gil_others=False) for atom in simulate.mix(random, causes)]
        atoms = [atom for atom in atoms if atom.stand != Stand.PAGE]
        if not atoms:
            near += 1
            continue
        parts, true = judged(atoms, random, known=ALL & ~Known.STAND), simulate.truth(atoms)
        for sums in (parts, true):
            sums[Cause.BLOCKING_CALL] = sum(sums[cause] for cause in waits)
            sums[Cause.LOCK] = 0
        near += off_by(parts, true) <= 0
    assert near >= 0.95 * mixes


def test_without_any_source_nothing_is_known() -> None:
    random = Random(1)
    atoms = simulate.sleep(300 * MS, random)
    line = simulate.Timeline(atoms, BEGIN)
    turn, samples = simulate.Watchdog(line, random, known=Known(0)).watch()
    parts = verdict.total(judge(dataclasses.replace(turn, first=None, last=None), samples))
    assert parts[Cause.UNKNOWN] == 300 * MS


def test_callbacks_of_a_simulated_turn() -> None:
    random = Random(3)
    atoms = simulate.callbacks([7 * MS] * 40, random)
    parts = judged(atoms, random)
    assert parts[Cause.MANY_CALLBACKS] > 0.98 * 280 * MS
    atoms = simulate.callbacks([7 * MS] * 10 + [150 * MS] + [7 * MS] * 10, random)
    assert judged(atoms, random)[Cause.MANY_CALLBACKS] == 0
