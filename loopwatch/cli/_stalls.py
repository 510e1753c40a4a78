"""A process that makes one stall, of the kind that it is told: `python -m loopwatch.cli._stalls KIND`. It says what a
watch made of it, as JSON. For the self-test of `loopwatch doctor`."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import loopwatch
from loopwatch import _core

SECONDS: Final = 0.3
THRESHOLD: Final = 0.05
STOPPED_SECONDS: Final = 0.4
READY: Final = "ready"
_HOGS: Final = 4
_CALLBACKS: Final = 300


def count(cpu: float = SECONDS) -> None:
    """So much CPU time in Python code."""
    end = time.thread_time() + cpu
    while time.thread_time() < end:
        total = 0
        for number in range(2_000):
            total += number ^ 3


def match(text: str) -> None:
    re.search("a*b", text)


def matching() -> Callable[[], None]:
    size = 8_000
    while True:
        began = time.thread_time()
        match("a" * size)
        took = time.thread_time() - began
        if took >= SECONDS / 2:
            text = "a" * int(size * (SECONDS / took) ** 0.5)
            return lambda: match(text)
        size *= 2


_heap: Final[list[list[Any]]] = []


def collecting() -> Callable[[], object]:
    while True:
        _heap.extend([] for _ in range(200_000))
        began = time.thread_time()
        gc.collect()
        if time.thread_time() - began >= SECONDS / 2:
            return gc.collect


def wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(SECONDS, lock.release).start()
    lock.acquire()


def keep_gil() -> None:
    ctypes.PyDLL(None).usleep(int(SECONDS * 1e6))


def want_gil() -> None:
    holder = threading.Thread(target=keep_gil)
    holder.start()
    while holder.is_alive():
        pass


def go_on_when_stopped() -> None:
    """Whoever started this process stops it for a while once it is ready."""
    print(READY, flush=True)
    end = time.monotonic() + STOPPED_SECONDS
    while time.monotonic() < end:
        pass


def share_a_cpu() -> None:
    """With others that want all of it."""
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    program = (
        "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"
    )
    line = [sys.executable, "-S", "-c", program, str(cpu)]
    hogs = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(_HOGS)]
    try:
        for hog in hogs:
            assert hog.stdout is not None
            hog.stdout.readline()
        count(0.1)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


async def many_callbacks() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(_CALLBACKS):
        loop.call_soon(count, SECONDS / _CALLBACKS)
    await asyncio.sleep(0.01)


PREPARE: Final[dict[str, Callable[[], Callable[[], object]]]] = {
    "python": lambda: count,
    "native": matching,
    "blocking-call": lambda: lambda: time.sleep(SECONDS),
    "lock": lambda: wait_for_lock,
    "gil": lambda: want_gil,
    "gc": collecting,
    "many-callbacks": lambda: many_callbacks,
    "suspended": lambda: go_on_when_stopped,
    "not-scheduled": lambda: share_a_cpu,
}
"""By the verdict that is to come out: what makes the call that blocks."""


async def stall(block: Callable[[], object]) -> None:
    await asyncio.sleep(0.1)
    made = block()
    if asyncio.iscoroutine(made):
        await made
    await asyncio.sleep(0.1)


def main(kind: str) -> None:
    block = PREPARE[kind]()
    loop = asyncio.new_event_loop()
    with contextlib.closing(loop):
        watch = loopwatch.install(loop, threshold=THRESHOLD, log=False, dump_to=False)
        loop.run_until_complete(stall(block))
        watch.flush()
        evidence = _core.facts().get("evidence", {})
        longest = max(watch.stalls, key=lambda stall: stall.duration, default=None)
    breakdown = {} if longest is None else {str(cause): part for cause, part in longest.breakdown.items()}
    print(json.dumps({"breakdown": breakdown, "evidence": evidence}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
