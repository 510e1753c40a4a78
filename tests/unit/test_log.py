"""Log records, and how many of them there are."""

import collections
import logging

import pytest
from records import APP, stall

from loopwatch._limit import HeldBack
from loopwatch._log import StallLog, held_back_summary, log_held_back, log_stall

LOGGER = logging.getLogger("test-log")


@pytest.fixture
def log():
    return StallLog(LOGGER, 60.0, collections.Counter())


def ids(caplog):
    return [(record.stall.id, record.stall.ongoing) for record in caplog.records]


def test_a_hang_that_was_logged_is_logged_when_it_ends(log, caplog):
    log.take(stall(id=1, ongoing=True, duration=1.0, fingerprint="early"))
    log.take(stall(id=1, ongoing=True, duration=1.1, fingerprint="early"))
    log.take(stall(id=1, duration=1.2, fingerprint="late"))
    log.take(stall(id=2, duration=1.0, fingerprint="early"))
    log.take(stall(id=3, duration=1.0, fingerprint="late"))
    assert ids(caplog) == [(1, True), (1, True), (1, False)]


def test_a_hang_is_told_once_it_is_much_worse_and_counts_once(log, caplog):
    log.take(stall(id=1, duration=1.0))
    for duration in (1.0, 2.0):
        log.take(stall(id=2, ongoing=True, duration=duration))
    assert ids(caplog) == [(1, False)]
    log.take(stall(id=2, ongoing=True, duration=10.0))
    log.take(stall(id=2, duration=12.0))
    assert ids(caplog) == [(1, False), (2, True), (2, False)]
    assert not log.limiter.holds_back


def test_a_hang_that_ends_before_it_is_much_worse_is_held_back_once(caplog):
    counters = collections.Counter()
    log = StallLog(LOGGER, 60.0, counters)
    log.take(stall(id=1, duration=1.0))
    log.take(stall(id=2, ongoing=True, duration=1.0))
    log.take(stall(id=2, duration=1.5))
    log.limiter.tell_all()
    assert ids(caplog) == [(1, False), (2, False)]
    assert caplog.records[1].getMessage().startswith("1 more stall in load (orders.py)")
    assert counters["stalls_suppressed"] == 1


def test_a_handler_that_raises_is_counted():
    class Broken(logging.Handler):
        def emit(self, _record):
            raise SystemExit

    logger = logging.Logger("broken")
    logger.addHandler(Broken())
    counters = collections.Counter()
    log = StallLog(logger, 60.0, counters)
    log.take(stall(id=1))
    log.take(stall(id=2))
    log.limiter.tell_all()
    assert counters["log_errors"] == 2
    assert not log.limiter.holds_back


# --- the record ---


def test_the_record(caplog):
    made = stall()
    with caplog.at_level(logging.WARNING, "test-log"):
        log_stall(logging.getLogger("test-log"), made)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == made.summary
    assert record.stack_info == made.format()
    assert record.stall is made
    assert (record.pathname, record.lineno, record.funcName) == (APP, 20, "load")


def test_a_hang_is_an_error(caplog):
    log_stall(logging.getLogger("test-log"), stall(ongoing=True))
    assert caplog.records[0].levelno == logging.ERROR


def test_what_was_held_back_is_a_record_of_the_worst(caplog):
    worst = stall(duration=0.9)
    log_held_back(LOGGER, HeldBack(4, 1.3, worst, 0.9, 60.0))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "4 more stalls in load (orders.py) in the last 60 s were held back: "
        f"1.30 s in all, the worst 900 ms at orders.py:20 ({worst.verdict})"
    )
    assert record.stall is worst
    assert record.stack_info == worst.format()
    assert (record.pathname, record.lineno, record.funcName) == (APP, 20, "load")


def test_one_that_was_held_back_by_nobody():
    worst = stall(duration=0.9, culprit=None)
    assert held_back_summary(HeldBack(1, 0.9, worst, 0.9, 1.25)) == (
        f"1 more stall in the last 1.25 s was held back: 900 ms ({worst.verdict})"
    )


def test_percent_signs_are_text(caplog):
    made = stall(task=None, culprit=None, fingerprint="%s %d")
    log_stall(logging.getLogger("100%s"), made)
    assert caplog.records[0].getMessage() == made.summary


class Prefix(logging.LoggerAdapter):
    def process(self, msg, kwargs):
        return f"[shop] {msg}", kwargs


def test_adapters(caplog):
    made = stall()
    inner = logging.LoggerAdapter(logging.getLogger("test-log"), {"service": "shop"})
    log_stall(Prefix(inner, {}), made)
    (record,) = caplog.records
    assert record.getMessage() == f"[shop] {made.summary}"
    assert record.service == "shop"
    assert record.stall is made


def test_a_level_that_is_off_costs_no_text(monkeypatch):
    logger = logging.getLogger("test-quiet")
    logger.setLevel(logging.CRITICAL)
    monkeypatch.setattr(type(stall()), "format", lambda _: pytest.fail("formatted for nobody"))
    log_stall(logger, stall())
