"""The reporter's thread and one watch's sinks, fed by hand."""

import asyncio
import logging
import threading
import time

import pytest
from fakecore import FakeCore
from records import APP, record, stall

from loopwatch import _reporter, _sinks
from loopwatch._alarms import Alarms
from loopwatch._failures import REDACTION_FAILED
from loopwatch._options import make_settings
from loopwatch._reporter import Reporter
from loopwatch._sinks import HISTORY, Sinks, matches
from loopwatch._stall import Frame


class Slot:
    turn = 3


class Watch:
    def __init__(self, **options):
        self.sinks = Sinks(Slot(), make_settings("install", {"log": False} | options), lambda: None)


class Watches:
    """A registry of one watch."""

    unused = winding_up = False

    def __init__(self, watch):
        self.watch = watch
        self.alarms = Alarms(wake=_reporter._core.stop_reporter)

    def by_key(self, key):
        return self.watch if key == 1 else None

    def housekeep(self, _):
        self.wind_up()
        return True

    def wind_up(self):
        self.winding_up = False


@pytest.fixture(autouse=True)
def core(monkeypatch):
    fake = FakeCore()
    monkeypatch.setattr(_reporter, "_core", fake)
    monkeypatch.setattr(_sinks, "_core", fake)
    return fake


@pytest.fixture
def start():
    reporters = []

    def start(watch):
        reporters.append(Reporter(Watches(watch)))
        reporters[-1].start()
        return reporters[-1]

    yield start
    for reporter in reporters:
        assert reporter.stop(5)


def test_records_reach_history_and_callbacks(core, start):
    seen = []
    watch = Watch(on_stall=lambda stall: seen.append((stall.id, threading.current_thread().name)))
    reporter = start(watch)
    core.put(record(id=1))
    core.put(record(id=2, kind="ongoing", token=2))
    core.put(record(id=2))
    assert reporter.drain(5)
    assert [number for number, _ in seen] == [1, 2, 2]
    assert {name for _, name in seen} == {"loopwatch-reporter"}
    assert [(stall.id, stall.ongoing) for stall in watch.sinks.history] == [(1, False), (2, False)]


def test_drain_waits_for_the_last_callback(core, start):
    """The record is taken long before it is dealt with: pending() alone would not tell."""
    done = []

    def slow(stall):
        time.sleep(0.2)
        done.append(stall)

    reporter = start(Watch(on_stall=slow))
    core.put(record())
    while core.pending():
        time.sleep(0.001)
    assert not done
    assert reporter.drain(5)
    assert done


def test_drain_gives_up(core, start):
    gate = threading.Event()
    reporter = start(Watch(on_stall=lambda _: gate.wait(30)))
    core.put(record())
    began = time.monotonic()
    assert not reporter.drain(0.1)
    core.put(record())
    assert not reporter.drain(0.1)
    assert time.monotonic() - began < 10
    gate.set()
    assert reporter.drain(5)


def test_drain_waits_for_what_the_log_held_back(core, start):
    """Also where every record is dealt with, and the reporter has nothing to wake for."""
    reporter = start(Watch())
    core.put(record())
    assert reporter.drain(5)
    reporter._watches.winding_up = True
    assert reporter.drain(5)
    assert not reporter._watches.winding_up


def test_stop_does_not_wait_for_a_stuck_sink_for_ever(core):
    gate, began = threading.Event(), threading.Event()
    watch = Watch(on_stall=lambda _: (began.set(), gate.wait(30)))
    reporter = Reporter(Watches(watch))
    reporter.start()
    core.put(record(id=1))
    core.put(record(id=2))
    assert began.wait(5)
    assert not reporter.stop(0.05)
    gate.set()
    assert reporter.stop(5)
    assert [stall.id for stall in watch.sinks.history] == [1], "it ends without taking another record"


def test_a_record_of_nobody_is_dropped(core, start):
    reporter = start(Watch())
    core.put(record(slot=99, token=5))
    assert reporter.drain(5)
    assert core.delivered_tokens == [5]


def test_log_first_then_delivered_then_callbacks(core, start):
    order = []

    class Handler(logging.Handler):
        def emit(self, _):
            order.append(("log", list(core.delivered_tokens)))

    logger = logging.Logger("test")
    logger.addHandler(Handler())
    reporter = start(
        Watch(log=logger, on_stall=lambda _: order.append(("call", list(core.delivered_tokens))))
    )
    core.put(record(token=4))
    assert reporter.drain(5)
    assert order == [("log", []), ("call", [4])]


def test_without_a_log_delivered_means_that_the_callbacks_have_it(core, start):
    seen = []
    reporter = start(Watch(on_stall=lambda _: seen.append(list(core.delivered_tokens))))
    core.put(record(token=4))
    assert reporter.drain(5)
    assert seen == [[]]
    assert core.delivered_tokens == [4]


def test_what_the_watchdog_has_written_is_not_logged_but_called(core, start, caplog):
    seen = []
    core.claimed_by_watchdog.add(4)
    reporter = start(Watch(log=True, on_stall=seen.append))
    core.put(record(token=4, kind="ongoing"))
    core.put(record(token=0))
    assert reporter.drain(5)
    assert [stall.ongoing for stall in seen] == [True, False]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_callback_that_raises_is_logged_once_per_type_and_changes_nothing(core, start, caplog):
    errors = [ValueError("one"), ValueError("two"), SystemExit(3), KeyboardInterrupt(), ValueError("three")]
    seen = []

    def fail(_):
        raise errors[len(seen)]

    watch = Watch(log=True, on_stall=fail)
    watch.sinks.callbacks.add(seen.append)
    reporter = start(watch)
    for n in range(5):
        core.put(record(id=n + 1))
    assert reporter.drain(5)
    assert len(seen) == 5
    assert watch.sinks.counters["callback_errors"] == 5
    failures = [record for record in caplog.records if "failed" in record.getMessage()]
    assert [record.exc_info[0] for record in failures] == [ValueError, SystemExit, KeyboardInterrupt]


def test_without_a_log_failures_are_only_counted(core, start, caplog):
    watch = Watch(on_stall=lambda _: 1 / 0)
    reporter = start(watch)
    core.put(record())
    assert reporter.drain(5)
    assert watch.sinks.counters["callback_errors"] == 1
    assert not caplog.records


def test_a_handler_that_raises_is_counted(core, start):
    class Broken(logging.Handler):
        def emit(self, _):
            raise RuntimeError("disk full")

    logger = logging.Logger("test")
    logger.addHandler(Broken())
    seen = []
    watch = Watch(log=logger, on_stall=seen.append)
    reporter = start(watch)
    core.put(record())
    assert reporter.drain(5)
    assert len(seen) == 1
    assert watch.sinks.counters["log_errors"] == 1


def test_callbacks_as_asyncio_has_them(core, start):
    seen = []
    watch = Watch(on_stall=seen.append)
    watch.sinks.callbacks.add(seen.append)
    reporter = start(watch)
    core.put(record())
    assert reporter.drain(5)
    assert len(seen) == 2
    assert watch.sinks.callbacks.remove(seen.append) == 2
    assert watch.sinks.callbacks.remove(seen.append) == 0
    core.put(record())
    assert reporter.drain(5)
    assert len(seen) == 2


def test_a_broken_record_is_counted_and_the_next_one_arrives(core, start):
    seen = []
    watch = Watch(on_stall=seen.append)
    reporter = start(watch)
    core.put(record(stacks=[[99]]))
    core.put(record(id=2))
    assert reporter.drain(5)
    assert [stall.id for stall in seen] == [2]
    assert watch.sinks.counters["callback_errors"] == 1


def test_history_is_bounded(core, start):
    watch = Watch()
    reporter = start(watch)
    for n in range(HISTORY + 5):
        core.put(record(id=n + 1))
    assert reporter.drain(10)
    assert [watch.sinks.history[0].id, watch.sinks.history[-1].id] == [6, HISTORY + 5]
    assert len(watch.sinks.history) == HISTORY


# --- left out ---


def test_ignored_stalls_are_counted_not_reported(core, start, caplog):
    seen = []
    watch = Watch(log=True, on_stall=seen.append, ignore=["*:load"])
    reporter = start(watch)
    core.put(record(kind="ongoing", token=2))
    core.put(record())
    assert reporter.drain(5)
    assert not seen
    assert not watch.sinks.history
    assert not caplog.records
    assert watch.sinks.counters["stalls_ignored"] == 1


def test_an_ignore_callable_that_raises_ignores_nothing(core, start):
    seen = []
    watch = Watch(on_stall=seen.append, ignore=[lambda _: 1 / 0])
    reporter = start(watch)
    core.put(record())
    assert reporter.drain(5)
    assert len(seen) == 1
    assert watch.sinks.counters["callback_errors"] == 1


def test_suppressed_by_the_limit_is_called_all_the_same(core, start, caplog):
    seen = []
    watch = Watch(log=True, on_stall=seen.append)
    reporter = start(watch)
    for n in range(3):
        core.put(record(id=n + 1))
    assert reporter.drain(5)
    assert len(seen) == 3
    assert len(caplog.records) == 1
    assert watch.sinks.counters["stalls_suppressed"] == 2


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("orders:load", True),
        ("shop.orders:load", True),
        ("shop.*:lo?d", True),
        ("*:load", True),
        ("shop.orders", True),
        ("shop.orders:Load", False),
        ("shop:load", False),
        (":load", False),
        ("*:*", True),
    ],
)
def test_patterns(monkeypatch, pattern, match):
    if "shop" in pattern:
        monkeypatch.syspath_prepend("/srv/app")
    assert matches(pattern, stall()) is match


def test_the_main_program_has_two_names(monkeypatch):
    import __main__

    monkeypatch.setattr(__main__, "__file__", APP, raising=False)
    assert matches("__main__:load", stall())
    assert matches("orders:load", stall())
    assert not matches("*:*", stall(culprit=None))


def test_redact_that_fails_hides_everything():
    watch = Watch(redact=lambda _: 1 / 0)
    assert watch.sinks.build(record()).task.name == REDACTION_FAILED
    watch = Watch(redact=lambda _: None)
    assert watch.sinks.build(record()).task.name == REDACTION_FAILED


def test_gil_capture_joins_the_stall_of_its_turn(core, start):
    seen = []
    watch = Watch(on_stall=seen.append)
    reporter = start(watch)
    ident = threading.get_ident()
    core.put(record(kind="capture", ident=ident, turn=3))
    core.put(record(kind="capture", ident=ident, turn=2))  # over
    core.put(record(samples=[], stacks=[], frames=[]))
    assert reporter.drain(5)
    (made,) = seen
    assert test_gil_capture_joins_the_stall_of_its_turn.__name__ in [frame.qualname for frame in made.frames]
    assert len(made.samples) == 1
    core.put(record(turn=4, samples=[], stacks=[], frames=[]))
    assert reporter.drain(5)
    assert seen[1].frames == ()


def test_building_works_on_a_thread_that_runs_a_loop():
    async def build():
        return Watch().sinks.build(record())

    assert asyncio.run(build()).culprit == Frame(APP, 20, "load")


def test_alarms_are_called_in_their_order_on_the_reporters_thread(start):
    watch = Watch()
    reporter = start(watch)
    alarms, called, done = reporter._watches.alarms, [], threading.Event()
    alarms.call_later(0.05, lambda: (called.append(("late", reporter.is_current)), done.set()))
    alarms.call_later(0.01, lambda: called.append(("soon", reporter.is_current)))
    alarms.call_later(0.02, lambda: called.append(("never", True))).cancel()
    assert done.wait(10)
    assert called == [("soon", True), ("late", True)]


def test_an_alarm_that_raises_ends_nothing(start):
    alarms, done = start(Watch())._watches.alarms, threading.Event()

    def fail():
        raise SystemExit

    alarms.call_later(0.0, fail)
    alarms.call_later(0.01, done.set)
    assert done.wait(10)


@pytest.mark.parametrize(
    ("message", "starts"), [("can't start new thread", False), ("...at interpreter shutdown", True)]
)
def test_no_thread_for_the_reporter(core, monkeypatch, message, starts):
    def refuse(_):
        raise RuntimeError(message)

    seen = []
    reporter = Reporter(Watches(Watch(on_stall=seen.append)))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    if starts:
        reporter.start()
        core.put(record())
        assert reporter.drain(10)
        assert len(seen) == 1
    else:
        with pytest.raises(RuntimeError, match=message):
            reporter.start()
    assert reporter.stop(1)
