"""What this process watches: the watches, and the one reporter and watchdog that serve them all.

The watchdog and the reporter run from the first install to the last uninstall. After a fork the child has
neither and no lock it can trust, so everything here belongs to one process and is made anew where the process
id has changed.
"""

from __future__ import annotations

import asyncio
import atexit
import collections
import contextlib
import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loopwatch import _core
from loopwatch._alarms import Alarms
from loopwatch._clock import monotonic
from loopwatch._outlets import outlets
from loopwatch._paths import library_dirs
from loopwatch._reporter import Reporter
from loopwatch._status import status_page

if TYPE_CHECKING:
    from loopwatch._watch import Watch

DELIVERY_SECONDS = 2.0
"""How long uninstall, run, Runner.close and the exit of a Watch wait for stalls that have ended."""
_PAGE_AGAIN_SECONDS = 1.0
_FORGET_AT, _BEHIND_AT = 8, 32
"""Watches that are over and still known by their key: when they are looked through, and when there are so many, because
our threads get no CPU, that who closes a loop waits. Each has the memory of a slot, 0.3 MB."""


class Registry:
    """The watches of one process. `lock` is held while something is installed or the threads are stopped."""

    def __init__(
        self,
        watches: dict[int, Watch],
        *,
        held: bool = False,
        left_alone: Iterable[asyncio.AbstractEventLoop] = (),
    ) -> None:
        self.pid = os.getpid()
        self.held = held
        """The threads stay while no loop is watched: others will come (install_all)."""
        self.left_alone: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet(left_alone)
        """While held: those that somebody uninstalled."""
        self.lock = threading.RLock()
        self.reporter: Reporter | None = None
        self.alarms = Alarms(wake=_core.stop_reporter)
        self._by_loop = watches  # by the id of the loop, while it is watched
        self._by_key: dict[int, Watch] = {watch.key: watch for watch in watches.values()}  # until delivered
        self._lost: collections.deque[Watch] = collections.deque()

    # --- which loop has which watch ---

    def find(self, loop: asyncio.AbstractEventLoop) -> Watch | None:
        watch = self._by_loop.get(id(loop))
        return watch if watch is not None and watch.loop is loop else None

    def by_key(self, key: int) -> Watch | None:
        return self._by_key.get(key)

    @property
    def unused(self) -> bool:
        """A watch that came over a fork, and whose loop does not run here, needs no thread."""
        return not self.held and all(watch.inherited for watch in self.watches())

    def watches(self) -> list[Watch]:
        return list(self._by_loop.values())

    def add(self, loop: asyncio.AbstractEventLoop, watch: Watch) -> None:
        """With the lock."""
        self._by_loop[id(loop)] = watch
        self._by_key[watch.key] = watch
        outlets.follow(watch)

    def remove(self, watch: Watch) -> None:
        """Stop finding it by its loop; its records still find it."""
        with self.lock:
            for loop_id, known in list(self._by_loop.items()):
                if known is watch:
                    del self._by_loop[loop_id]
            status_page.leave(watch.key)

    def lose(self, watch: Watch) -> None:
        """Its loop was dropped without being closed. Called by the garbage collector, on any thread, so no
        lock: the reporter does the rest."""
        self._lost.append(watch)
        _core.stop_reporter()

    # --- the threads ---

    def start_reporter(self) -> None:
        """With the lock."""
        if self.reporter is None or not self.reporter.alive:
            self.reporter = Reporter(self)
            outlets.begin(self.reporter, self.alarms)
            self.reporter.start()
            _core.gc_clock(True)
            _core.set_rearm(_rearm)
            atexit.unregister(_at_exit)
            atexit.register(_at_exit)

    def serve_page(self) -> None:
        """With the lock: hand the status page to the watchdog; later, where it has no time for it now."""
        if not status_page.serve() and self.reporter is not None:
            self.alarms.call_later(_PAGE_AGAIN_SECONDS, self._serve_page_again)

    def _serve_page_again(self) -> None:
        if not self.lock.acquire(blocking=False):  # who holds it may wait for this thread
            self.alarms.call_later(_PAGE_AGAIN_SECONDS, self._serve_page_again)
            return
        try:
            self.serve_page()
        finally:
            self.lock.release()

    def settle(self, timeout: float = DELIVERY_SECONDS) -> bool:
        """Wait until what has ended is delivered, and stop the threads if nothing is watched. On the
        reporter's own thread, which cannot wait for itself, that is left to its next turn."""
        deadline = monotonic() + timeout
        reporter = self.reporter
        if reporter is None:
            return True
        if reporter.is_current:
            _core.stop_reporter()
            return True
        delivered = reporter.drain(timeout)
        if delivered:
            self._forget_delivered()
        with self.lock:
            if self.unused and self.reporter is reporter:
                self._stop(reporter, max(0.1, deadline - monotonic()))
            replaced = self.reporter is not reporter
        if replaced:  # by us, or it stopped itself just now
            reporter.join(max(0.1, deadline - monotonic()))
        return delivered

    def settle_later(self) -> None:
        """As settle(), for who does not wait. The threads stay as they are held; without that it waits."""
        if self.winding_up:
            _core.stop_reporter()
        if self.held and self._n_over >= _FORGET_AT:
            self._forget_retired()
        if not self.held or self._n_over >= _BEHIND_AT:
            self.settle()

    @property
    def _n_over(self) -> int:
        return len(self._by_key) - len(self._by_loop)

    def _over(self) -> list[Watch]:
        """Those that are still known by their key, until all of them is delivered."""
        known = list(self._by_key.items())  # in this order: a watch that comes is found by its loop first
        active = {watch.key for watch in self.watches()}
        return [watch for key, watch in known if key not in active]

    @property
    def winding_up(self) -> bool:
        """A watch that is over has yet to tell what its log held back."""
        return self._n_over > 0 and any(watch.holds_back for watch in self._over())

    def wind_up(self) -> None:
        """On the reporter's thread, between two records; where it has none, on that of who waits."""
        if self._n_over <= 0 or _core.pending_stalls():  # of the latter there may be more to tell of
            return
        for watch in self._over():
            if watch.holds_back:
                watch.wind_up()

    def _forget_delivered(self) -> None:
        with self.lock:
            for watch in self._over():
                if not watch.holds_back:
                    del self._by_key[watch.key]

    def _forget_retired(self) -> None:
        """Those of whose records none is under way."""
        with self.lock:
            retired = [watch for watch in self._over() if watch.slot.state == "retired"]
            # In this order: a slot is retired once all is written, which then is taken, and dealt with.
            if _core.pending_stalls() or (self.reporter is not None and not self.reporter.idle):
                return
            for watch in retired:
                if not watch.holds_back:
                    del self._by_key[watch.key]

    def leave_alone(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Somebody uninstalled its watch: install_all puts none on it again."""
        if self.held and loop is not None:
            with contextlib.suppress(TypeError):  # it cannot be referred to weakly
                self.left_alone.add(loop)

    def _stop(self, reporter: Reporter, timeout: float) -> None:
        """With the lock."""
        self.reporter = None
        reporter.stop(timeout)
        self.alarms.clear()
        _core.stop_watchdog(int(timeout * 1e9))
        _core.gc_clock(False)
        _core.set_rearm(None)
        atexit.unregister(_at_exit)

    def housekeep(self, reporter: Reporter) -> bool:
        """On the reporter's thread, between two records. False: nothing is watched, and it must end."""
        while self._lost:
            self._lost.popleft().uninstall()
        self.wind_up()
        if not self.unused or not self.lock.acquire(
            blocking=False
        ):  # who holds it installs, or settles for us
            return True
        try:
            if not self.unused or self.reporter is not reporter or _core.pending():
                return True
            self._stop(reporter, DELIVERY_SECONDS)
            self._forget_delivered()
            return False
        finally:
            self.lock.release()


_registry = Registry({})
_core.set_libraries(library_dirs())


def registry() -> Registry:
    """This process's; in a forked child a new one, with the watches that it inherited and no threads."""
    global _registry
    if _registry.pid != os.getpid():
        for watch in _registry.watches():
            watch.renew()
        outlets.renew()
        _registry = Registry(
            {id(watch.loop): watch for watch in _registry.watches() if watch.loop is not None},
            held=_registry.held,
            left_alone=_registry.left_alone,
        )
    return _registry


def _rearm(slot: _core.Slot) -> None:
    """A watched loop first runs in a forked child: it needs a reporter there, and its dump_to again."""
    here = registry()
    with here.lock:
        watch = here.by_key(slot.key)
        if watch is None:
            return
        here.start_reporter()
        with contextlib.suppress(OSError):  # the loop goes on without a page
            status_page.join(watch.key, watch.settings.status)
        here.serve_page()
    with watch.settings.dump.opened_again() as dump_fd:
        slot.set_dump(dump_fd)


def _at_exit() -> None:
    """Deliver what is left; no thread of ours may be inside the interpreter when it goes."""
    here = registry()
    for watch in here.watches():
        watch.uninstall()
