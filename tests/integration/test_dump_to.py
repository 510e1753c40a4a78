"""Where an ongoing report goes that Python cannot take, and what happens where it cannot go there."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from programs import GIL, Finished, full_build, run_program

import loopwatch

STUCK = """
    import asyncio, logging, os, sys, threading, time
    import loopwatch
    from scenario import block, say

    free = threading.Event()

    class Stuck(logging.Handler):
        def emit(self, record):
            free.wait(20)

    logging.getLogger("loopwatch").addHandler(Stuck())
    {prepare}

    async def main():
        watch = loopwatch.install(threshold=0.05, hang_after=0.1, dump_to={dump_to})
        {installed}
        await asyncio.sleep(0.02)
        block(0.6)
        await asyncio.sleep(0.02)
        stats = watch.stats()
        free.set()
        return stats

    stats = asyncio.run(main())
    say(**stats)
    {afterwards}
"""
"""A log handler that is the very thing that is stuck: the reporter does not come back from it."""


def stuck(
    dump_to: str,
    *args: str | Path,
    prepare: str = "",
    installed: str = "",
    afterwards: str = "",
    **options: Any,
) -> Finished:
    # stuck handler: the first record that it gets is the ongoing one; see "dumps" in the counters
    return run_program(
        STUCK.format(dump_to=dump_to, prepare=prepare, installed=installed or "pass", afterwards=afterwards),
        *args,
        **options,
    )


def counted(program: Finished) -> tuple[int, int]:
    assert program.returncode == 0, program
    return program.facts["dumps"], program.facts["dumps_failed"]


# --- where it goes ---


@full_build
def test_none_is_standard_error() -> None:
    program = stuck("None")
    assert counted(program) == (1, 0)
    assert program.stderr.startswith('loopwatch: the event loop of thread "MainThread"')
    assert program.stderr.count("\n  culprit: block (") == 1


@full_build
def test_standard_error_is_looked_up_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "error"
    program = stuck("None", path, installed="os.dup2(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), 2)")
    assert counted(program) == (1, 0)
    assert program.stderr == ""
    assert "culprit: block" in path.read_text()


def test_false_is_nowhere() -> None:
    program = stuck("False")
    assert counted(program) == (0, 0)
    assert program.stderr == ""


@full_build
def test_path(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    assert counted(stuck("sys.argv[1]", path)) == (1, 0)
    assert "culprit: block" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_path_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    path.write_text("before\n")
    path.chmod(0o644)
    assert counted(stuck("__import__('pathlib').Path(sys.argv[1])", path)) == (1, 0)
    assert path.read_text().startswith("before\nloopwatch: ")
    assert path.stat().st_mode & 0o777 == 0o644, "what was there keeps its mode"


@full_build
def test_nothing_of_the_path_stays_open_in_the_program_or_its_children(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    looking = (
        "import subprocess; own = '/proc/self/fd'; "
        "say(children=subprocess.check_output(['ls', '-l', own], text=True), "
        "own=[os.readlink(f'{own}/{n}') for n in range(3, 40) if os.path.exists(f'{own}/{n}')])"
    )
    program = stuck("sys.argv[1]", path, installed=looking)
    assert counted(program) == (1, 0)
    assert str(path) not in program.facts["children"]
    assert str(path) not in program.facts["own"]


@full_build
def test_descriptor_is_duplicated(tmp_path: Path) -> None:
    """Closed, and its number used again for another file: that file stays empty."""
    path, other = tmp_path / "dump", tmp_path / "other"
    program = stuck(
        "descriptor",
        path,
        other,
        prepare="descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)",
        installed="os.close(descriptor); assert os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY) == descriptor",
    )
    assert counted(program) == (1, 0)
    assert "culprit: block" in path.read_text()
    assert other.read_text() == ""


def test_descriptor_stays_the_programs(tmp_path: Path) -> None:
    """Neither closed nor made non-blocking; after the uninstall it is as it was."""
    program = stuck(
        "descriptor",
        tmp_path / "dump",
        prepare="descriptor = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)",
        afterwards="say(blocking=os.get_blocking(descriptor), wrote=os.write(descriptor, b'mine'))",
    )
    assert counted(program) == (1, 0)
    assert program.facts["blocking"] is True
    assert program.facts["wrote"] == 4


# --- where it cannot go ---

DEADLY_SIGPIPE = "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)"


def test_full_disk_is_counted() -> None:
    assert counted(stuck("'/dev/full'")) == (0, 1)


def test_pipe_without_a_reader_is_counted_and_raises_no_signal() -> None:
    program = stuck(
        "descriptor",
        prepare=f"{DEADLY_SIGPIPE}; reader, descriptor = os.pipe()",
        installed="os.close(reader)",
    )
    assert counted(program) == (0, 1)


def test_full_pipe_is_not_waited_for() -> None:
    program = stuck(
        "descriptor",
        prepare=(
            "reader, descriptor = os.pipe(); os.set_blocking(descriptor, False); "
            "exec('try:\\n while True: os.write(descriptor, bytes(4096))\\nexcept BlockingIOError: pass'); "
            "os.set_blocking(descriptor, True)"
        ),
    )
    assert counted(program) == (0, 1)
    assert program.seconds < 5, "nobody ever reads that pipe"


def test_socket_whose_other_end_is_gone() -> None:
    program = stuck(
        "a.fileno()",
        prepare=f"{DEADLY_SIGPIPE}; import socket; a, b = socket.socketpair()",
        installed="b.close()",
    )
    assert counted(program) == (0, 1)


@pytest.mark.skipif(not GIL, reason="no GIL that could be held")
def test_full_pipe_while_the_gil_is_held() -> None:
    """The watchdog neither waits for the pipe nor for Python, and is there for the stall after that."""
    source = """
        import asyncio, os
        import loopwatch
        from scenario import block, hold_gil, quiet, say

        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writer, True)

        async def main():
            with loopwatch.install(**quiet(hang_after=0.1, dump_to=writer)) as watch:
                await asyncio.sleep(0.02)
                hold_gil(0.6)
                await asyncio.sleep(0.02)
                block(0.1)
                await asyncio.sleep(0.02)
            say(failed=watch.stats()["dumps_failed"], stalls=len(watch.stalls))

        asyncio.run(main())
    """
    assert run_program(source).check() == {"failed": 1, "stalls": 2}


# --- what is refused ---


@pytest.fixture
def loop() -> Any:
    loop = asyncio.SelectorEventLoop()
    yield loop
    assert not {"_loopwatch", "close", "run_forever"} & vars(loop).keys(), (
        "refused, and nothing is left on the loop"
    )
    loop.close()


def refused(loop: asyncio.AbstractEventLoop, error: type[Exception], dump_to: Any) -> Exception:
    with pytest.raises(error) as caught:
        loopwatch.install(loop, dump_to=dump_to)
    return caught.value


@full_build
def test_a_number_that_is_another_files_by_now_is_left_alone(tmp_path: Path) -> None:
    """install_all was told of it; the loop comes after a program closed what it does not own."""
    theirs = tmp_path / "theirs"
    source = """
        import asyncio, os, sys
        import loopwatch
        from scenario import hold_gil, say

        ours = os.open("/dev/null", os.O_WRONLY)
        loopwatch.install_all(threshold=0.05, hang_after=0.1, log=False, dump_to=ours)
        os.close(ours)
        assert os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT) == ours

        async def main():
            await asyncio.sleep(0.02)
            hold_gil(0.8)

        asyncio.run(main())
        say(ended=True)
    """
    assert run_program(source, theirs).check()["ended"]
    assert theirs.read_bytes() == b""


def test_symbolic_link_is_refused(loop: Any, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    problem = refused(loop, OSError, link)
    assert isinstance(problem, OSError)
    assert problem.errno == errno.ELOOP
    assert not (tmp_path / "target").exists()


def test_closed_descriptor_is_refused(loop: Any) -> None:
    a, b = socket.socketpair()
    number = a.fileno()
    a.close()
    b.close()
    problem = refused(loop, OSError, number)
    assert isinstance(problem, OSError)
    assert problem.errno == errno.EBADF


@pytest.mark.parametrize("number", [-1, -2, 2**31, 2**70])
def test_number_that_is_no_descriptor_is_refused(loop: Any, number: int) -> None:
    refused(loop, OSError, number)


def test_descriptor_that_cannot_be_written_is_counted_later(loop: Any) -> None:
    """A descriptor is taken as it is: only a write shows what it can do."""
    reader = os.open("/dev/null", os.O_RDONLY)
    try:
        loopwatch.install(loop, dump_to=reader).uninstall()
    finally:
        os.close(reader)


@pytest.mark.parametrize("path", ["missing/dump", "."])
def test_path_that_cannot_be_opened_is_refused(loop: Any, tmp_path: Path, path: str) -> None:
    refused(loop, OSError, tmp_path / path)


def test_fifo_without_a_reader_is_refused_at_once(loop: Any, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    problem = refused(loop, OSError, fifo)
    assert isinstance(problem, OSError)
    assert problem.errno == errno.ENXIO


@pytest.mark.parametrize("value", [True, 2.0, [], object(), print])
def test_wrong_type_is_refused(loop: Any, value: Any) -> None:
    refused(loop, TypeError, value)


@full_build
@pytest.mark.skipif(not GIL, reason="nobody can hold a GIL, so the reporter is in time")
@pytest.mark.parametrize("redact", ["None", "str.upper"])
def test_a_name_that_must_be_redacted_is_left_out(tmp_path: Path, redact: str) -> None:
    """The watchdog cannot call `redact`."""
    program = run_program(
        """
        import asyncio, ctypes, sys
        import loopwatch

        async def hold():
            ctypes.PyDLL(None).usleep(900_000)

        async def main():
            loopwatch.install(threshold=0.05, hang_after=0.1, dump_to=sys.argv[1], log=False, redact=REDACT)
            await asyncio.create_task(hold(), name="invoice for ada")

        asyncio.run(main())
        """.replace("REDACT", redact),
        tmp_path / "dump",
    )
    program.check()
    dumped = (tmp_path / "dump").read_text()
    assert ("in task ? (hold)" in dumped) == (redact != "None")
    assert ("in task invoice for ada (hold)" in dumped) == (redact == "None")
