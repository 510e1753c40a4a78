"""loopwatch run where things go wrong around it: streams that fail, a full disk, a program that becomes another."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from pathlib import Path

import pytest
from programs import wait_until
from test_run import LOOPWATCH, PRELUDE, environment, finish, write

BLOCKS_200MS = PRELUDE + "asyncio.run(main())"


def shell(tmp_path: Path, command: str) -> subprocess.CompletedProcess[str]:
    """`$loopwatch` is its command line."""
    return finish(tmp_path, "bash", "-c", f"set -o pipefail; loopwatch='{' '.join(LOOPWATCH)}'; {command}")


# --- streams ---


@pytest.mark.parametrize(
    "redirected", ["2>/dev/full", "2>&-", ">&-", "2> >(exec true)", "2>&1 >/dev/null | true"]
)
def test_the_program_ends_as_it_does_whatever_becomes_of_what_we_say(tmp_path: Path, redirected: str) -> None:
    program = write(tmp_path, BLOCKS_200MS + "\nimport sys; sys.exit(3)")
    done = shell(tmp_path, f"$loopwatch run {program} {redirected}")
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "loopwatch:" not in done.stdout


@pytest.mark.parametrize("command", ["report /dev/null", "doctor --quick"])
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, command: str) -> None:
    done = shell(tmp_path, f"$loopwatch {command} >/dev/full")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


def test_a_hang_with_standard_error_closed_is_told_to_no_file(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        """
        theirs = open("theirs", "wb", 0)
        import asyncio, os, time
        async def main():
            time.sleep(1.5)
        assert theirs.fileno() == 2, theirs
        asyncio.run(main())
        """,
    )
    done = shell(tmp_path, f"$loopwatch run --hang-after 200ms {program} 2>&-")
    assert done.returncode == 0, done
    assert (tmp_path / "theirs").read_bytes() == b""


# --- what is known ---


def test_a_program_that_becomes_another_by_exec(tmp_path: Path) -> None:
    """As reloaders do: the process stays, and all counts begin anew."""
    program = write(
        tmp_path,
        """
        import asyncio, os, sys, time
        async def main(seconds):
            time.sleep(seconds)
            await asyncio.sleep(0.1)
        if len(sys.argv) == 1:
            asyncio.run(main(0.9))
            os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
        asyncio.run(main(0.2))
        """,
    )
    done = finish(tmp_path, *LOOPWATCH, "run", "--fail-over", "600ms", program)
    assert done.returncode == 1, done.stderr
    assert "2 stalls" in done.stderr
    assert "failed: blocking-call" in done.stderr


def test_a_full_disk_is_not_the_absence_of_stalls(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"small", bytes(place), b"tmpfs", 0, b"size=64k"):
        pytest.skip(f"mount: {os.strerror(ctypes.get_errno())}")
    try:
        program = write(
            tmp_path,
            """
            import asyncio, os, time
            async def main():
                await asyncio.sleep(0.05)
                try:
                    with open(os.environ["TMPDIR"] + "/fill", "wb", 0) as file:
                        while True:
                            file.write(b"x" * 1024)
                except OSError:
                    time.sleep(0.3)
                await asyncio.sleep(0.1)
            asyncio.run(main())
            """,
        )
        command = f"TMPDIR={place} $loopwatch run --fail-over 100ms {program}"
        done = shell(tmp_path, command)
    finally:
        libc.umount(bytes(place))
    assert done.returncode == 1, done.stderr
    assert "this is incomplete" in done.stderr
    assert "- turns, busy -" in done.stderr
    assert "--fail-over 100ms cannot be judged" in done.stderr
    assert "no stall" not in done.stderr


def test_the_directory_of_the_run_removed_by_the_program(tmp_path: Path) -> None:
    program = write(
        tmp_path,
        """
        import asyncio, glob, os, shutil
        async def main():
            for path in glob.glob(os.environ["TMPDIR"] + "/loopwatch-run-*"):
                shutil.rmtree(path)
        asyncio.run(main())
        """,
    )
    (tmp_path / "tmp").mkdir()
    done = shell(tmp_path, f"TMPDIR={tmp_path / 'tmp'} $loopwatch run {program}")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "this is incomplete" in done.stderr


# --- signals ---


def test_without_a_terminal_a_program_that_was_stopped_goes_on_alone(tmp_path: Path) -> None:
    program = write(tmp_path, "import time; print('up', flush=True); time.sleep(1); print('done')")
    run = subprocess.Popen(
        [*LOOPWATCH, "run", program],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == "up\n"
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        [child] = map(int, children.read_text().split())
        os.kill(child, signal.SIGSTOP)
        assert wait_until(lambda: ") T " in Path(f"/proc/{child}/stat").read_text())
        os.kill(child, signal.SIGCONT)
        assert run.communicate(timeout=60)[0] == "done\n"
        assert run.returncode == 0
    finally:
        run.kill()
        run.wait()
