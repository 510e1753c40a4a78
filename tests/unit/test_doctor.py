"""doctor() on what the native half says of its sources."""

import pytest

from loopwatch import _core, doctor

ALL = {"schedstat": True, "syscall": True, "stat": True, "throttled": True, "gil": None, "gc": True}
NAMES = {
    "schedstat": "run queue",
    "syscall": "system call",
    "stat": "thread state",
    "throttled": "throttling",
    "gil": "GIL holder",
    "gc": "gc clock",
}


@pytest.fixture
def checks(monkeypatch):
    facts = _core.facts()

    def checks(**changes):
        monkeypatch.setattr(_core, "facts", lambda: facts | {"watchdog": True} | changes)
        report = doctor()
        assert "evidence" not in report.facts, "the checks say it"
        return {check.name: check for check in report.checks}

    return checks


def test_every_source_that_works(checks):
    found = checks(evidence=ALL, descriptor_table_failed_call=None)
    assert all(found[name].ok for name in [*NAMES.values(), "pidfd"])


@pytest.mark.parametrize("source", NAMES)
def test_a_source_that_is_missing_says_why(checks, source):
    lacking = ALL | {source: "this build has no GIL" if source == "gil" else False}
    found = checks(evidence=lacking)
    assert [name for name in NAMES.values() if not found[name].ok] == [NAMES[source]]
    assert found[NAMES[source]].detail != checks(evidence=ALL)[NAMES[source]].detail


def test_the_reason_for_no_holder_is_the_native_halfs(checks):
    assert checks(evidence=ALL | {"gil": "because"})["GIL holder"].detail == "because"


def test_a_refused_pidfd(checks):
    found = checks(evidence=ALL, descriptor_table_failed_call="pidfd_getfd")["pidfd"]
    assert not found.ok
    assert "pidfd_getfd is refused" in found.detail
    assert checks(evidence=ALL, descriptor_table_failed_call="close_range")["pidfd"].ok


def test_nothing_is_said_of_sources_that_are_not_known(checks):
    found = checks(evidence={})
    assert found.keys().isdisjoint([*NAMES.values(), "pidfd"])


def test_sources_are_not_judged_before_the_watchdog_opened_them(checks):
    found = checks(watchdog=False, evidence=ALL | {"schedstat": False})
    assert found["evidence"].ok
    assert found.keys().isdisjoint([*NAMES.values(), "pidfd"])
