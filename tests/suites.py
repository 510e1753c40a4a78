"""Small test suites that a test writes and runs with a pytest of their own, and what became of them."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from programs import environment

_OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+)", re.MULTILINE)
_INI = """
[pytest]
asyncio_default_fixture_loop_scope = function
asyncio_mode = auto
"""
HEAD = """
import asyncio, threading, time, unittest
import pytest

def block(seconds=0.3):
    time.sleep(seconds)

"""
TIMEOUT = 120.0
"""On a machine that has much else to do."""


@dataclass
class Ran:
    returncode: int
    text: str

    @property
    def outcomes(self) -> dict[str, str]:
        """The worst of each test by the last part of its name."""
        found: dict[str, str] = {}
        for outcome, name in _OUTCOME.findall(self.text):
            key = name.split("::")[-1]
            if found.get(key, "PASSED") == "PASSED":
                found[key] = outcome
        return found


class Suite:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "pytest.ini").write_text(_INI)

    def write(self, source: str, name: str = "test_it.py") -> None:
        (self.directory / name).write_text(HEAD + textwrap.dedent(source), encoding="utf-8")

    def ini(self, lines: str) -> None:
        (self.directory / "pytest.ini").write_text(_INI + textwrap.dedent(lines))

    def run(self, *options: str, stdin: str | None = None, env: dict[str, str] | None = None) -> Ran:
        command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:randomly", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *options],
            cwd=self.directory,
            env=environment(env),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return Ran(done.returncode, done.stdout)

    def watched(self, *options: str, **others: object) -> Ran:
        return self.run("--loopwatch", *options, **others)  # type: ignore[arg-type]
