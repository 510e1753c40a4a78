"""A stall that does not end is told while it goes on, where nothing captures it."""

from __future__ import annotations

import signal
import textwrap

import pytest
from programs import full_build
from suites import Suite

pytest.importorskip("pytest_asyncio")

DEADLOCK = """
def deadlock(seconds):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)
"""
SOON = "--loopwatch-hang-after=300ms"


def write(suite: Suite, source: str) -> None:
    suite.write(DEADLOCK + textwrap.dedent(source))


def test_a_deadlock_is_told_while_it_lasts(suite: Suite) -> None:
    """With its test, its stack and its fixture; also where the test is killed and the process says nothing more."""
    write(
        suite,
        """
        import os, signal

        @pytest.fixture
        async def stuck():
            deadlock(1.0)

        async def test_after_a_fixture(stuck):
            pass

        async def test_killed():
            print("captured")
            killer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGKILL))
            killer.start()
            deadlock(60.0)
        """,
    )
    ran = suite.watched(SOON, "--loopwatch-mode=report")
    assert ran.returncode == -signal.SIGKILL, ran.text
    assert "captured" not in ran.text
    in_fixture, _, in_test = ran.text.partition("loopwatch: test_it.py::test_killed hangs\n")
    assert "loopwatch: test_it.py::test_after_a_fixture hangs, setup of fixture 'stuck'\n" in in_fixture
    for told in (in_fixture, in_test):
        assert "The event loop has been blocked for" in told
        assert "waiting for a lock" in told
        assert "in deadlock" in told
        assert "lock.acquire(timeout=seconds)" in told


def test_it_is_told_again_at_the_tenfold_age(suite: Suite) -> None:
    write(suite, "\nasync def test_it():\n    deadlock(2.5)\n")
    ran = suite.watched("--loopwatch-hang-after=150ms", "--loopwatch-threshold=100ms")
    assert ran.text.count("loopwatch: test_it.py::test_it hangs\n") == 2
    assert ran.outcomes == {"test_it": "FAILED"}
    assert "so far" not in ran.text.partition("= FAILURES =")[2], "the test is charged for the whole"


def test_outcomes_stay_as_they_are(suite: Suite) -> None:
    """Whatever a test does to logging; and what may block is not told."""
    write(
        suite,
        """
        import logging

        @pytest.mark.loopwatch(threshold=20)
        async def test_may_block():
            deadlock(0.8)
        @pytest.mark.loopwatch(enabled=False)
        async def test_off():
            deadlock(0.8)
        @pytest.mark.xfail(strict=True)
        async def test_expected(caplog):
            logging.disable()
            deadlock(0.8)
            assert not caplog.records
        """,
    )
    ran = suite.watched(SOON)
    assert ran.outcomes == {"test_may_block": "PASSED", "test_off": "PASSED", "test_expected": "XFAIL"}, (
        ran.text
    )
    assert ran.text.count(" hangs") == 1
    assert "test_expected hangs" in ran.text


@pytest.mark.parametrize("after", ["never", "30s"])
def test_nothing_is_told_before_its_time(suite: Suite, after: str) -> None:
    write(suite, "\nasync def test_it():\n    deadlock(1.5)\n")
    ran = suite.watched(f"--loopwatch-hang-after={after}", "--loopwatch-mode=report")
    assert ran.outcomes == {"test_it": "PASSED"}
    assert " hangs" not in ran.text


@full_build
def test_where_the_gil_is_held(suite: Suite) -> None:
    """By the watchdog itself. The regular expression takes seconds; what is killed first had its report."""
    suite.write(
        """
        import os, re, signal, subprocess, sys

        async def test_backtracks():
            code = "import os, signal, sys, time; time.sleep(4); os.kill(int(sys.argv[1]), signal.SIGKILL)"
            subprocess.Popen([sys.executable, "-c", code, str(os.getpid())])
            re.match("(a+)+$", "a" * 40 + "b")
        """
    )
    ran = suite.watched("--loopwatch-hang-after=500ms")
    assert ran.returncode == -signal.SIGKILL, ran.text
    assert 'the event loop of thread "MainThread"' in ran.text
    assert "in test_backtracks" in ran.text


@full_build
def test_a_breakpoint_is_no_hang(suite: Suite) -> None:
    suite.write(
        """
        async def test_debugged():
            breakpoint()
            await asyncio.sleep(0)
        """
    )
    ran = suite.watched("-s", SOON, stdin="!import time; time.sleep(1.0)\nc\n")
    assert ran.outcomes == {"test_debugged": "PASSED"}, ran.text
    assert " hangs" not in ran.text
    assert "has not come back" not in ran.text


@full_build
def test_a_stop_of_the_process_is_no_hang(suite: Suite) -> None:
    suite.write(
        """
        import os, signal, subprocess, sys

        async def test_stopped():
            code = "import os, signal, sys, time; time.sleep(1.5); os.kill(int(sys.argv[1]), signal.SIGCONT)"
            helper = subprocess.Popen([sys.executable, "-c", code, str(os.getpid())])
            os.kill(os.getpid(), signal.SIGSTOP)
            end = time.perf_counter() + 0.05  # it goes on for a little while
            while time.perf_counter() < end:
                pass
            await asyncio.to_thread(helper.wait)
        """
    )
    ran = suite.watched("--loopwatch-hang-after=1s", "--loopwatch-threshold=500ms")
    assert ran.outcomes == {"test_stopped": "PASSED"}, ran.text
    assert " hangs" not in ran.text


def test_from_the_workers_of_xdist(suite: Suite) -> None:
    pytest.importorskip("xdist")
    write(suite, "\nasync def test_it():\n    deadlock(1.0)\n")
    ran = suite.watched(SOON, "--loopwatch-mode=report", "-n", "1")
    assert ran.outcomes == {"test_it": "PASSED"}
    assert ran.text.count("loopwatch: test_it.py::test_it hangs\n") == 1


def test_after_a_test_that_closes_descriptors(suite: Suite) -> None:
    """The next loop is watched as ever, and nothing is written to what has the number now."""
    write(
        suite,
        """
        import os

        def test_closes():
            os.closerange(3, 200)

        async def test_blocks(tmp_path):
            files = [(tmp_path / str(number)).open("w") for number in range(20)]
            deadlock(1.0)
            assert not any(os.fstat(file.fileno()).st_size for file in files)
        """,
    )
    ran = suite.watched(SOON, "-s")
    assert ran.outcomes == {"test_closes": "PASSED", "test_blocks": "FAILED"}, ran.text
    assert "LoopBlocked" in ran.text
    assert "AssertionError" not in ran.text
