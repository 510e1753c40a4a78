"""A full pool in words, and as data."""

import dataclasses
import json
import logging
import re
from collections import Counter

import pytest

from loopwatch import ExecutorState, Frame, Saturation, ThreadInfo
from loopwatch._executors import Executor
from loopwatch._saturation import SaturationLog, busiest, log_saturation

STATE = ExecutorState("io", 4, 4, 4, 28, 1.25, 3.5, 40, 8)
BOOT = Frame("/usr/lib/python3.11/threading.py", 1002, "Thread._bootstrap")
FETCH = Frame("/srv/app/client.py", 12, "fetch")
STORE = Frame("/srv/app/store.py", 3, "store")


def worker(number, *frames):
    return ThreadInfo(f"io_{number}", 100 + number, frames)


WORKERS = (
    worker(0, BOOT, FETCH),
    worker(1, BOOT, STORE),
    worker(2, BOOT, dataclasses.replace(FETCH, lineno=14)),
    worker(3, BOOT, FETCH),
)


def saturation(**changes):
    given = {
        "executor": Executor(None, "io"),
        "waited": 1.25,
        "state": STATE,
        "workers": WORKERS,
        "culprit": FETCH,
        "source": {(FETCH.filename, 12): "return session.get(url)"},
    }
    return Saturation(**{**given, **changes})


def test_summary():
    made = saturation()
    expected = (
        "executor 'io' is full: a call has waited for 1.25 s; 4 of 4 workers busy, "
        "most in fetch (client.py:12); 28 queued"
    )
    assert made.summary == expected
    assert expected in repr(made)
    assert "most in" not in saturation(culprit=None).summary


def test_full_text():
    text = saturation().format()
    assert text.startswith("Thread pool 'io' is full: all of its 4 workers are busy, and 28 calls wait")
    assert "2 of the workers (most recent call last):" in text
    assert text.count("1 of the workers") == 2
    assert 'client.py", line 12, in fetch\n    return session.get(url)' in text
    assert "submitted 40; completed 8; saturated for 3.50 s in all" in text
    assert "What to do:" in text
    assert max(map(len, text.splitlines())) <= 100


def test_many_stacks_are_counted():
    workers = tuple(worker(number, Frame("/srv/app/x.py", number, "x")) for number in range(11))
    text = saturation(workers=workers).format()
    assert text.count("of the workers (") == 8
    assert "and 3 other stacks" in text


def test_what_others_named_is_one_line():
    made = saturation(state=dataclasses.replace(STATE, name="a\nb"))
    assert "\n" not in made.summary
    assert "a\nb" not in made.format()


def test_dict_is_json_with_each_stack_once():
    data = json.loads(json.dumps(saturation().to_dict()))
    assert data["executor"] == "io"
    assert data["waited"] == 1.25
    assert data["state"] == dataclasses.asdict(STATE)
    assert [entry["stack"] for entry in data["workers"]] == [0, 1, 2, 0]
    assert data["stacks"][1][1]["qualname"] == "store"
    assert data["culprit"]["lineno"] == 12
    assert data["source"] == [[FETCH.filename, 12, "return session.get(url)"]]
    assert saturation(culprit=None).to_dict()["culprit"] is None


def test_it_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        saturation().waited = 2.0


def test_where_most_workers_are():
    assert busiest(WORKERS, ()) == FETCH  # by function, then by line
    assert busiest((), ()) is None
    assert busiest((worker(0),), ()) is None


def test_log_record(caplog):
    made = saturation()
    logger = logging.getLogger("full")
    with caplog.at_level(logging.WARNING):
        log_saturation(logger, made, made.summary)
        logger.setLevel(logging.ERROR)
        log_saturation(logger, made, made.summary)
    logger.setLevel(logging.NOTSET)
    (record,) = caplog.records
    assert (record.getMessage(), record.saturation, record.stack_info) == (made.summary, made, made.format())
    assert (record.pathname, record.lineno, record.funcName) == (FETCH.filename, 12, "fetch")


def test_one_executor_is_logged_at_once_and_what_was_held_back_in_a_sum(caplog):
    log = SaturationLog(logging.getLogger("full"), 60.0, Counter())
    reports = [saturation(waited=waited) for waited in (1.25, 1.5, 1.4, 3.75)]
    for report in reports:
        log.take(report)
    log.limiter.tell_all()
    assert [record.saturation for record in caplog.records] == [reports[0], reports[3], reports[1]]
    assert re.fullmatch(
        r"2 more reports of executor 'io' being full in the last .* were held back: "
        r"a call had waited for 1\.50 s at most, most workers in fetch \(client\.py:12\)",
        caplog.records[2].getMessage(),
    )
