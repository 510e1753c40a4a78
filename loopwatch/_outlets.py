"""The exporters of this process: told of every watch's stalls, and called every few seconds while something is
watched.

All of that happens on the reporter's thread. What an exporter raises is counted, logged once for each of its
exception types, and changes nothing for the others, nor for the program. An exporter is of the process, not of
a watch: it serves the watches that come later too, and those of a forked child.
"""

from __future__ import annotations

import collections
import functools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loopwatch._alarms import Alarm, Alarms
from loopwatch._failures import quietly
from loopwatch._stall import Stall

if TYPE_CHECKING:
    from loopwatch._watch import Watch

FAILURES_LOGGED_MAX = 256
_LOGGER = logging.getLogger("loopwatch")


class Outlet:
    """What an exporter is told. Every method but follow(), unfollow() and renew() runs on the reporter's thread; all
    but renew() may raise."""

    name = "?"
    """In the log, and in the counter of failures."""
    every: float | None = None
    """Seconds between two calls of tick(); None: never."""

    def follow(self, watch: Watch) -> None:
        """A watch was put, or was there when the exporter began. On any thread, with locks held; again for one
        that is known. May raise as well."""

    def unfollow(self, watch: Watch) -> None:
        """A watch is over. On the thread that ended it, which may be its loop's. May raise as well."""

    def renew(self) -> None:
        """In a forked child, as soon as something is watched there."""

    def stall(self, stall: Stall) -> None:
        """A report of any watch, as `on_stall` gets it."""

    def saturation(self, saturation: Any) -> None:
        """As `Watch.add_saturation_callback` gets it."""

    def tick(self) -> None:
        """The time is up."""

    def wind_up(self) -> None:
        """Nothing is watched any more, for now."""


class Outlets:
    """Those that are open. Any thread, apart from what says otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[Outlet, ...] = ()
        self._ticking: dict[Outlet, Alarm] = {}
        self._alarms: Alarms | None = None
        self._served: object = None
        self._failures_logged: set[tuple[str, type[BaseException]]] = set()
        self.failures: collections.Counter[str] = collections.Counter()
        """By the name of the exporter."""

    def renew(self) -> None:
        """In a forked child: who held the lock is not here, and there are no alarms yet."""
        self._lock = threading.Lock()
        self._ticking, self._alarms, self._served = {}, None, None
        for outlet in self._open:
            outlet.renew()

    def add(self, outlet: Outlet) -> None:
        from loopwatch._registry import registry  # here: the registry imports this file

        here = registry()  # in a forked child this renews
        with self._lock:
            self._open = (*self._open, outlet)
            self.failures.setdefault(outlet.name, 0)
            self._arm(outlet)
        for watch in here.watches():
            self.follow(watch)

    def remove(self, outlet: Outlet) -> bool:
        """False: it was removed before."""
        with self._lock:
            if outlet not in self._open:
                return False
            self._open = tuple(known for known in self._open if known is not outlet)
            if alarm := self._ticking.pop(outlet, None):
                alarm.cancel()
            return True

    # --- called by the registry, the sinks and the reporter ---

    def follow(self, watch: Watch) -> None:
        """A watch was put. Its stalls come by tell()."""
        if self._open:
            watch.remove_saturation_callback(self._tell_saturation)
            watch.add_saturation_callback(self._tell_saturation)
        for outlet in self._open:
            try:
                outlet.follow(watch)
            except Exception as problem:  # not an interruption: this is a thread of the program's
                self._note(outlet.name, problem)

    def unfollow(self, watch: Watch) -> None:
        """A watch was taken off."""
        for outlet in self._open:
            try:
                outlet.unfollow(watch)
            except Exception as problem:
                self._note(outlet.name, problem)

    def begin(self, reporter: object, alarms: Alarms) -> None:
        """A reporter starts."""
        with self._lock:
            self._served, self._alarms = reporter, alarms
            for outlet in self._open:
                self._arm(outlet)

    def end(self, reporter: object) -> None:
        """On the thread of a reporter that ends. One that comes late must not end what its successor began."""
        with self._lock:
            if self._served is not reporter:
                return
            self._served = self._alarms = None
            for alarm in self._ticking.values():
                alarm.cancel()
            self._ticking.clear()
        for outlet in self._open:
            self.attempt(outlet.name, outlet.wind_up)

    def tell(self, stall: Stall) -> None:
        """The reporter's thread."""
        for outlet in self._open:
            self.attempt(outlet.name, functools.partial(outlet.stall, stall))

    def _tell_saturation(self, saturation: Any) -> None:
        for outlet in self._open:
            self.attempt(outlet.name, functools.partial(outlet.saturation, saturation))

    # --- failures ---

    def attempt(self, name: str, call: Callable[[], object]) -> bool:
        """Whether it succeeded. What it raised is counted for the exporter of that name."""
        problem = quietly(call)
        if problem is not None:
            self._note(name, problem)
        return problem is None

    def _note(self, name: str, problem: BaseException) -> None:
        with self._lock:
            self.failures[name] += 1
            kind = name, type(problem)
            log = kind not in self._failures_logged and len(self._failures_logged) < FAILURES_LOGGED_MAX
            if log:
                self._failures_logged.add(kind)
        if log:
            quietly(lambda: _LOGGER.error("loopwatch: the exporter %s failed", name, exc_info=problem))

    # --- ticks ---

    def _arm(self, outlet: Outlet) -> None:
        """With the lock."""
        if outlet.every is None or self._alarms is None:
            return
        if known := self._ticking.get(outlet):
            known.cancel()
        self._ticking[outlet] = self._alarms.call_later(outlet.every, functools.partial(self._tick, outlet))

    def _tick(self, outlet: Outlet) -> None:
        self.attempt(outlet.name, outlet.tick)
        with self._lock:
            if outlet in self._ticking:
                self._arm(outlet)


outlets = Outlets()
"""Of this process; a forked child has the same, renewed."""
