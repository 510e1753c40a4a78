"""Stalls as log records: which of them, and how they read."""

from __future__ import annotations

import collections
import functools
import logging
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Generic, TypeVar

from loopwatch._failures import quietly
from loopwatch._limit import HeldBack, Limiter
from loopwatch._options import Logger
from loopwatch._stall import Frame, Stall
from loopwatch._text import counted, printable, seconds

T = TypeVar("T")


class LimitedLog(Generic[T]):
    """Of one watch; on the reporter's thread."""

    def __init__(self, logger: Logger, every: float, counters: collections.Counter[str]) -> None:
        self._logger, self._counters = logger, counters
        self.limiter: Limiter[T] = Limiter(every, self._tell_sum)

    def _tell_sum(self, held_back: HeldBack[T]) -> None:
        raise NotImplementedError

    def _write(self, write: Callable[[], object]) -> None:
        self._counters["log_errors"] += quietly(write) is not None


class StallLog(LimitedLog[Stall]):
    def __init__(self, logger: Logger, every: float, counters: collections.Counter[str]) -> None:
        super().__init__(logger, every, counters)
        self._told_ongoing: int | None = None
        """The last stall that was logged while it went on: so is what comes of it."""

    def take(self, stall: Stall) -> None:
        if self._is_told(stall):
            self._write(functools.partial(log_stall, self._logger, stall))
        elif not stall.ongoing:
            self._counters["stalls_suppressed"] += 1
            self.limiter.hold_back(stall.fingerprint, stall, stall.duration)

    def _is_told(self, stall: Stall) -> bool:
        if stall.id == self._told_ongoing:
            self.limiter.told(stall.fingerprint, stall.duration)
            return True
        told = self.limiter.ask(stall.fingerprint, stall.duration)
        if told and stall.ongoing:
            self._told_ongoing = stall.id
        return told

    def _tell_sum(self, held_back: HeldBack[Stall]) -> None:
        self._write(functools.partial(log_held_back, self._logger, held_back))


def log_stall(logger: Logger, stall: Stall) -> None:
    """WARNING, or ERROR while it goes on."""
    level = logging.ERROR if stall.ongoing else logging.WARNING
    log_report(logger, level, stall.summary, stall.culprit, {"stall": stall}, stall.format)


def log_held_back(logger: Logger, held_back: HeldBack[Stall]) -> None:
    """WARNING; the record is of the longest of them."""
    worst = held_back.worst
    message = held_back_summary(held_back)
    log_report(logger, logging.WARNING, message, worst.culprit, {"stall": worst}, worst.format)


def held_back_summary(held_back: HeldBack[Stall]) -> str:
    """4 more stalls in main (lines.py) in the last 60 s were held back: 1.30 s in all, the worst 900 ms at..."""
    worst, culprit = held_back.worst, held_back.worst.culprit
    name = PurePath(culprit.filename).name if culprit else ""
    where = f" in {culprit.qualname} ({name})" if culprit else ""
    longest = seconds(held_back.worst_seconds)
    longest += f" at {name}:{culprit.lineno}" if culprit else ""
    several = f"{seconds(held_back.seconds)} in all, the worst " if held_back.count > 1 else ""
    return printable(
        f"{counted(held_back.count, 'more stall')}{where} {in_the_last(held_back)}: "
        f"{several}{longest} ({worst.verdict})"
    )


def in_the_last(held_back: HeldBack[Any]) -> str:
    """in the last 60 s were held back"""
    over = f"{held_back.over:.0f} s" if held_back.over >= 9.95 else seconds(held_back.over)
    return f"in the last {over} {'was' if held_back.count == 1 else 'were'} held back"


def log_report(
    logger: Logger,
    level: int,
    message: str,
    culprit: Frame | None,
    report: dict[str, Any],
    text: Callable[[], str],
) -> None:
    """A record that points at the culprit, not at this file, with the report as an attribute and its full text
    as the stack."""
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
