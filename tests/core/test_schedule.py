"""When a late turn is looked at: C against its twin, and what the schedule promises."""

from hypothesis import example, given
from hypothesis import strategies as st
from reference import schedule

from loopwatch import _testcore as core

MS = 1_000_000
HOUR = 3_600_000 * MS

thresholds = st.integers(MS, HOUR)
ages = st.integers(0, 24 * HOUR)


@given(thresholds, ages)
@example(100 * MS, 200 * MS)
@example(100 * MS, 200 * MS - 1)
def test_c_is_its_twin(threshold: int, age: int) -> None:
    assert core.schedule_first_point(threshold) == schedule.first_point(threshold)
    assert core.schedule_step(threshold, age) == schedule.step(threshold, age)


@given(st.integers(MS, HOUR), st.integers(0, 2**32 - 1))
def test_a_step_is_at_most_a_quarter_longer_or_shorter(step: int, random: int) -> None:
    jittered = core.schedule_jittered(step, random)
    assert jittered == schedule.jittered(step, random)
    assert abs(jittered - step) <= step / 4 + 1


@given(thresholds)
def test_a_turn_is_sampled_before_the_threshold(threshold: int) -> None:
    assert core.schedule_first_point(threshold) <= threshold / 8
    assert core.schedule_step(threshold, 0) <= max(threshold / 16, MS)


@given(thresholds, ages)
def test_samples_get_apart_with_age_by_three_percent(threshold: int, age: int) -> None:
    step = core.schedule_step(threshold, age)
    assert step >= MS
    assert step <= max(threshold / 16, MS, age * 0.03)
