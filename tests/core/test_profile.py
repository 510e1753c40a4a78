"""The profile's arithmetic in C: its gaps, what the watchdog may spend, and like looks as one entry."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from reference import pace, tally, thrift

from loopwatch import _testcore as core

MS = 1_000_000
BITS = st.integers(0, 2**32 - 1)


# --- gaps ---


@given(st.integers(MS, 100_000 * MS), BITS)
@example(50 * MS, 0)
@example(50 * MS, 2**32 - 1)
def test_a_gap_is_its_twins(mean: int, bits: int) -> None:
    assert abs(core.profile_gap(mean, bits) - pace.gap(mean, bits)) <= mean / 2_000


def test_gaps_have_no_memory() -> None:
    """Of those longer than a mean, the rest is as long on average as all of them are."""
    generator = random.Random(5)
    gaps = [core.profile_gap(50 * MS, generator.getrandbits(32)) for _ in range(40_000)]
    rests = [gap - 50 * MS for gap in gaps if gap > 50 * MS]
    assert abs(statistics.mean(gaps) / (50 * MS) - 1) < 0.03  # six standard deviations
    assert abs(statistics.mean(rests) / (50 * MS) - 1) < 0.05


# --- the account for early looks ---

step = st.tuples(st.integers(0, 10**12), st.integers(0, 60 * MS))


@given(st.lists(step, max_size=60))
def test_what_may_be_spent_is_its_twins(steps: list[tuple[int, int]]) -> None:
    twin, now, answers, clock = thrift.Thrift(), 0, [], []
    for wait, cost in steps:
        now += wait
        clock.append((now, cost))
        answers.append(twin.allows(now))
        twin.spend(cost)
    assert core.thrift_run(clock) == answers


def test_spending_is_bounded_in_the_long_run() -> None:
    """Who spends 0.1 ms whenever that is allowed gets what was there and a five-thousandth of the time."""
    twin, spent, seconds = thrift.Thrift(), 0, 600
    for now in range(0, seconds * 1000 * MS, MS):
        if twin.allows(now):
            twin.spend(MS // 10)
            spent += MS // 10
    assert spent <= thrift.FULL + seconds * 1000 * MS / thrift.PART + MS


# --- like looks ---

frames = st.tuples(st.integers(1, 4), st.integers(1, 3))
looks = st.builds(
    tally.Look,
    stack=st.lists(frames, max_size=4).map(tuple),
    coroutine=st.sampled_from(["", "main", "handle", "Server.serve"]),
    cause=st.sampled_from([2, 3, tally.PYTHON, tally.NATIVE, 7]),
    weight=st.integers(1, 100),
    count=st.integers(0, 3),
    worst=st.integers(0, 50),
    moved=st.sampled_from([-1, 0, 1]),
)


@given(st.lists(looks, max_size=120))
def test_like_looks_are_one_entry(given_looks: list[tally.Look]) -> None:
    twin = tally.fold(given_looks)
    entries, _ = core.tally_fold([tuple(look) for look in given_looks], False)
    assert {(stack, coroutine, cause): rest for stack, coroutine, cause, *rest in entries} == {
        key: [entry.weight, entry.count, entry.worst] for key, entry in twin.items()
    }
    assert len(entries) == len(twin)


@given(st.lists(looks, max_size=120))
def test_python_or_c_is_told_by_line_or_function(given_looks: list[tally.Look]) -> None:
    twin = tally.fold(given_looks)
    entries, _ = core.tally_fold([tuple(look) for look in given_looks], True)
    expected = [(key[0], key[1], tally.settled(twin, key), entry.weight) for key, entry in twin.items()]
    assert sorted(entry[:4] for entry in entries) == sorted(expected)


def test_it_is_full_before_its_memory_is() -> None:
    deep = tuple((code, 1) for code in range(1, 1001))
    different = [tally.Look(((n + 2_000, 1), *deep), "", 4, 1, 1, 0, -1) for n in range(200)]
    entries, taken = core.tally_fold([tuple(look) for look in different], False)
    assert taken == len(entries) == tally.ENTRIES
    assert all(len(stack) == 1001 for stack, *_ in entries)
    apart = [
        tally.Look(tuple((n * 2_000 + code, 1) for code in range(1000)), "", 4, 1, 1, 0, -1)
        for n in range(20)
    ]
    entries, taken = core.tally_fold([tuple(look) for look in apart], False)
    assert 1 < taken < 8
    assert all(len(stack) == 1000 for stack, *_ in entries)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_does_not_grow_with_what_was_seen() -> None:
    def see(first: int, n: int) -> None:
        left = [tuple(tally.Look(((first + k, k), (1, 1)), f"c{k % 40}", 4, 1, 1, 0, 1)) for k in range(n)]
        while left:
            _, taken = core.tally_fold(left, True)
            del left[:taken]

    see(1, 1_000)
    before = resident()
    see(10_000, 10_000)
    assert resident() - before <= 8 << 20
