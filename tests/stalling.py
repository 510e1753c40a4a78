"""One function for each cause of a stall, and what a watch says of it: for the programs of test_causes*.py."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from scenario import hold_gil, new_loop, pulse_of, quiet, say

import loopwatch

SECONDS = 0.3


# --- ways to stall the thread that calls ---


def sleeps() -> None:
    time.sleep(SECONDS)


def counts(cpu: float = SECONDS) -> None:
    """So much computing, however long the machine takes for it."""
    end = time.thread_time() + cpu
    while time.thread_time() < end:
        total = 0
        for number in range(2_000):
            total += number ^ 3


def asks_the_time() -> None:
    """A loop that does little but call something quick in C."""
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        pass


def packs_rows() -> None:
    """A loop that calls something in C that takes 100 us or more."""
    rows = list(range(2_000))
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        json.dumps(rows)


def waits_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(SECONDS, lock.release).start()
    lock.acquire()


def matches(text: str) -> None:
    re.search("a*b", text)


def dumps(rows: list[int]) -> None:
    json.dumps(rows)


def collects() -> None:
    gc.collect()


def keeps_gil(seconds: float = SECONDS) -> None:
    hold_gil(seconds)


def fitted(call: Callable[[Any], None], make: Callable[[int], Any], seconds: float, power: int = 1) -> Any:
    """What `make` makes, large enough that the call takes so long here. Its cost grows with this power of the size."""
    size = 8_000
    while True:
        thing = make(size)
        began = time.thread_time()
        call(thing)
        if (took := time.thread_time() - began) >= seconds:
            return thing
        size = int(size * min(10.0, 1.1 * (seconds / took) ** (1 / power)))


def text_for(seconds: float) -> str:
    text: str = fitted(matches, lambda size: "a" * size, seconds, power=2)
    return text


def rows_for(seconds: float) -> list[int]:
    rows: list[int] = fitted(dumps, lambda size: list(range(size)), seconds)
    return rows


def heap_for(seconds: float) -> list[list[Any]]:
    heap: list[list[Any]] = []

    def grow(size: int) -> None:
        heap.extend([] for _ in range(size - len(heap)))

    fitted(lambda _: collects(), grow, seconds)
    return heap


# --- ways to stall it by another one ---


def waits_for(work: Callable[[], None]) -> None:
    """Another thread does it, and this one has something to do in Python."""
    done = threading.Event()
    threading.Thread(target=lambda: (work(), done.set()), name="worker").start()
    while not done.is_set():
        pass


# --- what a watch says ---


def first() -> None:
    """Before every other process for a CPU, where this may be: what these programs compute must not wait for other
    tests. Not by nice alone: where the kernel groups processes by session, it says nothing between groups."""
    with contextlib.suppress(AttributeError, OSError):  # where it may not be, the machine had better be idle
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def facts(stall: loopwatch.Stall) -> dict[str, Any]:
    told = stall.to_dict()
    del told["frame_table"], told["samples"]
    return told | {
        "culprit": stall.culprit and stall.culprit.qualname,
        "line": stall.culprit and stall.culprit.lineno,
        "stack": [frame.qualname for frame in stall.frames],
        "holder": stall.holder and [frame.qualname for frame in stall.holder.frames],
        "text": stall.format(),
    }


def watched(*blocks: Callable[[], object], kind: str = "turn", alone: bool = True, **options: Any) -> None:
    """Each block in a turn of its own, which the loop of this kind runs; says what was reported of it: `stalls`,
    one for each block, whichever lasted longest. Unless `alone` is False, before all other processes."""
    if alone:
        first()
    seen: list[loopwatch.Stall] = []
    ongoing: list[tuple[float, loopwatch.Stall]] = []
    spans: list[tuple[float, float]] = []

    def keep(stall: loopwatch.Stall) -> None:
        if stall.ongoing:
            ongoing.append((time.time(), stall))
        else:
            seen.append(stall)

    async def main() -> None:
        for block in blocks:
            await asyncio.sleep(0.1)
            began = time.time()
            block()
            spans.append((began, time.time()))
        await asyncio.sleep(0.1)

    loop = new_loop(kind)
    watch = loopwatch.install(loop, **quiet(pulse=pulse_of(kind), on_stall=keep, **options))
    try:
        loop.run_until_complete(main())
        watch.flush()
    finally:
        loop.close()

    def longest(span: tuple[float, float]) -> dict[str, Any] | None:
        middle = sum(span) / 2
        found = [s for s in seen if 0 <= middle - s.started_at.timestamp() <= s.duration]
        return facts(max(found, key=lambda stall: stall.duration)) if found else None

    say(
        stalls=[longest(span) for span in spans],
        ongoing=[(at, facts(stall)) for at, stall in ongoing],
        spans=spans,
        capture=watch.capture,
    )
