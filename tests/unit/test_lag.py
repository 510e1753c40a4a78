"""Lag: held against exact computations on lists of turns."""

import dataclasses
import json
import math
import pickle
import random
from bisect import bisect_right
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from reference import histogram as reference

from loopwatch._lag import Lag

S = 10**9
MS = 10**6
US = 10**3
WIDTH = 1 / 128  # a bucket is at most that much of its value wide
ROUNDING = 1e-9

turn_lists = st.lists(
    st.floats(0, 1).map(lambda x: round(US * (3600 * S / US) ** x)) | st.sampled_from([MS, 20 * MS, S]),
    min_size=1,
    max_size=60,
)
idle_times = st.integers(0, 3600 * S)
shares = st.floats(0, 1)


def lag_of(turns: list[int], idle_ns: int | None = 0, gil_wait_ns: int | None = 0) -> Lag:
    return Lag(
        sorted(Counter(map(reference.bucket, turns)).items()),
        turns=len(turns),
        busy_ns=sum(turns),
        idle_ns=idle_ns,
        gil_wait_ns=gil_wait_ns,
        max_ns=max(turns, default=0),
        edge=reference.edge,
    )


# --- totals ---


def test_totals_are_seconds() -> None:
    lag = lag_of([MS, 3 * MS], idle_ns=12 * MS, gil_wait_ns=2 * MS)
    assert (lag.turns, lag.busy, lag.idle, lag.gil_wait) == (2, 0.004, 0.012, 0.002)
    assert (lag.utilization, lag.mean, lag.max) == (0.25, 0.002, 0.003)


def test_before_the_first_turn_everything_is_zero() -> None:
    lag = lag_of([])
    numbers = [lag.turns, lag.busy, lag.idle, lag.gil_wait, lag.utilization, lag.max, lag.mean]
    assert numbers == [0] * 7
    assert lag.quantile(0.99) == lag.waiting(0.99) == 0.0


def test_an_idle_loop_makes_nobody_wait() -> None:
    lag = lag_of([], idle_ns=S)
    assert lag.waiting(0) == lag.waiting(1) == lag.utilization == 0.0


@pytest.mark.parametrize(
    ("unknown", "also_unknown"),
    [
        ("turns", {"turns", "mean", "quantile", "waiting"}),
        ("busy_ns", {"busy", "mean", "utilization", "waiting"}),
        ("idle_ns", {"idle", "utilization", "waiting"}),
        ("gil_wait_ns", {"gil_wait"}),
        ("max_ns", {"max"}),
    ],
)
def test_what_the_pulse_cannot_tell_is_none(unknown: str, also_unknown: set[str]) -> None:
    lag = dataclasses.replace(lag_of([MS], idle_ns=S), **{unknown: None})
    answers = {
        name: getattr(lag, name)
        for name in ("turns", "busy", "idle", "gil_wait", "utilization", "max", "mean")
    }
    answers |= {"quantile": lag.quantile(0.5), "waiting": lag.waiting(0.5)}
    assert {name for name, answer in answers.items() if answer is None} == also_unknown


# --- quantile ---


def exact_quantile(turns: list[int], q: float) -> int:
    return sorted(turns)[max(1, math.ceil(Fraction(q) * len(turns))) - 1]


@given(turn_lists, shares)
@example([MS], 0.0)
@example([MS, 2 * MS, 3 * MS], 1.0)
def test_quantile_is_within_one_percent(turns: list[int], q: float) -> None:
    # The rank is computed in floats: where the exact one is a hair from the next, either is right.
    assume(abs(q * len(turns) - round(q * len(turns))) > ROUNDING or q in (0, 1))
    measured = lag_of(turns).quantile(q)
    assert measured is not None
    assert abs(measured * S - exact_quantile(turns, q)) <= exact_quantile(turns, q) / 100


@given(turn_lists)
def test_the_last_quantile_is_the_maximum(turns: list[int]) -> None:
    lag = lag_of(turns)
    assert lag.quantile(1) == lag.max == lag.waiting(1) == max(turns) / S


@given(turn_lists, idle_times, shares, shares)
def test_quantiles_never_fall(turns: list[int], idle_ns: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    lag = lag_of(turns, idle_ns)
    assert lag.quantile(small) <= lag.quantile(large)  # type: ignore[operator]
    assert lag.waiting(small) <= lag.waiting(large) * (1 + ROUNDING)  # type: ignore[operator]


def test_a_turn_longer_than_the_last_bucket_is_not_cut() -> None:
    day = 24 * 3600 * S
    lag = lag_of([MS, day])
    assert lag.quantile(1) == lag.max == day / S


# --- waiting ---


def share_waiting_longer(turns: list[int], idle_ns: int, wait_ns: float) -> float:
    return sum(max(0.0, turn - wait_ns) for turn in turns) / (sum(turns) + idle_ns)


@given(turn_lists, idle_times, shares)
def test_waiting_inverts_the_exact_share_of_longer_waits(turns: list[int], idle_ns: int, q: float) -> None:
    """Each turn is counted within WIDTH of its length. So the wait at q is, within WIDTH, one for which the
    share of longer waits is 1 - q, but for the error of that sum (WIDTH) and of the total (WIDTH again)."""
    waiting = lag_of(turns, idle_ns).waiting(q)
    assert waiting is not None
    wait_ns = waiting * S
    assert 0 <= wait_ns <= max(turns) * (1 + ROUNDING)
    below = share_waiting_longer(turns, idle_ns, wait_ns * (1 + WIDTH) + 1)
    above = share_waiting_longer(turns, idle_ns, max(0, wait_ns * (1 - WIDTH) - 1))
    assert below <= (1 - q) * (1 + 2 * WIDTH) + ROUNDING
    if wait_ns:
        assert above >= (1 - q) * (1 - 2 * WIDTH) - ROUNDING
    else:
        assert 1 - q >= share_waiting_longer(turns, idle_ns, 0) * (1 - 2 * WIDTH) - ROUNDING


@given(st.integers(US, 3600 * S), st.floats(0.01, 1), st.integers(1, 1000))
def test_among_equal_turns_the_rest_is_uniform(turn: int, left: float, n: int) -> None:
    waiting = lag_of([turn] * n).waiting(1 - left)
    assert waiting is not None
    exact = turn * (1 - left) / S
    assert abs(waiting - exact) <= exact / 100 + ROUNDING * turn / S


def test_idle_moments_wait_nothing_to_the_very_share() -> None:
    lag = lag_of([10 * MS] * 30, idle_ns=700 * MS)  # busy 0.3 of the time
    assert lag.waiting(0.7) == 0.0
    waiting = lag.waiting(0.85)
    assert waiting == pytest.approx(0.005, rel=0.01)


def random_turns(seed: int) -> list[int]:
    """Many short ones, some long ones, and a few stalls, as a service has them."""
    source = random.Random(seed)
    kinds = [(0.2 * MS, 5000), (8 * MS, 300), (400 * MS, 12)]
    return [max(US, round(source.expovariate(1 / mean))) for mean, n in kinds for _ in range(n)]


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_waiting_agrees_with_events_at_random_moments(q: float) -> None:
    turns = random_turns(20)
    source = random.Random(21)
    idle_ns = sum(turns) // 4
    ends, end = [], 0
    for turn in turns:
        end += turn
        ends.append(end)

    def wait() -> float:
        moment = source.uniform(0, end + idle_ns)
        turn = bisect_right(ends, moment)
        return ends[turn] - moment if turn < len(ends) else 0.0

    n = 40_000
    waits = sorted(wait() for _ in range(n))
    # The rank of a quantile in a sample is off by a few standard errors: the waits there are the bounds.
    slack = round(5 * math.sqrt(n * q * (1 - q)))
    lower, upper = waits[round(q * n) - slack], waits[min(n - 1, round(q * n) + slack)]
    waiting = lag_of(turns, idle_ns).waiting(q)
    assert waiting is not None
    assert upper > 0
    assert lower * 0.99 <= waiting * S <= upper * 1.01


# --- what is not a share ---


@pytest.mark.parametrize("method", ["quantile", "waiting"])
@pytest.mark.parametrize("q", [-0.1, 1.5, math.nan, math.inf, 50])
def test_a_number_that_is_no_share(method: str, q: float) -> None:
    with pytest.raises(ValueError, match=r"^q must be from 0 to 1"):
        getattr(lag_of([MS]), method)(q)


@pytest.mark.parametrize("method", ["quantile", "waiting"])
@pytest.mark.parametrize("q", [True, False, None, "0.5", 0.5j])
def test_what_is_no_number(method: str, q: object) -> None:
    with pytest.raises(TypeError, match=r"^q must be a number"):
        getattr(lag_of([MS]), method)(q)


def test_a_bad_share_is_an_error_also_where_the_answer_would_be_none() -> None:
    blind = Lag([], turns=None, busy_ns=None, idle_ns=None, gil_wait_ns=None, max_ns=None)
    with pytest.raises(ValueError, match="q must"):
        blind.quantile(2)
    with pytest.raises(ValueError, match="q must"):
        blind.waiting(2)


# --- intervals ---


@given(turn_lists, turn_lists, idle_times)
def test_an_interval_has_what_came_after(before: list[int], after: list[int], idle_ns: int) -> None:
    interval = lag_of(before + after, idle_ns + S, gil_wait_ns=5) - lag_of(before, S, gil_wait_ns=2)
    alone = lag_of(after, idle_ns, gil_wait_ns=3)
    assert interval.buckets == alone.buckets
    assert (interval.turns, interval.busy, interval.idle) == (alone.turns, alone.busy, alone.idle)
    assert interval.gil_wait == alone.gil_wait
    assert interval.max == reference.edge(reference.bucket(max(after)) + 1) / S
    assert max(after) / S <= interval.max <= max(after) * 1.01 / S


def test_the_maximum_of_an_interval_does_not_remember_an_older_stall() -> None:
    before, after = [30 * S], [MS, 2 * MS]
    interval = lag_of(before + after) - lag_of(before)
    assert interval.max == pytest.approx(0.002, rel=0.01)


def test_the_maximum_of_an_interval_above_the_last_edge() -> None:
    day = 24 * 3600 * S
    assert (lag_of([MS, day]) - lag_of([MS])).max == day / S


@given(turn_lists, idle_times)
def test_nothing_passed_in_an_empty_interval(turns: list[int], idle_ns: int) -> None:
    lag = lag_of(turns, idle_ns)
    assert lag - lag == lag_of([])


@given(turn_lists, turn_lists)
def test_subtracting_the_newer_one_is_an_error(before: list[int], after: list[int]) -> None:
    with pytest.raises(ValueError, match="newer"):
        lag_of(before) - lag_of(before + after)


def test_a_total_that_falls_is_an_error() -> None:
    with pytest.raises(ValueError, match="idle falls"):
        lag_of([MS], idle_ns=1) - lag_of([MS], idle_ns=2)


def test_lags_of_different_pulses_cannot_be_subtracted() -> None:
    with pytest.raises(ValueError, match="gil_wait"):
        lag_of([MS], gil_wait_ns=None) - lag_of([MS])


@pytest.mark.parametrize("other", [0, 1.5, None, "lag"])
def test_only_a_lag_can_be_subtracted(other: object) -> None:
    with pytest.raises(TypeError):
        lag_of([MS]) - other  # type: ignore[operator]


def test_what_is_unknown_stays_unknown_in_an_interval() -> None:
    blind = Lag(
        [], turns=None, busy_ns=None, idle_ns=None, gil_wait_ns=None, max_ns=None, edge=reference.edge
    )
    interval = blind - blind
    assert interval == blind
    assert interval.quantile(0.5) is None


# --- as a value ---


def test_equal_where_everything_is() -> None:
    assert lag_of([MS, S]) == lag_of([S, MS])
    assert hash(lag_of([MS, S])) == hash(lag_of([S, MS]))
    assert lag_of([MS]) != lag_of([MS], idle_ns=1)
    assert lag_of([MS]) != lag_of([MS, MS])


def test_immutable() -> None:
    lag = lag_of([MS])
    with pytest.raises(AttributeError):
        lag.turns = 5  # type: ignore[misc]
    assert isinstance(lag.buckets, tuple)


def test_survives_pickle() -> None:
    lag = lag_of([MS, S], idle_ns=S)
    assert pickle.loads(pickle.dumps(lag)) == lag


def test_to_dict_is_ready_for_json() -> None:
    lag = lag_of([MS] * 99 + [S], idle_ns=S, gil_wait_ns=None)
    data = json.loads(json.dumps(lag.to_dict()))
    assert data["turns"] == 100
    assert data["gil_wait"] is None
    assert data["max"] == 1.0
    assert data["quantiles"]["0.5"] == lag.quantile(0.5)
    assert data["waiting"]["0.99"] == lag.waiting(0.99)


def test_repr_says_what_one_asks_first() -> None:
    assert repr(lag_of([2 * MS], idle_ns=6 * MS)).startswith("<Lag turns=1 utilization=0.250 mean=2.000ms")
    blind = Lag([], turns=None, busy_ns=None, idle_ns=None, gil_wait_ns=None, max_ns=None)
    assert repr(blind) == "<Lag turns=None>"


@pytest.mark.parametrize("buckets", [[(5, 1), (3, 1)], [(5, 1), (5, 1)], [(5, -1)]])
def test_buckets_out_of_order_or_negative_are_an_error(buckets: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"bucket|count"):
        Lag(buckets, turns=1, busy_ns=1, idle_ns=1, gil_wait_ns=1, max_ns=1)


def test_edges_come_from_the_native_half_unless_given() -> None:
    core = pytest.importorskip("loopwatch._core", exc_type=ImportError)
    lag = dataclasses.replace(lag_of([MS, S]), edge=Lag.__dataclass_fields__["edge"].default)
    assert core.histogram_edge(0) == 0
    assert lag.quantile(0.5) == lag_of([MS, S]).quantile(0.5)
