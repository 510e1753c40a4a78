"""Off unless asked; options, ini, markers, and what is said of wrong ones."""

from __future__ import annotations

import pytest
from suites import Suite

pytest.importorskip("pytest_asyncio")

BLOCKS = """
import sys

async def test_blocks():
    block(0.2)

def test_what_is_imported():
    assert "loopwatch._core" not in sys.modules
    assert "loopwatch" not in sys.modules
"""


def test_off_unless_asked(suite: Suite) -> None:
    suite.write(BLOCKS)
    suite.ini("loopwatch_threshold = 1ms\nloopwatch_mode = warn\nloopwatch_hang_after = 1s\n")
    for options in ((), ("-p", "no:loopwatch")):
        ran = suite.run(*options)
        assert ran.outcomes == {"test_blocks": "PASSED", "test_what_is_imported": "PASSED"}, ran.text
        assert "LoopBlocked" not in ran.text


def test_the_ini_file_asks(suite: Suite) -> None:
    suite.write(
        "async def test_blocks():\n    block(0.2)\nasync def test_clean():\n    await asyncio.sleep(0.01)\n"
    )
    suite.ini("loopwatch = true\nloopwatch_threshold = 50ms\nloopwatch_mode = fail\n")
    ran = suite.run()
    assert ran.outcomes == {"test_blocks": "FAILED", "test_clean": "PASSED"}
    assert "loopwatch: fail above 50.0 ms" in ran.text
    assert suite.run("--loopwatch-mode=report").returncode == 0, "the command line wins"
    assert suite.run("--loopwatch-threshold=10s").returncode == 0


@pytest.mark.parametrize(
    ("option", "outcome"),
    [
        ("--loopwatch-threshold=50ms", "FAILED"),
        ("--loopwatch-mode=fail", "FAILED"),
        ("--loopwatch-mode=report", "PASSED"),
        ("--loopwatch-hang-after=never", "FAILED"),
    ],
)
def test_an_option_asks_as_well(suite: Suite, option: str, outcome: str) -> None:
    suite.write("async def test_blocks():\n    block(0.2)\n")
    ran = suite.run(option)
    assert ran.outcomes == {"test_blocks": outcome}
    assert "where event loops were blocked" in ran.text


def test_the_environment_switches_off(suite: Suite) -> None:
    suite.write("async def test_blocks():\n    block(0.2)\n")
    assert suite.watched(env={"LOOPWATCH": "0"}).returncode == 0


@pytest.mark.parametrize(
    ("option", "value", "accepted"),
    [
        ("--loopwatch-threshold", "soon", "a length of time from 1ms"),
        ("--loopwatch-threshold", "0", "a length of time from 1ms"),
        ("--loopwatch-threshold", "2h", "a length of time from 1ms"),
        ("--loopwatch-mode", "explode", "fail, warn, report"),
        ("--loopwatch-hang-after", "0", "a length of time, as 5s or 1m, or never"),
        ("--loopwatch-hang-after", "none", "a length of time, as 5s or 1m, or never"),
    ],
)
def test_wrong_options(suite: Suite, option: str, value: str, accepted: str) -> None:
    """Also without --loopwatch."""
    suite.write("def test_it():\n    pass\n")
    for ran in (suite.watched(f"{option}={value}"), suite.run(f"{option}={value}")):
        assert ran.returncode == pytest.ExitCode.USAGE_ERROR
        for word in (option, value, accepted):
            assert word in ran.text


def test_wrong_ini(suite: Suite) -> None:
    suite.write("def test_it():\n    pass\n")
    suite.ini("loopwatch_threshold = never\n")
    ran = suite.watched()
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "loopwatch_threshold" in ran.text
    assert "'never'" in ran.text


@pytest.mark.parametrize("marker", ["threshold='x'", "enabled=1", "0.1", "limit=1"])
def test_wrong_markers(suite: Suite, marker: str) -> None:
    suite.write(f"@pytest.mark.loopwatch({marker})\ndef test_it():\n    pass\n")
    ran = suite.watched()
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR, ran.text
    assert "test_it.py::test_it" in ran.text
    assert "pytest.mark.loopwatch" in ran.text


def test_markers(suite: Suite) -> None:
    suite.write(
        """
        @pytest.mark.loopwatch(threshold=0.02)
        async def test_strict():
            block(0.06)
        @pytest.mark.loopwatch(threshold="10s")
        async def test_lenient():
            block()
        async def test_as_ever():
            block(0.06)
        @pytest.mark.loopwatch(enabled=False)
        class TestOff:
            async def test_off(self):
                block()
        """
    )
    ran = suite.watched("--strict-markers", "--loopwatch-threshold=1s")
    assert ran.outcomes == {
        "test_strict": "FAILED",
        "test_lenient": "PASSED",
        "test_as_ever": "PASSED",
        "test_off": "PASSED",
    }, ran.text


def test_markers_are_known_where_it_is_off(suite: Suite) -> None:
    suite.write("@pytest.mark.loopwatch(threshold=0.02)\ndef test_it():\n    pass\n")
    assert suite.run("--strict-markers").returncode == 0


def test_beside_a_program_that_watches_all_itself(suite: Suite) -> None:
    suite.write(
        """
        import loopwatch

        async def test_blocks():
            block()

        def test_own_watch():
            seen = []
            loopwatch.install_all(on_stall=seen.append, log=False, threshold=0.1)
            async def main():
                block(0.2)
            asyncio.run(main())
            loopwatch.uninstall_all()
            assert len(seen) == 1

        def test_own_run():
            async def main():
                block(0.2)
            loopwatch.run(main(), log=False)
        """
    )
    ran = suite.watched()
    assert ran.outcomes == {"test_blocks": "FAILED", "test_own_watch": "PASSED", "test_own_run": "PASSED"}
