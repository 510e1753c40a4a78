"""A stall that does not end: told on the terminal while it goes on, since the test's own report may never come."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable

from loopwatch._files import identity
from loopwatch._stall import Stall


class Terminal:
    """Standard error, past pytest's capture: duplicated while nothing is captured."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._identity = identity(os.fstat(descriptor))

    @classmethod
    def of_this_process(cls) -> Terminal | None:
        """None where it has none."""
        if sys.__stderr__ is None:
            return None
        try:
            return cls(os.dup(sys.__stderr__.fileno()))
        except (OSError, ValueError):  # closed
            return None

    def write(self, text: str) -> None:
        left = text.encode(errors="backslashreplace")
        with contextlib.suppress(OSError):
            while left and self._is_ours():
                left = left[os.write(self.descriptor, left) :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if self._is_ours():
                os.close(self.descriptor)

    def _is_ours(self) -> bool:
        """False where a test has closed all descriptors: the number may be another file's by now."""
        return identity(os.fstat(self.descriptor)) == self._identity


class HangLog(logging.Logger):
    """install's `log` for stalls that go on. What the watchdog has written itself, to `dump_to`, does not come here;
    the log is the one sink of which that is true."""

    def __init__(self, tell: Callable[[Stall, str], object]) -> None:
        super().__init__("loopwatch.pytest")
        self._tell = tell

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        """Also where a test has called logging.disable()."""
        return level >= logging.ERROR  # of ongoing stalls

    def handle(self, record: logging.LogRecord) -> None:
        if (stall := getattr(record, "stall", None)) is not None:
            self._tell(stall, record.stack_info or "")
