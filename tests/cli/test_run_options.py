"""loopwatch run: what its options come to, which program is meant, and what is left of a report's file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_run import LOOPWATCH, PRELUDE, environment, finish, write

from loopwatch.cli.run import _command

BLOCKS_200MS = PRELUDE + "asyncio.run(main())"
SAYS_THRESHOLD = """
import asyncio, loopwatch
from loopwatch._registry import registry
async def main():
    print(registry().find(asyncio.get_running_loop()).threshold)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("options", "variable", "expected"),
    [
        ([], "", "0.1"),
        ([], "0.5", "0.5"),
        (["--threshold", "50ms"], "0.5", "0.05"),
        (["--fail-over", "500ms"], "", "0.1"),
        (["--fail-over", "50ms"], "", "0.05"),
        (["--fail-over", "2s"], "0.7", "0.7"),
        (["--fail-over", "20ms", "--threshold", "50ms"], "", "0.02"),
    ],
)
def test_the_threshold(tmp_path: Path, options: list[str], variable: str, expected: str) -> None:
    program = write(tmp_path, SAYS_THRESHOLD)
    env = environment(tmp_path, LOOPWATCH_THRESHOLD=variable)
    line = [*LOOPWATCH, "run", *options, program]
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected]
    milliseconds = float(expected) * 1000
    shown = f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.1f} ms"
    assert "no event loop" not in done.stderr
    if (
        " stalls, " not in done.stderr and "1 stall, " not in done.stderr
    ):  # a busy machine may have held it up
        assert f"no stall of {shown} or more" in done.stderr


def test_a_limit_leaves_shorter_stalls_in_the_summary(tmp_path: Path) -> None:
    done = finish(tmp_path, *LOOPWATCH, "run", "--fail-over", "30s", write(tmp_path, BLOCKS_200MS))
    assert done.returncode == 0
    assert "1 x blocking-call in main" in done.stderr


@pytest.mark.parametrize("option", ["--threshold", "--fail-over"])
@pytest.mark.parametrize("value", ["0.1ms", "999us", "3601", "2h", "0", "-1s", "soon", "nan"])
def test_what_cannot_be_a_threshold(tmp_path: Path, option: str, value: str) -> None:
    done = finish(tmp_path, *LOOPWATCH, "run", f"{option}={value}", write(tmp_path, "print('ran')"))
    assert (done.returncode, done.stdout) == (2, "")
    assert option in done.stderr
    assert "1ms to 1h" in done.stderr


def test_a_bad_variable_is_a_usage_error(tmp_path: Path) -> None:
    line = [*LOOPWATCH, "run", write(tmp_path, "print('ran')")]
    env = environment(tmp_path, LOOPWATCH_THRESHOLD="0")
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "LOOPWATCH_THRESHOLD" in done.stderr


def test_a_killed_process_counts(tmp_path: Path) -> None:
    """What it was blocked in is in its page only, and the program as a whole succeeds."""
    source = PRELUDE.replace("0.2)", "20)") + (
        "child = os.fork()\n"
        "if not child: asyncio.run(main())\n"
        "time.sleep(1.5)\n"
        "os.kill(child, 9)\n"
        "os.waitpid(child, 0)\n"
    )
    line = [*LOOPWATCH, "run", "--fail-over", "300ms", write(tmp_path, source)]
    env = environment(tmp_path, LOOPWATCH_HANG_AFTER="60")  # no report of it while it lasts
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "at its end blocked for" in done.stderr
    assert done.returncode == 1, done.stderr


# --- which program ---


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command on PATH, and a current directory to put things of the same name in."""
    commands, here = tmp_path / "bin", tmp_path / "here"
    commands.mkdir()
    here.mkdir()
    command = commands / "tool"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(commands))
    monkeypatch.chdir(here)
    return command


@pytest.mark.parametrize("beside", ["nothing", "directory", "file", "executable"])
def test_a_command_is_not_hidden_by_what_is_here(tool: Path, beside: str) -> None:
    if beside == "directory":
        Path("tool").mkdir()
    elif beside != "nothing":
        Path("tool").touch(0o755 if beside == "executable" else 0o644)
    assert _command(None, ["tool", "x"]) == [str(tool), "x"]


@pytest.mark.usefixtures("tool")
def test_paths() -> None:
    python = sys.executable
    Path("package").mkdir()
    Path("script").touch()
    Path("runs").touch(0o755)
    assert _command(None, ["a.py", "x"]) == [python, "a.py", "x"]
    assert _command(None, ["./package"]) == [python, "./package"]
    assert _command(None, ["./script"]) == [python, "./script"]
    assert _command(None, ["./runs"]) == ["./runs"]
    assert _command(None, ["package"]) == [python, "package"], "as python has it: no command is called that"
    assert _command(None, ["script"]) == [python, "script"]
    with pytest.raises(ValueError, match="no such"):
        _command(None, ["neither"])


# --- the report's file ---


@pytest.mark.parametrize("name", ["seen.jsonl", "seen.speedscope.json"])
def test_a_report_is_its_users_alone(tmp_path: Path, name: str) -> None:
    """It replaces a symbolic link, and nobody else may read it, as any other output of loopwatch."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    elsewhere.chmod(0o644)
    (tmp_path / name).symlink_to(elsewhere)
    done = finish(tmp_path, *LOOPWATCH, "run", "--report", name, write(tmp_path, BLOCKS_200MS), umask=0o022)
    assert done.returncode == 0, done
    assert elsewhere.read_text() == "kept"
    made = tmp_path / name
    assert not made.is_symlink()
    assert made.stat().st_mode & 0o777 == 0o600
    assert all(isinstance(json.loads(line), dict) for line in made.read_text().splitlines())


# --- a process that outlives what it belongs to ---


def test_the_run_is_over_before_a_process_is(tmp_path: Path) -> None:
    """Its own install() works then, and nothing is said of the directory that is gone."""
    source = """
        import asyncio, os, sys, time, loopwatch
        out = os.open("out", os.O_WRONLY | os.O_CREAT, 0o600)
        async def main(): await asyncio.sleep(0)
        asyncio.run(main())
        if os.fork(): os._exit(0)
        os.dup2(out, 1); os.dup2(out, 2)
        while os.path.isdir(__import__("json").loads(os.environ["LOOPWATCH_RUN"])["directory"]): time.sleep(0.05)
        async def blocked():
            with loopwatch.install(log=False, threshold=0.05) as watch:
                time.sleep(0.1)
                await asyncio.sleep(0)
            print(len(watch.stalls), flush=True)
        asyncio.run(blocked())
        os.rename("out", "done")
    """
    done = finish(tmp_path, *LOOPWATCH, "run", write(tmp_path, source))
    assert done.returncode == 0, done
    deadline = time.monotonic() + 30
    while not (tmp_path / "done").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (tmp_path / "done").read_text() == "1\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop its rights")
def test_a_worker_that_drops_its_rights(tmp_path: Path) -> None:
    """As servers that are started by root: the run's directory is root's, and still gets what the worker sees."""
    tmp_path.chmod(0o755)
    source = PRELUDE + "os.setgroups([]); os.setgid(65534); os.setuid(65534); asyncio.run(main())"
    done = finish(tmp_path, *LOOPWATCH, "run", write(tmp_path, source))
    assert done.returncode == 0, done
    assert "Traceback" not in done.stderr, done.stderr
    assert "1 x blocking-call in main (program.py:5)" in done.stderr
