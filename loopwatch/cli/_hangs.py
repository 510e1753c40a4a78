"""What a program under `loopwatch run` is blocked in, on standard error while it lasts."""

from __future__ import annotations

import logging
import os

from loopwatch._terminal import Terminal


class HangLog(logging.Logger):
    """The `log` of every watch: a stall is an error while it goes on; one that has ended is for the summary. Whatever
    the program does to its own logging, or to its standard error."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__("loopwatch")
        self._terminal = terminal
        self._formatter = logging.Formatter()

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        return level >= logging.ERROR

    def handle(self, record: logging.LogRecord) -> None:
        self._terminal.write(f"loopwatch: process {os.getpid()}: {self._formatter.format(record)}\n")
