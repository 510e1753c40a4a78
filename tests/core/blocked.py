"""Threads blocked on purpose, and looks at them through the kernel's files."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from loopwatch import _testcore

PATIENCE = 20.0  # seconds until a thread must have come to its call; only a broken one takes that long
Look = dict[str, Any]


def look_until(tid: int, stand: str, calls: tuple[str, ...], own_table: bool = True) -> Look:
    """The first look that finds the thread there. It passes through other calls on its way."""
    deadline = time.monotonic() + PATIENCE
    while True:
        look: Look = _testcore.thread_look(tid, own_table)
        if look["stand"] == stand and (not calls or look["syscall"] in calls):
            return look
        assert time.monotonic() < deadline, look
        time.sleep(0.005)


def wait_until_gone(tid: int) -> None:
    """Python joins a thread a little before the kernel has forgotten it."""
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/self/task/{tid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@contextmanager
def running(target: Callable[[], object], release: Callable[[], object]) -> Iterator[int]:
    """A thread inside `target`, which `release` ends."""

    def work() -> None:
        with suppress(OSError):
            target()

    thread = threading.Thread(target=work)
    thread.start()
    assert thread.native_id
    try:
        yield thread.native_id
    finally:
        release()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def target_of(target: Callable[[], object], release: Callable[[], object], *calls: str) -> str:
    """Both tables, the watchdog's own and the shared one, must have the same answer."""
    with running(target, release) as tid:
        look = look_until(tid, "call", calls)
        assert look_until(tid, "call", calls, own_table=False)["target"] == look["target"]
    text = look["target"]
    assert isinstance(text, str)
    return text


PRELUDE = """
    import ctypes, os, sys, threading, time
    from pathlib import Path
    from loopwatch import _testcore
"""


def run_program(source: str, *arguments: str) -> str:
    """Runs it in an interpreter of its own, which exits with "SKIP ..." where it cannot do its part."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = textwrap.dedent(PRELUDE) + textwrap.dedent(source)
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    if done.stderr.startswith("SKIP "):
        pytest.skip(done.stderr[5:].strip())
    assert done.returncode == 0, done.stderr
    return done.stdout
