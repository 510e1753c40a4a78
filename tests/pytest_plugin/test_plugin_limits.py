"""To which limit what is held, and what happens where stalls are not delivered."""

from __future__ import annotations

import pytest
from suites import Suite

pytest.importorskip("pytest_asyncio")

SHARED = """
    @pytest.fixture(scope="module")
    def slow():
        async def main():
            block(0.4)
        asyncio.run(main())

    {marker}
    def test_it(slow):
        async def main():
            block({own})
        asyncio.run(main())
"""


def test_a_shared_fixture_is_held_to_the_sessions_threshold(suite: Suite) -> None:
    """Also where the test that comes first may take longer; and what the test itself does is held to its marker."""
    suite.write(SHARED.format(marker="@pytest.mark.loopwatch(threshold=5.0)", own=0.3))
    ran = suite.watched()
    assert ran.outcomes == {"test_it": "ERROR"}, ran.text
    assert "setup of fixture 'slow' (module scope)" in ran.text
    assert "limit 100 ms" in ran.text
    assert "300 ms" not in ran.text, "what a test may take is not in the summary"


def test_a_shared_fixture_under_a_marker_that_is_stricter(suite: Suite) -> None:
    suite.write(SHARED.format(marker="@pytest.mark.loopwatch(threshold=0.05)", own=0))
    ran = suite.watched("--loopwatch-threshold=2s")
    assert ran.outcomes == {"test_it": "PASSED"}, ran.text


def test_stalls_that_are_not_delivered_are_no_secret(suite: Suite) -> None:
    """Here nothing is: the plugin waits for long once only, and says of each phase that it does not know."""
    (suite.directory / "conftest.py").write_text(
        "from loopwatch.pytest import plugin\n"
        "def deliver(timeout):\n"
        "    print(f'waited {timeout:.0f} s')\n"
        "    return False\n"
        "plugin.deliver = deliver\n"
    )
    suite.write("""
        def test_it():
            pass
    """)
    ran = suite.watched("-s")
    assert ran.outcomes == {"test_it": "PASSED"}, ran.text
    assert "LoopwatchWarning: test_it.py::test_it: stalls of its call were not delivered in time" in ran.text
    assert ran.text.count("waited 20 s") == 1
    assert ran.text.count("waited 2 s") >= 2
