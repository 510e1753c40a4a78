"""What a program under `loopwatch run` is blocked in, on standard error while it lasts."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

_STDERR: Final = 2


class HangLog(logging.Logger):
    """The `log` of every watch: a stall is an error while it goes on; one that has ended is for the summary. Whatever
    the program does to its own logging, or to sys.stderr."""

    def __init__(self) -> None:
        super().__init__("loopwatch")
        self._formatter = logging.Formatter()

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        return level >= logging.ERROR

    def handle(self, record: logging.LogRecord) -> None:
        text = f"loopwatch: process {os.getpid()}: {self._formatter.format(record)}\n"
        data = text.encode(errors="backslashreplace")
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(_STDERR, data) :]
