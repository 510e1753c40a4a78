"""Stalls as log records: the first of its kind at once, then one a minute that counts those held back."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loopwatch._options import Logger
from loopwatch._stall import Frame, Stall
from loopwatch._text import seconds

KINDS_MAX = 1024
"""Fingerprints remembered; the one that was logged longest ago is forgotten first."""


@dataclass(slots=True)
class Limit:
    """One in so many seconds, and what is held back in between."""

    logged_at: float | None = None
    held_back: int = 0
    held_back_seconds: float = 0.0

    def ask(self, now: float, every: float) -> tuple[int, float] | None:
        """(how many were held back since the last one, their seconds); None: this one is to be, too."""
        if self.logged_at is not None and now - self.logged_at < every:
            return None
        answer = self.held_back, self.held_back_seconds
        self.logged_at, self.held_back, self.held_back_seconds = now, 0, 0.0
        return answer

    def hold_back(self, seconds: float = 0.0) -> None:
        self.held_back += 1
        self.held_back_seconds += seconds


class LogLimiter:
    """Decides once for each stall: a hang that was logged while it went on is also logged when it ends."""

    def __init__(self, every: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every, self._clock = every, clock
        self._kinds: OrderedDict[str, Limit] = OrderedDict()
        self._ongoing: dict[int, bool] = {}

    def admit(self, stall: Stall) -> tuple[int, float] | None:
        """(stalls held back since the last record, their seconds); None: this one is held back too."""
        if stall.id in self._ongoing:
            admitted = self._ongoing[stall.id]
            if not stall.ongoing:
                del self._ongoing[stall.id]
                if not admitted:
                    self._hold_back(stall)
            return (0, 0.0) if admitted else None
        answer = self._ask(stall)
        if stall.ongoing:
            self._ongoing[stall.id] = answer is not None
        elif answer is None:
            self._hold_back(stall)
        return answer

    def _ask(self, stall: Stall) -> tuple[int, float] | None:
        kind = self._kinds.setdefault(stall.fingerprint, Limit())
        answer = kind.ask(self._clock(), self._every)
        if answer is not None:
            self._kinds.move_to_end(stall.fingerprint)
            while len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        return answer

    def _hold_back(self, stall: Stall) -> None:
        if kind := self._kinds.get(stall.fingerprint):
            kind.hold_back(stall.duration)


def log_stall(logger: Logger, stall: Stall, held_back: tuple[int, float] = (0, 0.0)) -> None:
    """WARNING, or ERROR while it goes on. The record points at the culprit, not at this file."""
    message = stall.summary
    if held_back[0]:
        message += f" (and {held_back[0]} more since the last such record, {seconds(held_back[1])} in all)"
    level = logging.ERROR if stall.ongoing else logging.WARNING
    log_report(logger, level, message, stall.culprit, {"stall": stall}, stall.format)


def log_report(
    logger: Logger,
    level: int,
    message: str,
    culprit: Frame | None,
    report: dict[str, Any],
    text: Callable[[], str],
) -> None:
    """A record that points at the culprit, with the report as an attribute and its full text as the stack."""
    if not logger.isEnabledFor(level):
        return
    extra = dict[str, Any]()
    while isinstance(logger, logging.LoggerAdapter):
        message, keywords = logger.process(message, {"extra": extra})
        extra = {**extra, **(keywords.get("extra") or {})}
        logger = logger.logger
    record = logger.makeRecord(
        logger.name,
        level,
        culprit.filename if culprit else "(loopwatch)",
        culprit.lineno if culprit else 0,
        message,
        (),
        None,
        culprit.qualname if culprit else None,
        {**extra, **report},
        text(),
    )
    logger.handle(record)
