"""A few fast modules of CPython's own asyncio tests, watched; asyncio_suite.py runs more of them, in CI."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("asyncio_suite.py")
MODULES = ["test_context", "test_locks", "test_queues", "test_server", "test_timeouts", "test_unix_events"]


def test_cpythons_own_tests_pass_watched_as_they_do_unwatched() -> None:
    pytest.importorskip("test.test_asyncio", reason="this interpreter has no test package")
    done = subprocess.run(
        [sys.executable, PROGRAM, *MODULES], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 differ" in done.stdout
    assert (found := re.search(r"(\d+) loops and selectors watched", done.stdout))
    assert int(found[1]) > 100
