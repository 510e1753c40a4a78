"""A breakpoint is no stall, nor is a process that something traces."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from programs import Finished, command, environment, full_build, next_fact, run_program, said, started

import loopwatch

PDB = """
    import asyncio, sys
    import loopwatch
    from scenario import block, culprits, quiet, say

    async def main():
        watch = loopwatch.install(**quiet(capture="{capture}", hang_after=0.2))
        await asyncio.sleep(0.02)
        {stop}
        await asyncio.sleep(0.02)
        block()
        await asyncio.sleep(0.02)
        await asyncio.to_thread(watch.flush)
        return watch

    watch = asyncio.run(main())
    say(culprits=culprits(watch.stalls), stats=watch.stats())
"""


def debugged(stop: str, capture: str = "auto") -> Finished:
    """Somebody thinks for 0.5 s at the prompt."""
    program = subprocess.Popen(
        command(PDB.format(stop=stop, capture=capture)),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    before = ""
    while not before.endswith("(Pdb) ") and (more := program.stdout.read(1)):
        before += more
    time.sleep(0.5)
    stdout, stderr = program.communicate("continue\n", timeout=20)
    return Finished(program.returncode, stdout, stderr, 0, said(stdout.replace("(Pdb) ", "")))


@pytest.mark.parametrize("stop", ["breakpoint()", "import pdb; pdb.set_trace()"])
def test_prompt_of_pdb_is_no_stall(stop: str) -> None:
    program = debugged(stop)
    assert (program.returncode, program.stderr) == (0, "")
    assert program.facts["culprits"] == ["block"]
    if loopwatch._core.frames_reason() is None:
        assert program.facts["stats"]["stalls_debugged"] >= 1, "counted"


def test_prompt_of_pdb_is_no_stall_where_the_reporter_reads_the_frames() -> None:
    program = debugged("breakpoint()", "gil")
    assert (program.returncode, program.stderr) == (0, "")
    assert program.facts["culprits"] == ["block"]


TRACED = """
    import asyncio, os, sys, time
    import loopwatch
    from scenario import block, culprits, quiet, say

    async def main():
        watch = loopwatch.install(**quiet(hang_after=0.2))
        await asyncio.sleep(0.05)
        say(pid=os.getpid())
        sys.stdin.readline()  # the tracer is there
        await asyncio.sleep(0)
        block()
        await asyncio.sleep(0.01)
        say(traced=len(watch.stalls), debugged=watch.stats()["stalls_debugged"])
        sys.stdin.readline()  # the tracer is gone
        await asyncio.sleep(0)
        block()
        await asyncio.sleep(0.01)
        await asyncio.to_thread(watch.flush)
        say(culprits=culprits(watch.stalls)[-1])
    asyncio.run(main())
"""


def is_traced(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


def tracers() -> list[Any]:
    return [
        pytest.param(
            command, id=command[0], marks=pytest.mark.skipif(not shutil.which(command[0]), reason="not there")
        )
        for command in (
            ["gdb", "--batch-silent", "-ex", "continue", "-p"],
            ["strace", "-f", "-o", "/dev/null", "-p"],
        )
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("tracer", tracers())
@full_build
def test_traced_process_has_no_stalls(tracer: list[str]) -> None:
    with started(TRACED, stdin=subprocess.PIPE) as program:
        assert program.stdin is not None
        pid = next_fact(program)["pid"]
        attached = subprocess.Popen(
            [*tracer, str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 10
            while not is_traced(pid):
                if attached.poll() is not None or time.monotonic() > deadline:
                    pytest.skip("this tracer may not attach here")
                time.sleep(0.02)
            program.stdin.write("\n")
            program.stdin.flush()
            facts = next_fact(program)
        finally:
            attached.terminate()
            attached.wait()
        # gdb's end is not at once the end of the tracing
        deadline = time.monotonic() + 5
        while is_traced(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert facts["traced"] == 0
        assert facts["debugged"] >= 1
        program.stdin.write("\n")
        program.stdin.flush()
        assert next_fact(program) == {"culprits": "block"}, "without the tracer it is watched again"


def test_a_frame_of_bdb_that_is_over_hides_nothing() -> None:
    source = """
        import asyncio, bdb
        import loopwatch
        from scenario import watch_a_block
        class Quiet(bdb.Bdb):
            pass
        debugger = Quiet()
        debugger.runcall(len, "x")
        watch_a_block()
    """
    assert run_program(source).check()["culprits"] == ["block"]
