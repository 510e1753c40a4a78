"""A stall that does not end: told on the terminal while it goes on, since the test's own report may never come."""

from __future__ import annotations

import logging
from collections.abc import Callable

from loopwatch._stall import Stall


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
