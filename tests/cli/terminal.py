"""A program in a terminal of its own, and what its screen shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pyte
import pytest
from programs import environment


class Terminal:
    """The screen as a person would see it: 80 columns and 24 lines, unless it is resized."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid, self._descriptor = pid, descriptor
        self.ended: int | None = None
        self.resize(80, 24)

    def resize(self, columns: int, lines: int) -> None:
        """Empty then, so that what was there before is not taken for the new picture."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    def press(self, key: str) -> None:
        os.write(self._descriptor, key.encode())

    def hang_up(self) -> None:
        """The program has no terminal any more. Nothing can be read of it then."""
        self._read()
        os.close(self._descriptor)
        self._descriptor = -1

    @property
    def lines(self) -> list[str]:
        self._read()
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, condition: Callable[[str], object], seconds: float = 20) -> str:
        """The first screen for which it is true."""
        deadline = time.monotonic() + seconds
        while not condition(text := self.text):
            assert time.monotonic() < deadline, f"too late:\n{text}"
            assert self.ended is None, f"status {self.ended}:\n{text}"
            time.sleep(0.02)
        return text

    def wait(self, seconds: float = 20) -> int:
        """Its exit status."""
        deadline = time.monotonic() + seconds
        while self.ended is None:
            assert time.monotonic() < deadline, self.text
            self._read()
            time.sleep(0.02)
        return self.ended

    def _read(self) -> None:
        while self._descriptor >= 0 and select.select([self._descriptor], [], [], 0)[0]:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except OSError:  # its last process has ended
                data = b""
            if not data:
                break
            self._stream.feed(data)
        if self.ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.ended = os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def terminal(*arguments: str) -> Iterator[Terminal]:
    """`python` with these arguments."""
    try:
        for end in os.openpty():
            os.close(end)
    except OSError as problem:  # a container without /dev/pts
        pytest.skip(f"there is no terminal to be had here: {problem}")
    pid, descriptor = pty.fork()
    if not pid:
        try:
            os.execve(
                sys.executable,
                [sys.executable, *arguments],
                environment({"TERM": "xterm-256color", "COLUMNS": "80"}),
            )
        finally:
            os._exit(127)
    shown = Terminal(pid, descriptor)
    try:
        yield shown
    finally:
        if shown.ended is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if shown._descriptor >= 0:
            os.close(descriptor)
