"""What is not the program's cost fails no test."""

from __future__ import annotations

import pytest
from programs import full_build
from suites import Suite

pytest.importorskip("pytest_asyncio")


def test_imports_are_free(suite: Suite) -> None:
    """That of the test module, and one that a test makes."""
    slow = "import time\nend = time.perf_counter() + 0.4\nwhile time.perf_counter() < end: pass\n"
    (suite.directory / "slow_module.py").write_text(slow)
    (suite.directory / "slow_test_import.py").write_text(slow)
    suite.write(
        """
        import slow_test_import

        async def test_lazy_import():
            import slow_module
        """
    )
    ran = suite.watched()
    assert ran.outcomes == {"test_lazy_import": "PASSED"}, ran.text
    assert "imports" in ran.text, "and says so"


def test_collections_are_free(suite: Suite) -> None:
    suite.write(
        """
        import gc
        rubbish = [[] for _ in range(3_000_000)]

        @pytest.mark.loopwatch(threshold=0.05)
        async def test_collects():
            gc.collect()
        """
    )
    ran = suite.watched()
    assert ran.outcomes == {"test_collects": "PASSED"}, ran.text


@full_build
def test_a_stop_of_the_process_is_free(suite: Suite) -> None:
    suite.write(
        """
        import os, signal, subprocess, sys

        async def test_stopped():
            code = "import os, signal, sys, time; time.sleep(0.5); os.kill(int(sys.argv[1]), signal.SIGCONT)"
            helper = subprocess.Popen([sys.executable, "-c", code, str(os.getpid())])
            await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGSTOP)
            await asyncio.sleep(0.01)
            await asyncio.to_thread(helper.wait)
        """
    )
    ran = suite.watched("--loopwatch-threshold=300ms")
    assert ran.outcomes == {"test_stopped": "PASSED"}, ran.text


@full_build
def test_a_breakpoint_is_free(suite: Suite) -> None:
    suite.write(
        """
        async def test_debugged():
            breakpoint()
            await asyncio.sleep(0)
        """
    )
    ran = suite.watched("-s", stdin="!import time; time.sleep(0.4)\nc\n")
    assert ran.outcomes == {"test_debugged": "PASSED"}, ran.text


def test_pdb_at_a_failure(suite: Suite) -> None:
    suite.write(
        """
        async def test_blocks():
            block()
        async def test_after():
            await asyncio.sleep(0)
        """
    )
    ran = suite.watched("--pdb", stdin="p 'at the prompt'\nc\n")
    assert "at the prompt" in ran.text
    assert ran.outcomes == {"test_blocks": "FAILED", "test_after": "PASSED"}, ran.text
