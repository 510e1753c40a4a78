"""Tests that mock the clocks are watched by the real ones."""

from __future__ import annotations

import pytest
from suites import Suite

pytest.importorskip("pytest_asyncio")


def test_a_clock_that_raises_reaches_no_other_test(suite: Suite) -> None:
    suite.write("""
        from unittest.mock import Mock

        @pytest.fixture(params=["time", "monotonic", "monotonic_ns"])
        def mocked(request, monkeypatch):
            monkeypatch.setattr(time, request.param, Mock(side_effect=[1, 2]))

        def test_mocks(mocked):
            pass

        async def test_after():
            await asyncio.sleep(0.01)
    """)
    ran = suite.watched()
    assert set(ran.outcomes.values()) == {"PASSED"}, ran.text
    assert len(ran.outcomes) == 4


def test_a_stall_while_the_clock_stands_in_the_future(suite: Suite) -> None:
    suite.write("""
        @pytest.fixture
        def future(monkeypatch):
            monkeypatch.setattr(time, "time", lambda: 4e9)

        async def test_blocks(future):
            block()
    """)
    ran = suite.watched()
    assert ran.outcomes == {"test_blocks": "FAILED"}, ran.text
    assert "test_it.py" in ran.text.partition("where event loops were blocked")[2]
