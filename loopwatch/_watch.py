"""Watch: one watched loop, as its user sees it."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Final

from loopwatch._executors import Executor, Executors, SaturationCallback
from loopwatch._inert import InertSlot
from loopwatch._lag import Lag
from loopwatch._options import (
    Capture,
    Pulse,
    Settings,
    StallCallback,
    check_callback,
    check_threshold,
    check_timeout,
)
from loopwatch._outlets import outlets
from loopwatch._profile import Profile
from loopwatch._profiler import Profiler
from loopwatch._registry import DELIVERY_SECONDS, registry
from loopwatch._shared import copy_shared
from loopwatch._sinks import Sinks
from loopwatch._stall import Stall, Verdict
from loopwatch._windows import Cell, History, StallTotal, Window

if TYPE_CHECKING:
    from loopwatch._core import Slot
    from loopwatch._hooks import Hooks
    from loopwatch._requests import RouteStats

_CURRENT_NS: Final = 500_000_000
_RETIRE_NS: Final = 2_000_000_000

_COUNTERS: Final = (
    "turns", "stalls", "stalls_suppressed", "stalls_ignored", "stalls_exempt", "samples", "samples_exact",
    "samples_moving", "records_dropped", "callback_errors", "log_errors", "watchdog_wakeups",
    "watchdog_cpu_time", "watchdog_worst_lateness",
)  # fmt: skip


class Watch:
    """A loop that is watched until uninstall() or until it is closed, whether or not this object is kept.

    install() makes it. As a context manager it uninstalls at the end. Everything can be called from any thread,
    unless it says otherwise; times are in seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        slot: Slot | InertSlot,
        *,
        pulse: Pulse,
        capture: Capture,
        automatic: bool = False,
    ) -> None:
        self._find_loop = _refer(loop, self._loop_lost)
        self._slot = slot
        self.settings: Final = settings
        """As it was installed with."""
        self._pulse, self._capture = pulse, capture
        self._find_hooks: Callable[[], Hooks | None] = lambda: None
        self._installed = not isinstance(slot, InertSlot)
        self.automatic: Final = automatic
        """It was put there by a tool; an explicit install takes over."""
        self.sinks: Final = Sinks(slot, settings, self._find_loop)
        self.pools: Final = Executors(self, settings)
        self.history: Final = History(slot, self.sinks.totals, pulse)
        redact = self.sinks.redact if settings.redact else None
        self.profiler: Final = Profiler(slot, settings.own, redact, _on_reporter)

    # --- what it is ---

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The watched loop; None once it is gone: a watch does not keep a loop alive."""
        return self._find_loop()

    @property
    def threshold(self) -> float:
        """A turn of at least so many seconds is a stall. Can be set, from 0.001 to 3600; else TypeError, ValueError."""
        return self._slot.threshold_ns / 1e9

    @threshold.setter
    def threshold(self, value: float) -> None:
        self._slot.threshold_ns = round(check_threshold(value) * 1e9)

    @property
    def pulse(self) -> Pulse:
        """How turns are seen; never "auto"."""
        return self._pulse

    @property
    def capture(self) -> Capture:
        """How frames are read; never "auto"."""
        return self._capture

    @property
    def thread(self) -> str | None:
        """The name of the thread that the loop runs on, or ran on last; None before it first ran."""
        return self._slot.thread

    @property
    def slot(self) -> Slot | InertSlot:
        """The native half."""
        return self._slot

    @property
    def key(self) -> int:
        """Names this watch in the native half's records."""
        return self._slot.key

    @property
    def installed(self) -> bool:
        """False after uninstall(), and under LOOPWATCH=0."""
        return self._installed

    @property
    def inherited(self) -> bool:
        """It came over a fork, and the loop did not run in this process yet."""
        return self._slot.state == "forked"

    def __repr__(self) -> str:
        state = "active" if self._installed else "inactive"
        return f"<Watch of {self.loop!r}, {state}, threshold {self.threshold} s, pulse {self.pulse}>"

    # --- what it saw ---

    @property
    def current(self) -> Stall | None:
        """The stall that goes on, or None. None also where the watchdog does not answer within half a second."""
        record = self._slot.current(_CURRENT_NS) if self._installed else None
        return self.sinks.build(record) if record is not None else None

    @property
    def stalls(self) -> tuple[Stall, ...]:
        """The last 256 that have ended, oldest first. Those that were ignored or exempt are not among them."""
        return tuple(copy_shared(self.sinks.history))

    @property
    def lag(self) -> Lag:
        """How long the turns took, from the install until now. A later one minus this one is the time in between."""
        return self.history.lag

    def window(self, seconds: float = 60.0) -> Window:
        """The lag of the last `seconds`, more than 0 and 300 at most, or of somewhat more: `Window.seconds` says what
        it covers. A turn that goes on counts as if it had just ended. TypeError, ValueError for other seconds."""
        return self.history.window(seconds)

    def cells(self, seconds: int = 3600) -> tuple[Cell, ...]:
        """The last `seconds` one by one, oldest first; the one that goes on is the last. A whole number from 1 to 3600,
        else TypeError, ValueError."""
        return self.history.cells(seconds)

    @property
    def stall_totals(self) -> Mapping[Verdict, StallTotal]:
        """The stalls that have ended since the install, by verdict: those that `stalls` lists, or did."""
        return self.sinks.totals.totals

    @property
    def executors(self) -> tuple[Executor, ...]:
        """The loop's default one, once it is there, and those given to executor(); without pools that are
        gone."""
        return self.pools.known()

    @property
    def routes(self) -> Mapping[str, RouteStats]:
        """What requests took of the loop, by route, where loopwatch.asgi counts them."""
        return self.sinks.requests.snapshot()

    @property
    def profile(self) -> Profile:
        """Where the loop's busy time went since the install, by looks at random moments. Waits for the watchdog
        (half a second at most, commonly a tenth of a millisecond), so that it has everything up to now."""
        return self.profiler.read(slow=False)

    @property
    def slow_turns(self) -> Profile:
        """Turns longer than a quarter of the threshold that were no stalls: all of them, with their durations."""
        return self.profiler.read(slow=True)

    def stats(self) -> dict[str, int | float]:
        """Loopwatch's own counters, by name: of this loop, and of the watchdog that all loops share. Times are in
        seconds."""
        counters = dict.fromkeys(_COUNTERS, 0) | self._slot.counters()
        for name, count in self.sinks.counters.items():
            counters[name] = counters.get(name, 0) + count
        return counters

    # --- what to do ---

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until every stall that has ended is reported, `timeout` seconds at most. False: it took longer.

        RuntimeError on the watched loop's thread while it runs, and in a stall callback: it would wait for itself.
        TypeError, ValueError for a timeout that is not seconds from 0 to 1e9."""
        timeout = check_timeout(timeout)
        if (loop := self.loop) is not None and asyncio._get_running_loop() is loop:
            raise RuntimeError(
                "flush() on the watched loop's own thread would block the loop; call it elsewhere"
            )
        reporter = registry().reporter
        if reporter is None:
            return True
        if reporter.is_current:
            raise RuntimeError("flush() in a stall callback would wait for itself; call it on another thread")
        return reporter.drain(timeout)

    def exempt(self, reason: str) -> Exempt:
        """A context manager: a stall of the turn in which it is entered is counted (`stalls_exempt`), not reported.

        `reason` says why, to who reads the program. It ends with the turn: held across an `await` it is a
        RuntimeWarning. RuntimeError where it is entered on another thread than that of the running loop, TypeError for
        a reason that is no str."""
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a str, not {reason!r}")
        return Exempt(self._find_loop, self._slot, reason)

    def add_stall_callback(self, callback: StallCallback, /) -> None:
        """Call it with every stall, on loopwatch's own thread, as `on_stall`: it may raise, which is logged once for
        each type, and counted. Added twice, it is called twice. TypeError for what cannot be called."""
        self.sinks.callbacks.add(check_callback("callback", callback))

    def remove_stall_callback(self, callback: StallCallback, /) -> int:
        """Remove all that are equal to `callback`; how many these were."""
        return self.sinks.callbacks.remove(callback)

    def executor(self, pool: ThreadPoolExecutor | None = None, *, name: str | None = None) -> Executor:
        """Watch a thread pool too, from now on; None: the loop's default one, which is watched anyway, also
        before the loop has made it. The same pool gives the same Executor; a name given later renames it.
        TypeError where `pool` is not a ThreadPoolExecutor, ValueError where another one has the name."""
        return self.pools.executor(pool, name)

    def add_saturation_callback(self, callback: SaturationCallback, /) -> None:
        """Call it with a Saturation, on loopwatch's own thread, where a call has waited for a worker for longer than
        the threshold, and again at each tenfold wait. It may raise, as a stall callback may. TypeError for what cannot
        be called."""
        self.pools.callbacks.add(check_callback("callback", callback, "Saturation"))

    def remove_saturation_callback(self, callback: SaturationCallback, /) -> int:
        """Remove all that are equal to `callback`; how many these were."""
        return self.pools.callbacks.remove(callback)

    # --- its end ---

    @property
    def holds_back(self) -> bool:
        """Its log has yet to tell of reports that were held back."""
        return self.sinks.holds_back or self.pools.holds_back

    def wind_up(self) -> None:
        """On the reporter's thread, once it is over and all is delivered: tell what was held back."""
        self.sinks.wind_up()
        self.pools.wind_up()

    def renew(self) -> None:
        """In a forked child, which inherited it."""
        self.sinks.renew()
        self.pools.renew()
        self.profiler.renew()

    def uninstall(self) -> None:
        """Take loopwatch off the loop, and wait, 2 seconds at most, until the stalls that have ended are delivered.
        Idempotent, from any thread, also after the loop closed."""
        if self.detach():
            registry().leave_alone(self.loop)
            registry().settle(DELIVERY_SECONDS)

    def detach(self, *, closing: bool = False) -> bool:
        """Stop watching now, without waiting for deliveries. Any thread. False: that was done before. `closing`: the
        loop runs no more, and an automatic watch does not keep whoever closes it."""
        here = registry()
        with here.lock:
            if not self._installed:
                return False
            self._installed = False
            # First: once the last watch is removed, a reporter that wakes just now stops the watchdog, and nobody
            # would be there to let the slot go.
            in_passing = closing and self.automatic and here.held and self.pulse != "uv"
            self._slot.retire(None if in_passing else _RETIRE_NS)
            here.remove(self)
        self.pools.detach()
        if (hooks := self._find_hooks()) is not None:
            reporter = here.reporter
            hooks.remove(may_wait=reporter is None or not reporter.is_current)
        outlets.unfollow(self)
        return True

    def attach(self, hooks: Hooks) -> None:
        """Remember where the hooks are, without keeping the loop that they belong to alive."""
        self.history.knows_gil_wait = hooks.measures_gil_wait
        self._find_hooks = (lambda: hooks) if hooks.loop_refuses else weakref.ref(hooks)

    def _loop_lost(self, _: object) -> None:
        """The loop went without being closed. On any thread, inside the garbage collector."""
        if self._installed:
            self._slot.retire(_RETIRE_NS)
            registry().lose(self)

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.uninstall()


def _on_reporter() -> bool:
    reporter = registry().reporter
    return reporter is not None and reporter.is_current


def _refer(
    loop: asyncio.AbstractEventLoop, lost: Callable[[object], None]
) -> Callable[[], asyncio.AbstractEventLoop | None]:
    # The callback must not keep the watch alive, nor fail after it: the registry keeps it while it is
    # installed.
    lost_weakly = weakref.WeakMethod(lost)

    def call(reference: object) -> None:
        if (method := lost_weakly()) is not None:
            method(reference)

    try:
        return weakref.ref(loop, call)
    except TypeError:  # a class with __slots__ and no place for weak references
        return lambda: loop


class Exempt:
    """What Watch.exempt() returns: a context manager that covers one turn of the loop."""

    def __init__(
        self, find_loop: Callable[[], asyncio.AbstractEventLoop | None], slot: Slot | InertSlot, reason: str
    ) -> None:
        self._find_loop, self._slot, self._reason = find_loop, slot, reason
        self._turn: int | None = None

    def __enter__(self) -> None:
        loop = self._find_loop()
        if loop is None or not loop.is_running():
            return  # a loop that does not run is never stalled
        if asyncio._get_running_loop() is not loop:
            raise RuntimeError(
                "exempt() covers a turn of the watched loop: enter it on that loop's own thread"
            )
        self._turn = self._slot.exempt()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if self._turn is not None and self._slot.turn != self._turn:
            warnings.warn(
                f"exempt({self._reason!r}) was held across an await: it covered only its first turn",
                RuntimeWarning,
                stacklevel=2,
            )
