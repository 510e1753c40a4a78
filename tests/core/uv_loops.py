"""What the tests of the uv pulse share, also the programs that they run: watched uvloops."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop
import uvloop.loop

from loopwatch import _core, _testcore

FORKING = "ignore:This process:DeprecationWarning"  # 3.12+: ... is multi-threaded; that is what is tested
HOUR_NS = 3_600 * 10**9
PREPARE, TIMER = 9, 13  # uv_handle_type

_libuv = ctypes.CDLL(uvloop.loop.__file__)
RESTS = hasattr(_libuv, "uv_metrics_info")  # libuv 1.45: the prepare handle of a loop in a hurry rests
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Handle(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("loop", ctypes.c_void_p), ("type", ctypes.c_int))


_Visit = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Handle), ctypes.c_void_p)


def handles(loop: asyncio.AbstractEventLoop) -> dict[int, int]:
    """How many prepare and timer handles lie in a loop that does not run. uvloop itself has no prepare
    handles, and timers only for call_later."""
    found: Counter[int] = Counter()
    visit = _Visit(lambda handle, _: found.update([handle.contents.type]))
    _libuv.uv_walk(ctypes.c_void_p(_pointer_of(uvloop.loop.libuv_get_loop_t_ptr(loop), None)), visit, None)
    return {kind: found[kind] for kind in (PREPARE, TIMER) if found[kind]}


async def hurry(turns: int) -> None:
    """Turns of a microsecond or two, so many."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Watched:
    """A uvloop as the installer hooks it: run edge, pulse, and a close() that stops the pulse."""

    def __init__(self, core: Any = _testcore, threshold_ns: int = HOUR_NS, pulse: str = "uv") -> None:
        self.loop = uvloop.new_event_loop()
        self.slot = core.Slot(
            loop=self.loop,
            threshold_ns=threshold_ns,
            hang_after_ns=None,
            capture="off",
            pulse=pulse,
            dump_fd=-1,
            dump_names=True,
        )
        if pulse == "uv":
            self.pulse = core.UvPulse(self.slot, self.loop)
        else:
            self.pulse = core.Heartbeat(self.slot, self.loop, 0.005)
        self.loop.run_forever = core.RunEdge(self.slot, self.loop.run_forever)  # type: ignore[method-assign]
        self._close, self.loop.close = self.loop.close, self.close  # type: ignore[method-assign]
        self.slot.start()
        self.pulse.start()

    def close(self) -> None:
        self.retire()
        self.pulse.stop()
        self._close()

    def retire(self) -> None:
        assert self.slot.retire(5 * 10**9)

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    @property
    def totals(self) -> dict[str, int]:
        return self.slot.histogram()[1]  # type: ignore[no-any-return]


@contextmanager
def watched(core: Any = _testcore, threshold_ns: int = HOUR_NS, pulse: str = "uv") -> Iterator[Watched]:
    it = Watched(core, threshold_ns, pulse)
    try:
        yield it
    finally:
        it.loop.close()


@contextmanager
def traffic(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """The loop runs on another thread and echoes as fast as it can."""
    stop = threading.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async def client(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not stop.is_set():
            writer.write(b"x" * 50)
            await reader.readexactly(50)
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        started.set()
        await asyncio.gather(*(client(port) for _ in range(4)))
        server.close()
        await server.wait_closed()

    started = threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert started.wait(10)
        yield
    finally:
        stop.set()
        thread.join()


class Blocker:
    """Blocks the loop, and notes when it did by its own clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.truth: list[tuple[int, int]] = []

    def __call__(self, *_: object) -> None:
        begin = time.monotonic_ns()
        time.sleep(self.seconds)
        self.truth.append((begin, time.monotonic_ns()))


async def block_in_every_way(block: Blocker) -> None:
    """In a task, a plain callback, a timer, a reader, and right before the run ends."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0.02)
    block()
    await asyncio.sleep(0.02)
    loop.call_soon(block)
    await asyncio.sleep(0.02)
    loop.call_later(0.01, block)
    await asyncio.sleep(0.1)
    read_end, write_end = os.pipe()

    def readable() -> None:
        loop.remove_reader(read_end)
        block()

    loop.add_reader(read_end, readable)
    await asyncio.to_thread(os.write, write_end, b"x")
    await asyncio.sleep(0.05)
    os.close(read_end)
    os.close(write_end)
    block()


def off_by(records: Sequence[_core.Record], truth: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """By how much each record begins before its block, and ends after it."""
    before, after = [], []
    for record, (begin, end) in zip(records, truth, strict=True):
        before.append(begin - record["begin_ns"])
        after.append(record["end_ns"] - end)
    return before, after


def take_records() -> list[_core.Record]:
    """Those of stalls, not the accounts of the profile."""
    records = []
    while record := _core.next_record(0):
        if record["kind"] in ("ended", "ongoing"):
            records.append(record)
    return records


def run_program(program: str) -> None:
    """In a process of its own: it must end well and say nothing."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parent.parent)])
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", FORKING, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
