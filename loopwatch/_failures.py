"""What goes wrong in the program's own callables: counted, and the first of each type logged."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Final

from loopwatch._options import Logger, Redact

REDACTION_FAILED: Final = "<redact failed>"


def quietly(call: Callable[[], object]) -> BaseException | None:
    """What `call` raised, if anything: sinks may raise whatever they like, SystemExit too."""
    try:
        call()
    except BaseException as problem:
        return problem
    return None


class Failures:
    """Of one watch; from any thread. It refers to nothing of the watch, so that whoever notes a failure keeps
    no watch alive."""

    def __init__(self, logger: Logger | None, counters: collections.Counter[str]) -> None:
        self._logger, self._counters = logger, counters
        self._lock = threading.Lock()
        self._logged: set[type[BaseException]] = set()

    def renew(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.Lock()

    def note(self, problem: BaseException, where: str) -> None:
        self._counters["callback_errors"] += 1
        with self._lock:
            if type(problem) in self._logged:
                return
            self._logged.add(type(problem))
        if (logger := self._logger) is not None:
            quietly(lambda: logger.error("loopwatch: %s failed", where, exc_info=problem))


class Redaction:
    """`redact` as given to install(), which may fail: then nothing is shown."""

    def __init__(self, redact: Redact | None, failures: Failures) -> None:
        self._redact, self._failures = redact, failures

    def __call__(self, text: str) -> str:
        if self._redact is None:
            return text
        try:
            redacted = self._redact(text)
        except Exception as problem:
            self._failures.note(problem, "redact")
            return REDACTION_FAILED
        return redacted if isinstance(redacted, str) else REDACTION_FAILED
