"""A stall that does not end, told while it goes on by who watches for somebody else: the command line, the plugin."""

from __future__ import annotations

import logging
from collections.abc import Callable


class HangLog(logging.Logger):
    """install's `log` for what is an error: stalls that go on. What the watchdog has written itself, to `dump_to`, does
    not come here; the log is the one sink of which that is true."""

    def __init__(self, tell: Callable[[logging.LogRecord], object]) -> None:
        super().__init__("loopwatch")
        self._tell = tell

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        """Whatever the program does to logging, as logging.disable()."""
        return level >= logging.ERROR

    def handle(self, record: logging.LogRecord) -> None:
        self._tell(record)
