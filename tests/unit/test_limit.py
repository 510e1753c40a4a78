"""Which reports are told at once, and that the others are told once, in a sum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwatch._alarms import Alarm
from loopwatch._limit import ALARM_MAX, KINDS_MAX, Limiter

EVERY = 60.0


class Time:
    """A clock, and the alarms that are set on it."""

    def __init__(self):
        self.now = 100.0
        self.alarms = []

    def clock(self):
        return self.now

    def call_later(self, seconds, callback):
        alarm = Alarm(callback)
        self.alarms.append((self.now + seconds, alarm))
        return alarm

    def pending(self):
        return [when for when, alarm in self.alarms if alarm.pending]

    def pass_on(self, seconds):
        """As the reporter does: what is due is called."""
        end = self.now + seconds
        while due := [entry for entry in self.alarms if entry[1].pending and entry[0] <= end]:
            when, alarm = min(due, key=lambda entry: entry[0])
            self.now = max(self.now, when)
            alarm.take()()
        self.now = end


class Reports:
    """What is reported, and what of it was told."""

    def __init__(self, every=EVERY):
        self.time = Time()
        self.told, self.sums = [], []
        self.limiter = Limiter(
            every, self.sums.append, call_later=self.time.call_later, clock=self.time.clock
        )

    def report(self, seconds, kind="a"):
        told = self.limiter.ask(kind, seconds)
        if told:
            self.told.append(seconds)
        else:
            self.limiter.hold_back(kind, (kind, seconds), seconds)
        return told


@pytest.fixture
def reports():
    return Reports()


def test_the_first_at_once_and_the_rest_as_a_sum_when_the_time_is_over(reports):
    assert reports.report(0.2)
    reports.time.pass_on(10)
    assert not reports.report(0.3)
    assert not reports.report(0.1)
    reports.time.pass_on(49.9)
    assert reports.sums == []
    reports.time.pass_on(0.2)
    (held_back,) = reports.sums
    assert (held_back.count, held_back.worst, held_back.worst_seconds) == (2, ("a", 0.3), 0.3)
    assert held_back.seconds == pytest.approx(0.4)
    assert held_back.over == pytest.approx(EVERY)


def test_a_sum_is_a_report_of_its_kind(reports):
    reports.report(0.2)
    reports.report(0.3)
    reports.time.pass_on(61)
    assert not reports.report(0.3)
    reports.time.pass_on(60)
    assert [held_back.count for held_back in reports.sums] == [1, 1]
    reports.time.pass_on(60)
    assert reports.report(0.3), "after a time without any it is the first again"


def test_three_times_as_long_is_told_at_once_and_then_three_times_that(reports):
    assert [reports.report(seconds) for seconds in (0.25, 0.7, 0.75, 1.7, 2.25, 0.25)] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    reports.time.pass_on(60)
    assert [(held_back.count, held_back.worst_seconds) for held_back in reports.sums] == [(3, 1.7)]
    assert reports.report(5.1), "three times the longest of the sum"


def test_each_kind_has_its_own_limit(reports):
    assert reports.report(0.2, "a")
    reports.time.pass_on(20)
    assert reports.report(0.2, "b")
    reports.report(0.2, "b")
    reports.report(0.2, "a")
    reports.time.pass_on(40)
    assert [held_back.worst[0] for held_back in reports.sums] == ["a"]
    reports.time.pass_on(20)
    assert [held_back.worst[0] for held_back in reports.sums] == ["a", "b"]


def test_nothing_wakes_where_nothing_is_held_back(reports):
    reports.report(0.2, "a")
    reports.report(0.2, "b")
    assert reports.time.pending() == []
    reports.report(0.2, "b")
    reports.report(0.2, "b")
    assert len(reports.time.pending()) == 1
    reports.time.pass_on(60)
    assert reports.time.pending() == []


def test_an_alarm_that_is_a_little_early_is_set_again(reports):
    reports.report(0.2)
    reports.report(0.2)
    (_, alarm) = reports.time.alarms[-1]
    reports.time.now += 59.999999
    alarm.take()()
    assert reports.sums == []
    reports.time.pass_on(0.1)
    assert len(reports.sums) == 1


def test_a_long_time_is_waited_for_in_parts():
    reports = Reports(every=1000.0)
    reports.report(0.2)
    reports.report(0.2)
    assert reports.time.pending() == [reports.time.now + ALARM_MAX]
    reports.time.pass_on(999)
    assert reports.sums == []
    reports.time.pass_on(2)
    assert len(reports.sums) == 1


def test_the_end_of_the_watch_does_not_wait(reports):
    for kind in "ab":
        reports.report(0.2, kind)
        reports.report(0.3, kind)
    assert reports.limiter.holds_back
    reports.limiter.tell_all()
    assert sorted(held_back.worst for held_back in reports.sums) == [("a", 0.3), ("b", 0.3)]
    assert not reports.limiter.holds_back
    assert reports.time.pending() == []
    reports.limiter.tell_all()
    assert len(reports.sums) == 2


def test_it_holds_back_until_the_sum_is_told():
    """Who waits for the end of a watch must not miss a slow handler."""
    seen = []
    time = Time()
    limiter = Limiter(
        EVERY, lambda _: seen.append(limiter.holds_back), call_later=time.call_later, clock=time.clock
    )
    limiter.ask("a", 0.2)
    limiter.hold_back("a", "report", 0.2)
    limiter.tell_all()
    assert seen == [True]


def test_memory_is_bounded_and_what_is_forgotten_is_told(reports):
    reports.report(0.2, "first")
    reports.report(0.2, "first")
    for number in range(KINDS_MAX + 10):
        reports.report(0.2, str(number))
    assert len(reports.limiter._kinds) == KINDS_MAX
    assert [held_back.worst for held_back in reports.sums] == [("first", 0.2)]
    assert reports.report(0.2, "first")


def test_zero_means_no_limit():
    reports = Reports(every=0.0)
    assert all(reports.report(0.2) for _ in range(5))
    assert reports.time.alarms == []
    assert not reports.limiter.holds_back


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.1, 50), st.floats(0, 90)), max_size=40),
)
def test_each_is_told_once(made):
    reports = Reports()
    for kind, seconds, pause in made:
        reports.report(seconds, kind)
        reports.time.pass_on(pause)
    reports.limiter.tell_all()
    assert len(reports.told) + sum(held_back.count for held_back in reports.sums) == len(made)
    total = sum(reports.told) + sum(held_back.seconds for held_back in reports.sums)
    assert total == pytest.approx(sum(seconds for _, seconds, _ in made))
    assert all(held_back.over <= EVERY + 0.001 for held_back in reports.sums)
    assert not reports.limiter.holds_back
