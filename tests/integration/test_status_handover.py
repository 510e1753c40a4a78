"""The watchdog gets the status page, or never: a descriptor's number may be another file's soon after it was
offered. And there is one watchdog, also where one was too slow to end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import full_build, next_fact, run_program, started, wait_until

from loopwatch import _page

PRELUDE = """
    import asyncio, os, sys
    from pathlib import Path
    import loopwatch
    from loopwatch import _core
    from loopwatch._registry import registry
    from scenario import block, new_loop, our_threads, quiet, say

    def watchdogs():
        tasks = Path("/proc/self/task").iterdir()
        return [int(task.name) for task in tasks if (task / "comm").read_text() == "loopwatch\\n"]

    def offer_and_reuse(path):
        descriptor = os.open(path + ".page", os.O_RDWR | os.O_CREAT)
        taken = _core.status_page(descriptor)
        os.close(descriptor)
        assert os.open(path, os.O_RDWR | os.O_CREAT) == descriptor, "the number was to be used again"
        return taken
"""
OPTIONS = "threshold=0.05, log=False, dump_to=False"

# --- one thread of another process, stopped ---

_SEIZE, _INTERRUPT, _DETACH, _WALL = 0x4206, 0x4207, 17, 0x40000000


def _ptrace(request: int, tid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, tid, None, None):
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")


@contextlib.contextmanager
def stopped(tid: int) -> Iterator[None]:
    _ptrace(_SEIZE, tid)
    _ptrace(_INTERRUPT, tid)
    os.waitpid(tid, _WALL)
    try:
        yield
    finally:
        _ptrace(_DETACH, tid)


def go_on(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


# --- who is not there, or not in time, never gets it ---


NOBODY_THERE = f"""
    {PRELUDE}
    taken = offer_and_reuse(sys.argv[1])

    async def main():
        loopwatch.install({OPTIONS})
        block(0.1)
        await asyncio.sleep(0.6)  # twice what lies between two writings

    asyncio.run(main())
    say(taken=taken, size=os.stat(sys.argv[1]).st_size)
"""


def test_a_page_that_nobody_took_is_not_written_to_the_next_file_of_its_number(tmp_path: Path) -> None:
    facts = run_program(NOBODY_THERE, tmp_path / "file").check()
    assert facts == {"taken": False, "size": 0}


TOO_SLOW = f"""
    {PRELUDE}
    loop = new_loop()
    loopwatch.install(loop, {OPTIONS})
    loop.run_until_complete(asyncio.sleep(0.05))
    [tid] = watchdogs()
    say(tid=tid)
    input()
    say(taken=offer_and_reuse(sys.argv[1]))
    input()
    loop.run_until_complete(asyncio.sleep(0.6))
    written = _core.status_written()
    loop.close()
    say(size=os.stat(sys.argv[1]).st_size, offered=os.stat(sys.argv[1] + ".page").st_size, written=written)
"""


@full_build  # elsewhere it sleeps on a condition, whose signal waits for a thread that a debugger stopped
def test_a_watchdog_that_was_too_slow_does_not_take_it_later(tmp_path: Path) -> None:
    with started(TOO_SLOW, tmp_path / "file", stdin=subprocess.PIPE) as program:
        with stopped(next_fact(program)["tid"]):
            go_on(program)
            assert next_fact(program) == {"taken": False}
        go_on(program)
        assert next_fact(program) == {"size": 0, "offered": 0, "written": False}


# --- one watchdog ---

TOO_LATE = f"""
    {PRELUDE}
    first = new_loop()
    loopwatch.install(first, {OPTIONS}, status=sys.argv[1] + ".first")
    first.run_until_complete(asyncio.sleep(0.05))
    [tid] = watchdogs()
    say(tid=tid)
    input()
    loopwatch.uninstall(first)
    first.close()
    second = new_loop()
    watch = loopwatch.install(second, {OPTIONS}, status=sys.argv[1])
    say(same=watchdogs() == [tid])
    input()
    async def main():
        block(0.2)
        await asyncio.sleep(0.05)
        say(flushed=await asyncio.to_thread(watch.flush, 20), stalls=len(watch.stalls))
        await asyncio.to_thread(input)
    second.run_until_complete(main())
    watch.uninstall()
    second.close()
    say(left=our_threads(), first=os.path.exists(sys.argv[1] + ".first"))
"""


@full_build  # elsewhere it sleeps on a condition, whose signal waits for a thread that a debugger stopped
def test_a_watchdog_that_was_too_slow_to_end_goes_on(tmp_path: Path) -> None:
    """There are not two, which would write into each other's page."""
    page = tmp_path / "page"
    with started(TOO_LATE, page, stdin=subprocess.PIPE) as program:
        with stopped(next_fact(program)["tid"]):
            go_on(program)
            assert next_fact(program) == {"same": True}
        go_on(program)
        assert next_fact(program) == {"flushed": True, "stalls": 1}
        wait_until(lambda: _page.read(page).body.get("stalls"))
        go_on(program)
        assert next_fact(program) == {"left": [], "first": False}


NO_ROOM = f"""
    {PRELUDE}
    import resource

    async def main():
        watch = loopwatch.install({OPTIONS}, status=sys.argv[1])
        await asyncio.sleep(0.05)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        for _ in range(100):
            await asyncio.sleep(0.05)
            if watch.stats()["status_failed"]:
                break
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        say(failed=watch.stats()["status_failed"] > 0)

    asyncio.run(main())
"""


def test_a_page_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    assert run_program(NO_ROOM, tmp_path / "page").check() == {"failed": True}
