"""Exporters are told of everything on the reporter's thread, and what they raise stays theirs."""

from __future__ import annotations

import threading
import time

import pytest
from records import stall

from loopwatch._alarms import Alarms
from loopwatch._outlets import Outlet, Outlets

REPORTER = object()


class Recorder(Outlet):
    name = "recorder"

    def __init__(self, every=None, error=None):
        self.every, self.error, self.seen = every, error, []

    def note(self, what):
        self.seen.append(what)
        if self.error is not None:
            raise self.error

    def stall(self, stall):
        self.note(stall)

    def saturation(self, saturation):
        self.note(saturation)

    def tick(self):
        self.note("tick")

    def wind_up(self):
        self.note("end")


@pytest.fixture
def outlets():
    return Outlets()


@pytest.fixture
def alarms():
    return Alarms(wake=lambda: None)


def run_due(alarms, until, seconds=10):
    deadline = time.monotonic() + seconds
    while not until() and time.monotonic() < deadline:
        time.sleep(0.005)
        for call in alarms.due():
            call()
    assert until()


def test_each_is_told_of_each_stall_until_it_is_removed(outlets):
    one, two = Recorder(), Recorder()
    outlets.add(one)
    outlets.add(two)
    outlets.tell(stall(id=1))
    assert outlets.remove(one)
    assert not outlets.remove(one)
    outlets.tell(stall(id=2))
    assert [told.id for told in one.seen] == [1]
    assert [told.id for told in two.seen] == [1, 2]


def test_a_failure_is_counted_and_logged_once_for_each_type(outlets, caplog):
    broken, sound = Recorder(error=OSError("disk full")), Recorder()
    outlets.add(broken)
    outlets.add(sound)
    for number in range(3):
        outlets.tell(stall(id=number))
    broken.error = SystemExit(3)
    outlets.tell(stall(id=3))
    assert len(sound.seen) == 4
    assert outlets.failures == {"recorder": 4}
    assert [record.exc_info[0] for record in caplog.records] == [OSError, SystemExit]


def test_ticks_come_while_a_reporter_runs(outlets, alarms):
    early, late, never = Recorder(every=0.01), Recorder(every=0.01), Recorder()
    outlets.add(early)
    outlets.add(never)
    assert alarms.wait_ns() is None, "nobody is woken before a loop is watched"
    outlets.begin(REPORTER, alarms)
    outlets.add(late)
    run_due(alarms, lambda: len(early.seen) >= 3 and len(late.seen) >= 3)
    outlets.remove(late)
    count = len(late.seen)
    run_due(alarms, lambda: len(early.seen) >= 10)
    assert len(late.seen) == count
    outlets.end(REPORTER)
    assert early.seen[-1] == never.seen[-1] == "end"
    assert alarms.wait_ns() is None, "and nobody after it"


def test_a_tick_that_fails_comes_again(outlets, alarms):
    broken = Recorder(every=0.01, error=ValueError("no"))
    outlets.add(broken)
    outlets.begin(REPORTER, alarms)
    run_due(alarms, lambda: len(broken.seen) >= 3)
    assert outlets.failures["recorder"] >= 3


def test_a_reporter_that_ends_late_does_not_end_its_successors(outlets, alarms):
    ticking = Recorder(every=0.01)
    outlets.add(ticking)
    outlets.begin(REPORTER, alarms)
    outlets.begin("its successor", alarms)
    outlets.end(REPORTER)
    assert "end" not in ticking.seen
    run_due(alarms, lambda: len(ticking.seen) >= 2)
    outlets.end("its successor")
    assert ticking.seen[-1] == "end"


def test_an_outlet_removed_in_its_own_tick_is_not_called_again(outlets, alarms):
    class Once(Recorder):
        def tick(self):
            super().tick()
            outlets.remove(self)

    once = Once(every=0.01)
    outlets.add(once)
    outlets.begin(REPORTER, alarms)
    run_due(alarms, lambda: once.seen == ["tick"])
    assert alarms.wait_ns() is None


def test_saturation_of_watches_that_tell_of_it(outlets):
    class Watch:
        def __init__(self):
            self.callbacks = []

        def add_saturation_callback(self, callback):
            self.callbacks.append(callback)

        def remove_saturation_callback(self, callback):
            self.callbacks = [known for known in self.callbacks if known != callback]

    watch, recorder = Watch(), Recorder()
    outlets.follow(watch)
    assert watch.callbacks == [], "nobody listens"
    outlets.add(recorder)
    outlets.follow(watch)
    outlets.follow(watch)
    for callback in watch.callbacks:
        callback("full")
    assert recorder.seen == ["full"]


class Told:
    """A watch, as far as an exporter that begins to follow it needs one."""

    def add_saturation_callback(self, callback):
        pass

    remove_saturation_callback = add_saturation_callback


def test_one_that_cannot_follow_a_watch_is_counted(outlets, caplog):
    class Followed(Recorder):
        def follow(self, watch):
            self.note(watch)

    broken, sound, watch = Followed(error=FileNotFoundError("gone")), Followed(), Told()
    outlets.add(broken)
    outlets.add(sound)
    outlets.follow(watch)
    assert sound.seen == [watch]
    assert outlets.failures == {"recorder": 1}
    assert [record.exc_info[0] for record in caplog.records] == [FileNotFoundError]


def test_an_interruption_of_the_program_is_not_an_exporters_failure(outlets):
    class Interrupted(Recorder):
        def follow(self, watch):  # noqa: ARG002
            raise KeyboardInterrupt

    outlets.add(Interrupted())
    with pytest.raises(KeyboardInterrupt):
        outlets.follow(Told())
    assert outlets.failures == {"recorder": 0}


def test_a_child_process_is_not_locked_out(outlets, alarms):
    held = threading.Event()
    release = threading.Event()

    def hold():
        with outlets._lock:
            held.set()
            release.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(10)
    outlets.renew()  # as after a fork
    ticking = Recorder(every=0.01)
    outlets.add(ticking)
    outlets.begin(REPORTER, alarms)
    run_due(alarms, lambda: len(ticking.seen) >= 1)
    release.set()
    holder.join()


def test_each_is_told_that_a_watch_is_over(outlets):
    """Whatever another one does."""
    broken, other = Recorder(), Recorder()
    broken.unfollow = lambda _: 1 // 0
    other.unfollow = other.note
    for outlet in (broken, other):
        outlets.add(outlet)
    outlets.unfollow(watch := object())
    assert other.seen == [watch]
    assert outlets.failures["recorder"] == 1
