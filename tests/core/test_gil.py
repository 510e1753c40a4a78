"""Who holds the GIL, seen without it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

core = pytest.importorskip("loopwatch._testcore")
if reason := core.frames_setup()[1]:
    pytest.skip(f"no raw capture here: {reason}", allow_module_level=True)

HOLDING = ctypes.PyDLL(None)  # its calls keep the GIL
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
ENABLED = getattr(sys, "_is_gil_enabled", lambda: True)()
needs_gil = pytest.mark.skipif(not ENABLED, reason="there is no GIL in this process")


def hold(seconds: float) -> None:
    HOLDING.usleep(int(seconds * 1e6))


class Worker:
    """A thread that waits for a moment, without the GIL, and then does something."""

    def __init__(self, do: Callable[[], object], delay: float = 0.05) -> None:
        self.tstate = 0
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(do, delay))

    def run(self, do: Callable[[], object], delay: float) -> None:
        self.tstate = core.tstate_here()
        self.native_id = threading.get_native_id()
        self.ready.set()
        time.sleep(delay)
        do()

    def __enter__(self) -> Worker:
        self.thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.thread.join()


def test_it_works_here() -> None:
    assert core.gil_reason() is None


@needs_gil
def test_this_thread_holds_it() -> None:
    gil = core.gil_look()
    assert gil["known"]
    assert gil["enabled"]
    assert gil["locked"]
    assert gil["holder"] == core.tstate_here()
    begin, end = gil["range"]
    assert 0 < end - begin < 1024


@needs_gil
def test_a_thread_that_sleeps_with_it_is_seen_to_hold_it() -> None:
    with Worker(lambda: hold(0.4)) as worker:
        holders = core.gil_watch(60, 5000)
    # Looks from before and after its sleep see nobody; most lie within it, also on a machine that is busy.
    assert holders.count(worker.tstate) >= 20
    assert set(holders) <= {worker.tstate, core.tstate_here(), None}


@needs_gil
def test_nobody_holds_it_while_all_sleep() -> None:
    with Worker(lambda: time.sleep(0.3), delay=0):
        holders = core.gil_watch(30, 5000)
    assert holders.count(None) >= 25


@needs_gil
def test_each_thread_of_a_convoy_is_seen() -> None:
    def take_turns() -> None:
        for _ in range(10):
            hold(0.02)
            time.sleep(0.001)

    with Worker(take_turns) as one, Worker(take_turns) as two, Worker(take_turns) as three:
        holders = core.gil_watch(150, 3000)
    assert {one.tstate, two.tstate, three.tstate} <= set(holders)


@needs_gil
def test_the_holder_is_looked_at_as_any_thread() -> None:
    snapper = core.frames_snapper()

    def hold_it() -> None:
        hold(0.5)

    with Worker(hold_it) as worker:
        found, ident, snapshot = core.gil_holder_snapshot(snapper, 100)
    assert found
    assert ident == worker.thread.ident
    names = [frame[2].rpartition(".")[2] for frame in snapshot["frames"]]
    assert names[:4] == ["hold", "hold_it", "run", "run"]
    assert snapshot["frames"][1][1] == hold_it.__code__.co_firstlineno + 1
    assert snapshot["quality"] == "exact"


def test_a_thread_is_told_by_its_state() -> None:
    assert core.gil_ref(core.tstate_here()) == core.gil_ref_here()
    with Worker(lambda: None) as worker:
        ref = core.gil_ref(worker.tstate)
        assert ref[2] == worker.native_id
        assert ref[5] == worker.thread.ident
        # The clock made of the kernel's id is that thread's.
        assert time.clock_gettime(ref[3]) == pytest.approx(0, abs=10)
        assert ref[3] == time.pthread_getcpuclockid(worker.thread.ident)


def test_what_is_no_thread_of_ours_is_refused() -> None:
    other = ctypes.create_string_buffer(4096)
    for garbage in (0, 1, 8, 1 << 47, (1 << 64) - 8, id(None), ctypes.addressof(other)):
        assert core.gil_ref(garbage) is None
    assert core.gil_ref(core.tstate_here(), id(None)) is None  # another interpreter


def test_a_thread_that_has_ended_is_refused() -> None:
    with Worker(lambda: None) as worker:
        assert core.gil_ref(worker.tstate) is not None
    ended = time.monotonic() + 10
    while Path(f"/proc/self/task/{worker.native_id}").exists():  # its memory may still look as before
        assert time.monotonic() < ended
        time.sleep(0.001)
    assert core.gil_ref(worker.tstate) is None


def test_memory_that_cannot_be_read_or_is_noise() -> None:
    assert core.gil_of_nothing() == {
        "known": False,
        "enabled": False,
        "locked": False,
        "holder": 0,
        "range": (0, 0),
    }
    assert core.gil_of_noise(7, 20000) == 0


@needs_gil
def test_a_thread_that_waits_for_it_sits_in_a_futex_of_the_struct() -> None:
    begin, end = core.gil_look()["range"]
    buffer = ctypes.create_string_buffer(256)
    before = sys.getswitchinterval()
    sys.setswitchinterval(10)  # it waits in one go, and does not ask for the GIL while it is watched
    try:
        with Worker(lambda: None) as worker:
            fd = os.open(f"/proc/self/task/{worker.native_id}/syscall", os.O_RDONLY)
            addresses = set()
            try:
                for _ in range(100):
                    hold(0.005)
                    n = HOLDING.pread(fd, buffer, 255, 0)
                    words = buffer.raw[: max(n, 0)].split()
                    if len(words) > 1:
                        addresses.add(int(words[1], 16))
            finally:
                os.close(fd)
    finally:
        sys.setswitchinterval(before)
    if not addresses:
        pytest.skip("/proc does not tell the system call here")
    assert [address for address in addresses if begin <= address < end]


# --- free-threaded builds ---

LOOK = (
    "from loopwatch import _testcore as core; gil = core.gil_look(); print(core.gil_reason(), gil['enabled'])"
)


@pytest.mark.skipif(not FREE_THREADED, reason="builds with a GIL have one")
@pytest.mark.parametrize(("setting", "enabled"), [("0", "False"), ("1", "True")])
def test_a_build_without_it_can_have_one(setting: str, enabled: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={**os.environ, "PYTHON_GIL": setting},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout.split() == ["None", enabled]
