"""install() and uninstall()."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from loopwatch import _core, _env
from loopwatch._hooks import (
    Hooks,
    NativePulse,
    is_stock_epoll,
    is_uvloop,
    selector_of,
    takes_attributes,
    tick_for,
)
from loopwatch._inert import InertSlot
from loopwatch._options import (
    Capture,
    DumpTo,
    Ignore,
    Log,
    Pulse,
    Redact,
    Settings,
    StallCallback,
    Status,
    default,
    make_settings,
)
from loopwatch._registry import registry
from loopwatch._status import status_page
from loopwatch._watch import Watch

NativeCapture = Literal["raw", "gil", "off"]

_THRESHOLD: Final = default(0.1)
_LOG: Final = default(True)
_HANG_AFTER: Final = default(1.0)
_AUTO: Final[Any] = default("auto")
_DUMP_TO: Final = default(None)
_NONE_GIVEN: Final[Any] = default(())
_LOG_EVERY: Final = default(60.0)
_PROFILE_HZ: Final = default(20.0)
_STATUS: Final[Any] = default(False)


def install(
    loop: asyncio.AbstractEventLoop | None = None,
    *,
    threshold: float = _THRESHOLD,
    on_stall: StallCallback | None = None,
    log: Log = _LOG,
    hang_after: float | None = _HANG_AFTER,
    pulse: Pulse = _AUTO,
    capture: Capture = _AUTO,
    dump_to: DumpTo = _DUMP_TO,
    own: Iterable[str | os.PathLike[str]] = _NONE_GIVEN,
    ignore: Iterable[Ignore] = _NONE_GIVEN,
    redact: Redact | None = None,
    log_every: float = _LOG_EVERY,
    profile_hz: float = _PROFILE_HZ,
    status: Status = _STATUS,
) -> Watch:
    """Watch a loop until it is closed or uninstalled, and report each turn that takes too long. Times are in seconds.

    loop        The loop to watch; None: the one that runs in this thread. From any thread, before it runs or while it
                runs. RuntimeError where none runs here, or it is closed or watched already.
    threshold   A stall is a turn of the loop, or an overdue wait, of at least this long: 0.001 to 3600.
    on_stall    Called with every Stall, on loopwatch's own thread. What it raises is logged once for each type, and
                counted.
    log         Where stalls are logged: True is the logger "loopwatch", False is nowhere.
    hang_after  A stall this old is reported while it goes on, and again each time its age has grown tenfold. At least
                the threshold. None: a stall is reported when it ends.
    pulse       How turns are seen: "turn" (asyncio's own loops), "uv" (uvloop), "heartbeat" (any loop, less exact), or
                "auto": the first of these that the loop can do. ValueError for one that it cannot do.
    capture     How frames are read: "raw" (without the GIL), "gil" (with it, once it is free), "off", or "auto": raw
                where it works, else gil. RuntimeError for raw where it cannot work.
    dump_to     Where the watchdog writes, without the GIL, of a stall that goes on and that nobody took for 250 ms: a
                path, a descriptor, None (standard error) or False (nowhere). OSError where it cannot be opened.
    own         Module or path prefixes that are the program's own code, which is blamed before libraries.
    ignore      Patterns "module:qualname" of the culprit, or callables on a Stall: such stalls are counted only.
    redact      Applied to task names, coroutine names, targets, labels and source lines before anybody sees them.
    log_every   One log record of a kind of stall is written in this time, and one at its end for those that were held
                back. One that is three times as long as those that were told is logged at once. 0: each is logged.
    profile_hz  How often the loop is looked at for Watch.profile, a second of its busy time: 0.01 to 1000; 0: never.
    status      A path, or True for the default place: keep a file there that `loopwatch top` and `post` read. OSError
                where that cannot be.

    Defaults come from LOOPWATCH_THRESHOLD and so on, where these are set; LOOPWATCH=0 makes the watch inert. A value
    of the wrong type is a TypeError, any other wrong one a ValueError; the message names the option.
    """
    options = {name: value for name, value in locals().items() if name != "loop"}
    return put(_resolve(loop), make_settings("install", options))


def uninstall(loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Stop watching a loop, and leave nothing behind. None: the one that runs in this thread; where none does, nothing
    happens. From any thread, also twice, and after the loop closed. Waits, 2 seconds at most, until the stalls that
    have ended are delivered. TypeError for what is no loop."""
    if loop is None:
        loop = asyncio._get_running_loop()
        if loop is None:
            return
    _check_type(loop)
    if (watch := registry().find(loop)) is not None:
        watch.uninstall()


def _check_type(loop: object) -> None:
    if not isinstance(loop, asyncio.AbstractEventLoop):
        raise TypeError(f"loop must be an asyncio.AbstractEventLoop or None, not {loop!r}")


def _resolve(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    if loop is None:
        loop = asyncio._get_running_loop()
        if loop is None:
            raise RuntimeError("no event loop runs in this thread: name the loop to install on")
    _check_type(loop)
    if loop.is_closed():
        raise RuntimeError(f"{loop!r} is closed: there is nothing to watch")
    return loop


def put(loop: asyncio.AbstractEventLoop, settings: Settings, *, automatic: bool = False) -> Watch:
    """Watch `loop`. `automatic`: for a tool that watches what it finds; an explicit install takes over."""
    if not _env.enabled():
        inert = InertSlot(*_nanoseconds(settings))
        return Watch(loop, settings, inert, pulse=settings.pulse, capture="off")
    here = registry()
    with here.lock:
        existing = here.find(loop)
        if existing is not None and automatic and not existing.inherited:
            return existing
        if existing is not None and not (existing.automatic or existing.inherited):
            raise RuntimeError(f"{loop!r} is watched already: call loopwatch.uninstall(loop) first")
        if existing is not None:
            existing.uninstall()
        return _put(loop, settings, automatic=automatic)


def _put(loop: asyncio.AbstractEventLoop, settings: Settings, *, automatic: bool) -> Watch:
    """With the registry's lock."""
    with settings.naming("capture"):
        capture = check_capture(settings.capture)
    with settings.naming("pulse"):
        pulse = _choose_pulse(loop, settings.pulse)
    plan = _Plan(loop, settings, automatic, capture)
    try:
        with contextlib.ExitStack() as stack:
            with settings.naming("dump_to"):
                dump_fd = stack.enter_context(settings.dump.opened())
            try:
                return plan.carry_out(pulse, dump_fd)
            except RuntimeError as problem:
                if pulse != "uv":
                    raise
                if settings.pulse == "uv":
                    raise ValueError(
                        f"pulse must be one that this loop can do, not 'uv': {problem}"
                    ) from problem
            return plan.carry_out("heartbeat", dump_fd)
    except BaseException:
        registry().settle()
        raise


@dataclass(frozen=True, slots=True)
class _Plan:
    """A watch to be, apart from its pulse: the first choice may turn out not to work."""

    loop: asyncio.AbstractEventLoop
    settings: Settings
    automatic: bool
    capture: NativeCapture

    def carry_out(self, pulse: NativePulse, dump_fd: int) -> Watch:
        here = registry()
        threshold_ns, hang_after_ns = _nanoseconds(self.settings)
        slot = _core.Slot(
            loop=self.loop,
            threshold_ns=threshold_ns,
            hang_after_ns=hang_after_ns,
            dump_names=self.settings.redact is None,
            capture=self.capture,
            pulse=pulse,
            dump_fd=dump_fd,
        )
        slot.set_profile(_period_ns(self.settings.profile_hz))
        watch = Watch(
            self.loop,
            self.settings,
            slot,
            pulse="turn" if pulse == "wrapped" else pulse,
            capture=self.capture,
            automatic=self.automatic,
        )
        hooks = Hooks(self.loop, slot, watch)
        hooks.put(pulse, tick_for(self.settings.threshold))
        watch.attach(hooks)
        try:
            here.add(self.loop, watch)
            with self.settings.naming("status"):
                status_page.join(watch.key, self.settings.status)
            here.start_reporter()
            quietly = pulse in ("turn", "wrapped") and asyncio._get_running_loop() is self.loop
            slot.start(quietly, self.settings.brief)
            here.serve_page()
            hooks.begin()
            watch.pools.begin(self.loop)
        except BaseException:
            watch.detach()
            raise
        return watch


def _nanoseconds(settings: Settings) -> tuple[int, int | None]:
    # As given: the effective hang_after follows the threshold, which can be set later (lw_look).
    hang_after = settings.hang_after
    return round(settings.threshold * 1e9), None if hang_after is None else round(hang_after * 1e9)


def _period_ns(hertz: float) -> int:
    return round(1e9 / hertz) if hertz else 0


def check_capture(capture: Capture) -> NativeCapture:
    """What it means here; RuntimeError where that cannot be."""
    if capture in ("gil", "off"):
        return capture
    reason = _core.frames_reason()
    if reason is None:
        return "raw"
    if capture == "raw":
        raise RuntimeError(f"capture='raw' cannot work here: {reason}")
    return "gil"


def _choose_pulse(loop: asyncio.AbstractEventLoop, pulse: Pulse) -> NativePulse:
    hookable = takes_attributes(loop)
    selector = selector_of(loop) if hookable else None
    uv = hookable and not _core.PORTABLE and is_uvloop(loop)
    if pulse == "turn" and selector is None:
        raise ValueError(
            f"pulse must be one that this loop can do, not 'turn': {loop!r} has no selector to hook"
        )
    if pulse == "uv" and not uv:
        raise ValueError(f"pulse must be one that this loop can do, not 'uv': {loop!r} is not uvloop's")
    if pulse in ("auto", "turn") and selector is not None:
        return "turn" if is_stock_epoll(selector) else "wrapped"
    return "uv" if pulse in ("auto", "uv") and uv else "heartbeat"
