"""The histogram of turns: where a value is counted, how exact that is, and what a reader sees meanwhile."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st
from reference import histogram as reference

from loopwatch import _testcore as core

MICROSECOND = 1_000
HOUR = 3_600 * 10**9
U64 = 2**64 - 1
LAST = reference.BUCKETS - 1

# Uniform integers would nearly all be near the top: draw the number of bits first.
values = st.integers(0, 64).flatmap(lambda bits: st.integers(0, 2**bits - 1))
in_range = st.floats(0, 1).map(lambda x: round(MICROSECOND * (HOUR / MICROSECOND) ** x))


def test_every_edge_is_that_of_the_reference() -> None:
    assert [core.histogram_edge(bucket) for bucket in range(reference.BUCKETS + 1)] == reference.EDGES


def test_both_sides_of_every_edge() -> None:
    for bucket in range(1, reference.BUCKETS):
        edge = core.histogram_edge(bucket)
        assert core.histogram_bucket(edge - 1) == bucket - 1
        assert core.histogram_bucket(edge) == bucket


@given(values)
@example(0)
@example(7)
@example(1023)
@example(1024)
@example(reference.TOP - 1)
@example(reference.TOP)
@example(U64)
def test_bucket_is_that_of_the_reference(value: int) -> None:
    assert core.histogram_bucket(value) == reference.bucket(value)


@given(values, values)
def test_a_larger_value_is_never_in_a_lower_bucket(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert core.histogram_bucket(small) <= core.histogram_bucket(large)


@given(in_range)
@example(MICROSECOND)
@example(HOUR)
def test_both_edges_are_within_one_percent(value: int) -> None:
    bucket = core.histogram_bucket(value)
    lower, upper = core.histogram_edge(bucket), core.histogram_edge(bucket + 1)
    assert lower <= value < upper
    assert value - lower <= value / 100
    assert upper - value <= value / 100


@given(st.integers(0, MICROSECOND - 1))
def test_below_a_microsecond_both_edges_are_within_8_ns(value: int) -> None:
    bucket = core.histogram_bucket(value)
    assert core.histogram_edge(bucket) <= value < core.histogram_edge(bucket + 1)
    assert core.histogram_edge(bucket + 1) - core.histogram_edge(bucket) == 8


@given(st.integers(reference.TOP, U64))
def test_above_the_top_values_count_in_the_last_bucket(value: int) -> None:
    assert core.histogram_of([value]) == ([(LAST, 1)], value, value)


@given(st.lists(st.integers(0, 2**50), max_size=200))
def test_counts_sum_and_maximum_are_exact(turns: list[int]) -> None:
    buckets, total, largest = core.histogram_of(turns)
    assert buckets == sorted(Counter(map(reference.bucket, turns)).items())
    assert total == sum(turns)
    assert largest == max(turns, default=0)


def test_a_reader_beside_the_writer_sees_whole_numbers_that_never_go_back() -> None:
    n = 3_000_000
    (looks, torn, went_back), (buckets, total, largest) = core.histogram_race(n)
    assert looks > 0, "the reader never saw the writer at work: nothing was tested"
    assert torn == 0
    assert went_back == 0
    value = 2**32 + 1
    assert buckets == [(reference.bucket(value * multiple), n // 3) for multiple in (1, 2, 3)]
    assert total == value * 2 * n
    assert largest == 3 * value
