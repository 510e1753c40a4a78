"""Programs that a test runs in a process of its own, and what came of them.

A program is a piece of source. tests/ is on its path, for scenario.py; it says what it saw with
scenario.say(), one JSON object a line on standard output. Warnings are errors in it, as in the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import loopwatch
from loopwatch import _core

full_build = pytest.mark.skipif(
    _core.PORTABLE,
    reason="the portable build dumps no frames, keeps the program's descriptors and sees no tracer",
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")

HERE = Path(__file__).parent
LIBRARY = Path(loopwatch.__file__).parent.parent
TIMEOUT = 30.0
"""A program that hangs is a failure; on a busy machine a sound one may take five times as long as alone."""

GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Without one, C code that keeps its thread state keeps nobody else from running."""


@dataclass
class Finished:
    """A program that has ended."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)
    """What it said, all lines together."""

    def check(self) -> dict[str, Any]:
        """What it said, of a program that ended as it should: status 0, nothing on standard error."""
        assert (self.returncode, self.stderr) == (0, ""), self
        return self.facts


def environment(changes: dict[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOPWATCH", "PYTHON"))}
    path = os.pathsep.join((str(LIBRARY), str(HERE)))
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **(changes or {})}


def command(source: str, *args: str) -> list[str]:
    return [sys.executable, "-W", "error", "-c", textwrap.dedent(source), *args]


def run_program(
    source: str,
    *args: str | Path,
    env: dict[str, str] | None = None,
    timeout: float = TIMEOUT,
    preexec: Callable[[], None] | None = None,
    stdin: str | None = None,
    file: Path | None = None,
    wrapper: Sequence[str] = (),
) -> Finished:
    """`file`: write the source there and run that. `wrapper`: a command before it."""
    line = command(source, *map(str, args))
    if file is not None:
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        line[3:5] = [str(file)]
    begin = time.monotonic()
    ended = subprocess.run(
        [*wrapper, *line],
        env=environment(env),
        timeout=timeout,
        preexec_fn=preexec,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        check=False,
    )
    return Finished(
        ended.returncode, ended.stdout, ended.stderr, time.monotonic() - begin, said(ended.stdout)
    )


def said(stdout: str) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in stdout.splitlines():
        with contextlib.suppress(ValueError):
            facts.update(json.loads(line))
    return facts


@contextlib.contextmanager
def started(source: str, *args: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that runs while the test does, and is killed at the end if it still does."""
    program = subprocess.Popen(
        command(source, *map(str, args)), env=environment(), text=True, stdout=subprocess.PIPE, **options
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            program.send_signal(signal.SIGKILL)
        program.communicate()


def next_fact(program: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that it says."""
    assert program.stdout is not None
    return said(program.stdout.readline())


def wait_until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """The first true answer; a failure where none comes."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return answer
