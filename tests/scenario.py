"""What the programs of the tests are made of: ways to block, ways to look, ways to forbid."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import platform
import struct
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import loopwatch

THRESHOLD = 0.1
"""Long enough that a machine with more to do than it has CPUs does not make stalls of its own too often."""
BLOCK = 0.25


def say(**facts: object) -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


# --- ways to block ---


def block(seconds: float = BLOCK) -> None:
    time.sleep(seconds)


def hold_gil(seconds: float) -> None:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


async def blocked_once(seconds: float = BLOCK) -> None:
    await asyncio.sleep(0.02)
    block(seconds)
    await asyncio.sleep(0.02)


# --- loops ---


def new_loop(kind: str = "turn") -> asyncio.AbstractEventLoop:
    """A loop that the pulse of this name (or "wrapped") can watch."""
    if kind == "uv":
        import uvloop

        return uvloop.new_event_loop()  # type: ignore[no-any-return]
    if kind == "wrapped":
        import selectors

        return asyncio.SelectorEventLoop(selectors.PollSelector())
    return asyncio.SelectorEventLoop()


def pulse_of(kind: str) -> Any:
    return "turn" if kind == "wrapped" else kind


def quiet(**options: Any) -> dict[str, Any]:
    """Options of a watch that writes nowhere and sees short stalls."""
    return {"threshold": THRESHOLD, "log": False, "dump_to": False, **options}


def run_watched(
    kind: str, main: Callable[[], Coroutine[Any, Any, object]], **options: Any
) -> loopwatch.Watch:
    """The watch of a loop of this kind in which `main` has run, and that is closed."""
    loop = new_loop(kind)
    watch = loopwatch.install(loop, **quiet(**{"pulse": pulse_of(kind), **options}))
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return watch


def in_threads(number: int, work: Callable[[], object]) -> list[BaseException]:
    """Does it in so many threads at once; what they raised."""
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=attempt) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return failures


# --- ways to look ---


def wait_until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return answer


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def left_on(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Attributes of ours on a loop and its selector."""
    selector = getattr(loop, "_selector", None)
    names = ("close", "run_forever", "run_in_executor", "set_default_executor")
    left = [name for name in names if name in getattr(loop, "__dict__", {})]
    return left + [name for name in ("select", "close") if name in getattr(selector, "__dict__", {})]


def our_threads() -> list[str]:
    """Threads of ours, Python's and native ones (named `loopwatch`)."""
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("loopwatch")]
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:
            continue
        if name == "loopwatch":
            names.append(name)
    return names


def no_thread_of_ours() -> bool:
    """The kernel may list a thread for a moment after it was joined."""
    return bool(wait_until(lambda: not our_threads(), 2.0))


def of_the_program(stalls: Any) -> list[Any]:
    """Without those of a busy machine, which a test cannot keep from happening."""
    return [stall for stall in stalls if stall.verdict is not loopwatch.Verdict.NOT_SCHEDULED]


def culprits(stalls: Any) -> list[str]:
    return [stall.culprit.qualname if stall.culprit else "" for stall in of_the_program(stalls)]


# --- ways to forbid ---

SYSCALLS = {  # x86-64, and the numbers that newer architectures share
    "process_vm_readv": (310, 270),
    "memfd_create": (319, 279),
    "pwritev": (296, 70),
    "pwritev2": (328, 287),
    "close_range": (436, 436),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def forbid(*names: str, error: int = errno.EPERM) -> None:
    """A seccomp filter of this thread and those that it starts: the calls named answer `error`."""
    machine = platform.machine()
    numbers = [SYSCALLS[name][machine != "x86_64"] for name in names]
    load, jump_equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | error
    program = [
        (load, 0, 0, 4),
        (jump_equal, 1, 0, _ARCHITECTURES[machine]),
        (answer, 0, 0, allow),
        (load, 0, 0, 0),
    ]
    for number in numbers:
        program += [(jump_equal, 0, 1, number), (answer, 0, 0, refuse)]
    program.append((answer, 0, 0, allow))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    head = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, head, 0, 0):  # NO_NEW_PRIVS; SECCOMP: FILTER
        raise OSError(ctypes.get_errno(), "seccomp")


def watch_a_block(**options: Any) -> None:
    """The whole way once: a blocked coroutine is reported, and how."""
    seen: list[loopwatch.Stall] = []
    loopwatch.run(blocked_once(), **quiet(on_stall=seen.append, **options))
    say(culprits=culprits(seen), durations=[stall.duration for stall in seen])


if sys.version_info >= (3, 12):
    import warnings

    # The tests fork with threads on purpose.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*use of fork.*")
