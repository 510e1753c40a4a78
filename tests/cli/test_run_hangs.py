"""loopwatch run: a hang is said while it lasts, on standard error alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import GIL, full_build
from test_run import LOOPWATCH, finish, write

BLOCKS = """
import asyncio, ctypes, logging, sys, time
def load(seconds):
    time.sleep(seconds)
def keep(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
async def main(block, seconds):
    await asyncio.sleep(0.05)
    block(seconds)
    print("on the way", file=sys.stderr, flush=True)
    await asyncio.sleep(0.05)
"""
SLEEPS = BLOCKS + "asyncio.run(main(load, 1.6)); print('out'); sys.exit(3)"


def test_it_is_said_while_it_lasts(tmp_path: Path) -> None:
    done = finish(tmp_path, *LOOPWATCH, "run", write(tmp_path, SLEEPS))
    assert (done.returncode, done.stdout) == (3, "out\n")
    before, _, after = done.stderr.partition("on the way\n")
    assert before.startswith("loopwatch: process ")
    assert "so far: blocking-call in load (program.py:4)" in before
    assert "Stack" in before
    assert after.startswith("loopwatch: 1 event loop was watched"), "what has ended is for the summary"
    assert "1 x blocking-call in load" in after


@pytest.mark.parametrize("after", ["never", "1h"])
def test_it_can_be_later_or_not_at_all(tmp_path: Path, after: str) -> None:
    done = finish(tmp_path, *LOOPWATCH, "run", "--hang-after", after, write(tmp_path, SLEEPS))
    assert done.stderr.startswith("on the way\n")


def test_it_can_be_earlier_and_each_time(tmp_path: Path) -> None:
    source = BLOCKS + "\nfor _ in range(3): asyncio.run(main(load, 0.4))"
    done = finish(tmp_path, *LOOPWATCH, "run", "--hang-after", "150ms", write(tmp_path, source))
    assert done.stderr.count("so far: blocking-call in load") == 3


@full_build
@pytest.mark.skipif(not GIL, reason="nobody holds what is not there")
def test_it_is_said_where_python_cannot_run(tmp_path: Path) -> None:
    source = BLOCKS + "asyncio.run(main(keep, 2.5))"
    done = finish(tmp_path, *LOOPWATCH, "run", write(tmp_path, source))
    before, _, after = done.stderr.partition("on the way\n")
    assert "has not come back for" in before
    assert "keep" in before
    assert "so far" not in after


@pytest.mark.parametrize(
    "spoil",
    [
        "logging.disable(logging.CRITICAL)",
        "import logging.config; logging.config.dictConfig({'version': 1, 'disable_existing_loggers': True})",
        "sys.stderr = open('elsewhere', 'w')",
    ],
)
def test_whatever_the_program_does_to_its_own(tmp_path: Path, spoil: str) -> None:
    source = BLOCKS + spoil + "\nasyncio.run(main(load, 0.4))"
    done = finish(tmp_path, *LOOPWATCH, "run", "--hang-after", "150ms", write(tmp_path, source))
    assert done.stderr.count("so far: blocking-call in load") == 1


@pytest.mark.parametrize("value", ["soon", "0", "-1s", ""])
def test_what_is_no_length_of_time(tmp_path: Path, value: str) -> None:
    done = finish(tmp_path, *LOOPWATCH, "run", f"--hang-after={value}", write(tmp_path, "print('ran')"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--hang-after" in done.stderr


@pytest.mark.parametrize("program", [["program.py"], ["-m", "program"], ["--", "program.py"]])
def test_the_options_may_be_ended(tmp_path: Path, program: list[str]) -> None:
    write(tmp_path, "import sys; print(sys.argv[1:])")
    done = finish(tmp_path, *LOOPWATCH, "run", "--threshold", "50ms", *program, "--", "-x")
    assert done.stdout == "['--', '-x']\n", done
