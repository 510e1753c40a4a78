"""Log records, and how many of them there are."""

import logging

import pytest
from records import APP, stall

from loopwatch._log import KINDS_MAX, LogLimiter, log_stall


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limiter(clock):
    return LogLimiter(60.0, clock)


def test_first_at_once_then_one_a_minute_that_counts_the_rest(limiter, clock):
    assert limiter.admit(stall(id=1)) == (0, 0.0)
    for n in range(5):
        clock.now += 10
        assert limiter.admit(stall(id=2 + n, duration=0.5)) is None
    clock.now += 10
    assert limiter.admit(stall(id=9)) == (5, 2.5)
    clock.now += 60
    assert limiter.admit(stall(id=10)) == (0, 0.0)


def test_each_kind_has_its_own_limit(limiter):
    assert limiter.admit(stall(id=1, fingerprint="a")) is not None
    assert limiter.admit(stall(id=2, fingerprint="b")) is not None
    assert limiter.admit(stall(id=3, fingerprint="a")) is None


def test_a_hang_that_was_logged_is_logged_when_it_ends(limiter):
    assert limiter.admit(stall(id=1, ongoing=True, fingerprint="early")) is not None
    assert limiter.admit(stall(id=1, ongoing=True, fingerprint="early")) is not None
    assert limiter.admit(stall(id=1, fingerprint="late")) is not None
    assert limiter.admit(stall(id=2, fingerprint="early")) is None


def test_a_hang_that_was_held_back_stays_so_and_counts_once(limiter, clock):
    limiter.admit(stall(id=1))
    assert limiter.admit(stall(id=2, ongoing=True, duration=1.0)) is None
    assert limiter.admit(stall(id=2, ongoing=True, duration=10.0)) is None
    assert limiter.admit(stall(id=2, duration=12.0)) is None
    clock.now += 60
    assert limiter.admit(stall(id=3)) == (1, 12.0)


def test_memory_is_bounded(limiter):
    for n in range(KINDS_MAX + 10):
        limiter.admit(stall(id=n + 1, fingerprint=str(n)))
    assert len(limiter._kinds) == KINDS_MAX
    assert limiter.admit(stall(id=99_999, fingerprint="0")) is not None


def test_zero_means_no_limit(clock):
    limiter = LogLimiter(0.0, clock)
    assert limiter.admit(stall(id=1)) == limiter.admit(stall(id=2)) == (0, 0.0)


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


def test_what_was_held_back_is_said(caplog):
    log_stall(logging.getLogger("test-log"), stall(), (5, 2.5))
    assert caplog.records[0].getMessage().endswith("(and 5 more since the last such record, 2.50 s in all)")


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
