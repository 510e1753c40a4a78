"""The native half of loopwatch: pulses, the watchdog thread, snapshots without the GIL.

Private: loopwatch's Python files call it, nobody else. Times are integers of nanoseconds on CLOCK_MONOTONIC
(`time.monotonic_ns()`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from types import CodeType, FrameType
from typing import Any, Final, Generic, Literal, Self, TypedDict, TypeVar, final

_T = TypeVar("_T")

VERSION: Final[str]
PAGE: Final[tuple[int, int, int]]
"""Of a status page: version, bytes of the head, bytes of each half."""
PORTABLE: Final[bool]
"""Built with LOOPWATCH_PORTABLE=1: no raw capture, no uv pulse, no evidence files."""

FrameTuple = tuple[str, int, str, int, int, int]
"""(filename, lineno, qualname, end_lineno, colno, end_colno); -1 where not known. As code.co_positions() has them."""

SampleTuple = tuple[int, int, int, str, int, int, int, int, str]
"""(offset_ns, weight_ns, stack, quality, truncated, task, holder_stack, holder, verdict): `stack` indexes
Record.stacks, -1 where no frame could be read; quality is "exact", "consistent" or "moving"; `task` indexes
Record.tasks, -1: no task ran (or not known); `holder` indexes Record.holders, -1: no other thread had the GIL, and
`holder_stack` is its stack; `verdict` is the value of a Verdict. quality and truncated are of the stack that the
verdict blames."""

Columns = tuple[bytes, bytes]
"""(numbers, counts) of the buckets of a histogram that are in use, ascending: native unsigned short and unsigned long
long. At most 4224."""

CellTuple = tuple[int, int, int, int, int, int | None, int]
"""(number, at_ns, busy_ns, idle_ns, worst_ns, gc_ns, gil_wait_ns) of a second: its number on CLOCK_MONOTONIC, the wall
clock when it began, the longest turn that ended in it or how old one was that went on."""

class EvidenceDict(TypedDict):
    """None where this system cannot tell."""

    cpu_ns: int | None
    run_queue_ns: int | None
    throttled_ns: int | None
    gil_wait_ns: int | None
    gc_ns: int | None
    gc_generation: int | None
    major_faults: int | None
    callbacks: int | None
    watchdog_late_ns: int | None
    syscall: str | None
    target: str | None

class Record(TypedDict):
    """One report of a stall, as the watchdog wrote it."""

    token: int
    """For claim() and delivered()."""
    slot: int
    """Slot.key of the loop it is about."""
    kind: Literal["ended", "ongoing", "capture", "profile", "slow", "look"]
    """"capture" asks the reporter for the frames of `ident` (capture="gil"): Slot.turn must still be `turn`. "profile"
    and "slow" are accounts of many looks: like ones are one sample. "look" asks the reporter for one look of
    the profile (capture="gil")."""
    id: int
    """Stall.id; 0 for "capture"; of "look" how many looks it stands for; of an account its number among those of this
    slot and kind, from 1."""
    turn: int
    begin_ns: int
    end_ns: int
    """The end, or now where it goes on."""
    started_at_ns: int
    """Wall clock (time.time_ns()) of begin_ns."""
    overdue: bool
    """It began with a wait that was overdue."""
    thread: str
    ident: int
    """threading.get_ident() of the loop's thread."""
    native_thread_id: int
    frames: list[FrameTuple]
    stacks: list[list[int]]
    """Each a list of indexes into `frames`, outermost first."""
    samples: list[SampleTuple]
    """In order of time. Weights add up to end_ns - begin_ns."""
    tallied: list[tuple[int, int]]
    """Of an account, beside each of the samples: (looks or slow turns, nanoseconds of the longest such turn); else
    empty."""
    tasks: list[tuple[int, str, str]]
    """(address, name, qualname of the coroutine); name "" where only the object knows (a pure-Python task)."""
    holders: list[tuple[int, int]]
    """(native_thread_id, ident)"""
    breakdown: dict[str, int]
    """Nanoseconds by the value of a Verdict; adds up to end_ns - begin_ns."""
    evidence: EvidenceDict
    steps: list[tuple[str, int]]
    """(name, nanoseconds)"""
    routes: tuple[int, int, int, list[tuple[int, int]]]
    """What requests took of the turn: (Request.id whose step was the longest or 0, its Route.number or 0, nanoseconds
    of that step, [(Route.number, nanoseconds), ...])"""
    samples_merged: int
    """Samples that were merged with a neighbour because the buffer was full."""

@final
class Slot:
    """One watched loop's native half. Made with the GIL; every method from any thread unless it says otherwise."""

    def __new__(
        cls,
        *,
        loop: asyncio.AbstractEventLoop,
        threshold_ns: int,
        hang_after_ns: int | None,
        capture: Literal["raw", "gil", "off"],
        pulse: Literal["turn", "wrapped", "uv", "heartbeat"],
        dump_fd: int,
        dump_names: bool,
    ) -> Slot:
        """`dump_fd`: a descriptor, which the watchdog duplicates in start(); -1: nowhere; -2: standard error.
        `dump_names`: False where the names of tasks must be redacted first, which the watchdog cannot do."""
    @property
    def key(self) -> int:
        """Names this watch in records, never used twice in a process."""
    @property
    def turn(self) -> int:
        """The number of the turn that goes on (or of the wait before it)."""
    @property
    def running(self) -> bool: ...
    @property
    def thread(self) -> str | None:
        """The name of the thread that the loop runs on, or ran on last; None before it first ran."""
    @property
    def state(self) -> Literal["new", "active", "retiring", "retired", "forked"]:
        """ "forked": inherited by a child process in which the loop did not run yet. "retiring": the watchdog may still
        write records of it."""
    @property
    def threshold_ns(self) -> int: ...
    @threshold_ns.setter
    def threshold_ns(self, value: int) -> None: ...
    @property
    def hang_after_ns(self) -> int | None: ...
    def start(self, quietly: bool = False, dump_stays: bool = False, /) -> None:
        """The watchdog (started where it does not run) looks at this loop from now on. RuntimeError: no thread.
        `quietly`: on the loop's thread, in its run, before here(), which wakes the watchdog. `dump_stays`: the
        descriptor stays open as long as the slot is there, so that the watchdog may duplicate it later."""
    def here(self) -> None:
        """On the loop's own thread, inside a callback: the loop runs and is busy since now."""
    def retire(self, timeout_ns: int | None) -> bool:
        """Take the loop from the watchdog. A stall that goes on ends now. Idempotent; releases the GIL while it waits
        for the watchdog to let go; False where that took longer (the slot is retired all the same). None: the
        watchdog lets go when it wakes the next time; not where libuv is asked (pulse "uv"), nor where the loop runs."""
    def exempt(self) -> int:
        """On the loop's thread: the turn that goes on is counted, not reported. Returns the turn."""
    def current(self, timeout_ns: int) -> Record | None:
        """The stall that goes on, asked of the watchdog; None where there is none. Releases the GIL."""
    def stacks(self, idents: list[int], timeout_ns: int) -> Record | None:
        """Where the threads with these idents (the first 32) stand, asked of the watchdog: a record of kind "capture"
        with a sample for each that was found, whose `holder` says which and `stack` where. None where frames are not
        read raw here, or no answer came in time. Releases the GIL."""
    def profile(self, slow: bool, timeout_ns: int) -> Record | None:
        """One account, of looks at random moments or of slow turns, since it was last asked for or sent; None where
        the watchdog did not answer in time or does not look at this slot. Releases the GIL."""
    def set_profile(self, period_ns: int, /) -> None:
        """The mean busy time between two looks from now on; 0: none, as in a new slot."""
    def counters(self) -> dict[str, int | float]:
        """This loop's and the watchdog's own counters, under the names of Watch.stats(); times in seconds."""
    def histogram(self) -> tuple[Columns, dict[str, int]]:
        """(buckets in use, {"turns", "busy_ns", "idle_ns", "gil_wait_ns", "max_ns"})."""
    def cells(self, seconds: int, /) -> list[CellTuple]:
        """The last `seconds` (1 to 3600), oldest first, the one that goes on last; none before the loop's first run."""
    def window(self, length_ns: int, /) -> tuple[Columns, dict[str, int], int, int]:
        """As histogram(), of the last length_ns or somewhat more, and when that began and ended. A turn that goes on
        counts as if it ended now. All 0 before the loop's first run."""
    def set_dump(self, dump_fd: int) -> None:
        """As the argument of the constructor; returns once the watchdog has its duplicate."""

def histogram_edge(bucket: int) -> int:
    """The least nanoseconds that fall into a bucket."""

# --- hooks: callables put on an instance by the installer ---

@final
class TurnSelect:
    """selectors.EpollSelector.select in C, stamping the beat. `hook(timeout=None)`."""

    def __new__(cls, slot: Slot, selector: Any) -> TurnSelect: ...
    def __call__(self, timeout: float | None = None) -> list[tuple[Any, int]]: ...

@final
class WrappedSelect:
    """Another selector's own select, stamped before and after. `fileno`: its epoll descriptor or -1."""

    def __new__(cls, slot: Slot, select: Callable[..., Any], fileno: int) -> WrappedSelect: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class RunEdge:
    """loop.run_forever: begin, the original, end. `begin` is called before each run, `end` after it."""

    def __new__(
        cls,
        slot: Slot,
        run_forever: Callable[[], Any],
        begin: Callable[[], object] = ...,
        end: Callable[[], object] = ...,
    ) -> RunEdge: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

@final
class Heartbeat:
    """Stamps and arms itself again with loop.call_later(tick). start() on the loop's thread or before it runs; stop()
    from any thread: the armed timer is cancelled at once where this is the loop's thread, else when it fires."""

    def __new__(cls, slot: Slot, loop: asyncio.AbstractEventLoop, tick: float) -> Heartbeat: ...
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...

@final
class UvPulse:
    """libuv's idle clock and a prepare handle of ours. TypeError where it is not uvloop's loop, RuntimeError where its
    libuv cannot be reached, saying why."""

    def __new__(cls, slot: Slot, loop: asyncio.AbstractEventLoop) -> UvPulse: ...
    def start(self) -> None:
        """See each turn from now on; from any thread. Where the loop runs on another thread: from that thread's next
        turn on. Nothing happens where it was started or stopped before."""
    def stop(self) -> bool:
        """See no turn from now on; from any thread, also after the loop closed; idempotent. True once libuv's handle is
        closed; False where the loop runs on another thread that did not come back within a second: it is closed when
        that does, and stop() must be called again before the loop closes."""

@final
class Step:
    """loopwatch.step(name)."""

    def __new__(cls, name: str) -> Step: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *exc_info: object) -> None: ...

# --- yielding ---

@final
class Checkpoint:
    """What checkpoint() returns. It looks when it is awaited, which may be again and again."""

    def __await__(self) -> Generator[None]: ...
    def __iter__(self) -> Generator[None]: ...
    def __next__(self) -> None: ...

def checkpoint(budget: float = 0.002) -> Checkpoint:
    """Awaited, it suspends the task for one turn of the loop where the turn has been busy for `budget` seconds, or the
    task is to be cancelled; else it ends at once. TypeError, ValueError: not seconds from 0 to 1e9."""

@final
class Paced(Generic[_T]):
    """An async iterator over `items`, with a checkpoint before each. It is what its own __anext__() returns."""

    def __new__(cls, items: Iterable[_T], budget: float) -> Self: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Self: ...
    def __await__(self) -> Generator[None, None, _T]: ...
    def __next__(self) -> None: ...

# --- requests: loopwatch.asgi ---

@final
class Route:
    """What the requests of one route have taken of the loop; the loop's thread adds, any thread reads."""

    def __new__(cls, number: int) -> Route: ...
    @property
    def number(self) -> int: ...
    @property
    def count(self) -> int:
        """Requests that have ended."""
    @property
    def cpu_ns(self) -> int: ...
    @property
    def busy_ns(self) -> int: ...

@final
class Request:
    """One request on the watched loop that runs here. `find(scope)` is called when a step has suspended and `route`
    is still None: it answers the route, or None where it is not known yet."""

    def __new__(cls, scope: Any, find: Callable[[Any], Route | None]) -> Request: ...
    @property
    def id(self) -> int:
        """From 1, never used twice in a process."""
    @property
    def begun_ns(self) -> int: ...
    @property
    def ended_ns(self) -> int | None: ...
    @property
    def find(self) -> Callable[[Any], Route | None]: ...
    @property
    def scope(self) -> Any: ...
    @property
    def route(self) -> Route | None: ...
    @route.setter
    def route(self, value: Route) -> None:
        """Once."""
    def end(self) -> bool:
        """It is over: count it. True where a stall of its loop has ended since it began."""
    @staticmethod
    def current() -> Request | None:
        """The one whose step runs on this thread."""
    @staticmethod
    def loop() -> int:
        """Slot.key of the watched loop that runs here; 0: there is none."""

@final
class Stepper:
    """`await Stepper(request, coroutine)` is `await coroutine`, and its steps count for the request."""

    def __new__(cls, request: Request, coroutine: Coroutine[Any, Any, Any]) -> Stepper: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...
    def __iter__(self) -> Generator[Any, Any, Any]: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any, /) -> Any: ...
    def throw(self, *args: Any) -> Any: ...
    def close(self) -> None: ...
    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    @property
    def cr_await(self) -> Any: ...
    @property
    def cr_code(self) -> CodeType: ...
    @property
    def cr_frame(self) -> FrameType | None: ...
    @property
    def cr_origin(self) -> tuple[tuple[str, int, str], ...] | None: ...
    @property
    def cr_running(self) -> bool: ...
    @property
    def cr_suspended(self) -> bool: ...

# --- every loop of the process ---

def watch_runs(callback: Callable[[asyncio.AbstractEventLoop], object], /) -> bool:
    """Call it with each loop that begins to run from now on, on its thread, when it is the running one already; what
    it raises is unraisable. False where asyncio is in Python only: then its _set_running_loop has to be replaced by
    one that calls run_begins() and run_ends()."""

def unwatch_runs() -> None:
    """Call it no longer; idempotent. A thread may be in the middle of a call."""

def run_begins(loop: object, /) -> None:
    """On the loop's thread, right after it became the running one: calls the callback."""

def run_ends() -> None:
    """On the loop's thread, right before the running loop is no more."""

def running_loops() -> list[asyncio.AbstractEventLoop] | None:
    """Those that run now, in any thread; None where that cannot be told."""

# --- the reporter's side ---

def next_record(timeout_ns: int | None) -> Record | None:
    """Wait for a record, without the GIL. None: time is up, or stop_reporter() was called. One thread at a time."""

def claim(token: int) -> bool:
    """Before a sink sees the record: False where the watchdog has written it to dump_to already."""

def delivered(token: int) -> None:
    """A sink took the record: the watchdog need not write it. No effect on records that are not urgent."""

def pending() -> int:
    """Records written and not yet returned by next_record(), stalls ended but not yet written, and slots retired that
    the watchdog has not let go: each of these may bring records."""

def pending_stalls() -> int:
    """The same without the retired slots: what may bring stalls of loops that have ended their runs."""

def taken() -> int:
    """Records that next_record() has returned in this process, or its parent's until the fork."""

def stop_reporter() -> None:
    """next_record() returns None, now or at its next call, once."""

def stop_watchdog(timeout_ns: int) -> bool:
    """End the watchdog thread where no slot is active. False where it did not end in time (it is detached)."""

def await_gone(native_thread_id: int, /) -> None:
    """Wait (0.1 s at most) until the kernel is done with a thread that was joined: it still counts it."""

def set_rearm(callback: Callable[[Slot], None] | None) -> None:
    """Called on the loop's thread, with the GIL, when a watched loop first runs in a forked child and its slot is
    active
    again, with dump_fd -1."""

def gc_clock(on: bool) -> None:
    """Stamp collections from now on, by a callable in gc.callbacks, or no longer; idempotent."""

def gc_pauses() -> tuple[tuple[int, int, int], ...]:
    """(count, nanoseconds, longest) of the collections stamped, by generation."""

def gc_leave_out(leave: bool, /) -> None:
    """Collections that end from now on do not count in gc_pauses(), or do again; from any thread, the calls nest."""

def frames_reason() -> str | None:
    """Why raw capture does not work here, or None."""

def facts() -> dict[str, Any]:
    """What doctor() shows of the native half: read backend and why not another, descriptor table, watchdog state."""

def status_page(descriptor: int, /) -> bool:
    """The watchdog writes the status page there from now on, until -1 is given; it takes a duplicate, and this waits
    for that, a second at most. False: it did not, or no watchdog runs."""

def status_note(json: bytes, /) -> None:
    """What the status page says of executors, from now on. ValueError where it is longer than 4096 bytes."""

def status_written() -> bool:
    """Whether the watchdog that runs has a status page."""

def set_libraries(directories: tuple[str, ...]) -> None:
    """Directories whose files are not the program's own code, for the culprit in dump_to. Once; later calls do
    nothing."""
