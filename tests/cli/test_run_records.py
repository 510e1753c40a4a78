"""loopwatch run: its report is whole however the program ends, and there while it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from programs import full_build, wait_until
from test_run import LOOPWATCH, PRELUDE, environment, finish, write

from loopwatch import report

HANGS = """
import asyncio, os, re, time
def check():
    re.search(r"(x+x+)+y", "x" * 60)
async def main():
    time.sleep(0.2)
    await asyncio.sleep(0.05)
    print(os.getpid(), flush=True)
    check()
asyncio.run(main())
"""
BLOCKS_200MS = PRELUDE + "asyncio.run(main())"
ENDS_ITSELF = "os.kill(os.getpid(), 15)\n"


@contextmanager
def running(tmp_path: Path, *line: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen(
        [*LOOPWATCH, "run", *line],
        env=environment(tmp_path, **variables),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            program.kill()
        program.communicate()


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def kinds(path: Path) -> set[str]:
    return {line["kind"] for line in lines(path)}


def pages(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "runtime").rglob("*.page"))


def say_blocked(pid: int, tmp_path: Path) -> Any:
    """Once the page of the process says so."""
    from loopwatch import _page

    path = tmp_path / "runtime" / "loopwatch" / f"{pid}.page"
    return wait_until(lambda: _page.read(path).body.get("current"), 20)


# --- a program that is killed ---


@full_build
@pytest.mark.parametrize("how", ["the run is told to end", "the program is killed"])
def test_the_stall_that_a_program_was_killed_in(tmp_path: Path, how: str) -> None:
    with running(tmp_path, "--report", "seen.jsonl", write(tmp_path, HANGS)) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        say_blocked(pid, tmp_path)
        if how == "the program is killed":
            os.kill(pid, signal.SIGKILL)
        else:
            run.send_signal(signal.SIGTERM)
        _, error = run.communicate(timeout=20)
    made = report.load(tmp_path / "seen.jsonl")
    assert not made.problems
    (lane,) = made.lanes
    *_, last = made.stalls
    assert last.ongoing
    assert "check" in [frame.qualname for frame in last.frames]
    assert sum(last.breakdown.values()) == pytest.approx(last.duration, abs=0.001)
    assert lane.watched is not None
    assert lane.watched >= last.duration
    assert "2 stalls in the report seen.jsonl" in error
    assert [page.name for page in pages(tmp_path)] == [f"{pid}.page"], "for loopwatch post"
    assert f"loopwatch post {pid}" in error


@full_build
def test_it_is_in_other_reports_too(tmp_path: Path) -> None:
    with running(tmp_path, "--report", "seen.speedscope.json", write(tmp_path, HANGS)) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        say_blocked(pid, tmp_path)
        os.kill(pid, signal.SIGKILL)
        run.communicate(timeout=20)
    made = json.loads((tmp_path / "seen.speedscope.json").read_text())
    assert "check" in [frame["name"] for frame in made["shared"]["frames"]]


@pytest.mark.parametrize("where", ["after its loop", "in its loop"])
def test_a_program_that_ends_by_a_signal(tmp_path: Path, where: str) -> None:
    """As a server that was told to end: it does what is to be done, and then raises the signal again."""
    if where == "after its loop":
        source = BLOCKS_200MS + "\n" + ENDS_ITSELF
    else:
        source = (
            PRELUDE + "async def serve():\n    await main()\n    await asyncio.sleep(1)\n    " + ENDS_ITSELF
        )
        source += "asyncio.run(serve())"
    done = finish(tmp_path, *LOOPWATCH, "run", "--report", "seen.jsonl", write(tmp_path, source))
    assert done.returncode == -signal.SIGTERM
    assert {"stall", "loop"} <= kinds(tmp_path / "seen.jsonl")
    made = report.load(tmp_path / "seen.jsonl")
    (lane,) = made.lanes
    assert len(lane.stalls) == 1
    (loop,) = lane.loops.values()
    assert loop["threshold"] == 0.1
    assert loop["lag"]["busy"] >= 0.2
    assert "busy -" not in done.stderr
    if where == "after its loop":
        assert loop["histogram"]
        assert list(lane.cells())
    assert not pages(tmp_path), "it says no more than the summary"


def test_a_loop_that_is_closed_inside_another(tmp_path: Path) -> None:
    """Its last line is not written on that one's thread, and is there all the same."""
    source = (
        PRELUDE
        + """
async def outer():
    inner = asyncio.new_event_loop()
    await asyncio.to_thread(inner.run_until_complete, main())
    inner.close()
    await asyncio.sleep(1)
    os.kill(os.getpid(), 15)
asyncio.run(outer())
"""
    )
    finish(tmp_path, *LOOPWATCH, "run", "--report", "seen.jsonl", write(tmp_path, source))
    made = report.load(tmp_path / "seen.jsonl")
    loops = {lane.thread: loop for lane in made.lanes for loop in lane.loops.values()}
    assert len(loops) == 2
    assert loops["asyncio_0"]["lag"]["max"] >= 0.2
    assert loops["asyncio_0"]["histogram"]


def test_a_killed_worker_among_others(tmp_path: Path) -> None:
    source = PRELUDE + (
        "child = os.fork()\n"
        "asyncio.run(main())\n"
        "if not child: os.kill(os.getpid(), 9)\n"
        "os.waitpid(child, 0)\n"
    )
    done = finish(tmp_path, *LOOPWATCH, "run", "--report", "seen.jsonl", write(tmp_path, source))
    assert done.returncode == 0, done
    made = report.load(tmp_path / "seen.jsonl")
    assert [len(lane.loops) for lane in made.lanes] == [1, 1]
    assert [len(lane.stalls) for lane in made.lanes] == [1, 1]


def test_a_process_without_a_loop_leaves_no_page(tmp_path: Path) -> None:
    program = write(tmp_path, "import asyncio, os; os.kill(os.getpid(), 9)")
    done = finish(tmp_path, *LOOPWATCH, "run", program)
    assert "no event loop ran" in done.stderr
    assert not pages(tmp_path)


# --- while it runs ---

GOES_ON = PRELUDE + "asyncio.run(main())\nprint(os.getpid(), flush=True)\ntime.sleep(60)"


def test_json_lines_come_as_they_are_seen(tmp_path: Path) -> None:
    with running(
        tmp_path,
        "--report",
        "seen.jsonl",
        write(tmp_path, "os = __import__('os'); os.chdir('/')\n" + GOES_ON),
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        wait_until(lambda: {"stall", "loop"} <= kinds(tmp_path / "seen.jsonl"))
        run.kill()
        run.communicate()
    made = report.load(tmp_path / "seen.jsonl")
    assert not made.problems
    assert len(made.stalls) == 1


def age(directory: Path) -> None:
    """As if nothing had been written there for long."""
    long_ago = time.time() - 8 * 86400
    for path in (*directory.iterdir(), directory):
        os.utime(path, (long_ago, long_ago))


def test_what_a_killed_run_leaves(tmp_path: Path) -> None:
    """Its records, for a week; another run that goes on keeps its own for as long as it does."""
    place = tmp_path / "tmp"
    place.mkdir()
    with running(
        tmp_path, "--report", "seen.speedscope.json", write(tmp_path, GOES_ON), TMPDIR=str(place)
    ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        (directory,) = place.glob("loopwatch-run-*")
        wait_until(lambda: "stall" in kinds(directory / "records.jsonl"))
        age(directory)
        gone = place / "loopwatch-run-gone"
        gone.mkdir()
        age(gone)
        assert _another(tmp_path, place).returncode == 0
        assert directory.exists(), "its run goes on"
        assert not gone.exists()
        run.kill()
        run.communicate()
    assert len(report.load(directory / "records.jsonl").stalls) == 1
    os.utime(directory / "records.jsonl")
    _another(tmp_path, place)
    assert directory.exists(), "for a week"
    age(directory)
    _another(tmp_path, place)
    assert not directory.exists()


def _another(tmp_path: Path, place: Path) -> subprocess.CompletedProcess[str]:
    line = [*LOOPWATCH, "run", write(tmp_path, "pass", "other.py")]
    env = environment(tmp_path, TMPDIR=str(place))
    return subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)


# --- where it goes ---


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing/seen.jsonl", "No such file or directory"),
        ("missing/seen.speedscope.json", "No such file or directory"),
        ("directory.jsonl", "Is a directory"),
        ("file/seen.jsonl", "Not a directory"),
        ("/proc/seen.jsonl", "No such file or directory"),
    ],
)
def test_a_place_that_cannot_be_written(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "directory.jsonl").mkdir()
    (tmp_path / "file").touch()
    done = finish(tmp_path, *LOOPWATCH, "run", "--report", name, write(tmp_path, "print('ran')"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{name} cannot be written: {said}" in done.stderr


def test_what_was_there_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "seen.jsonl").write_text("older\n")
    finish(tmp_path, *LOOPWATCH, "run", "--report", "seen.jsonl", "no-such-command")
    assert (tmp_path / "seen.jsonl").read_text() == "older\n", "nothing was run"
    done = finish(tmp_path, *LOOPWATCH, "run", "--report", "seen.jsonl", write(tmp_path, BLOCKS_200MS))
    assert "1 stall in the report seen.jsonl" in done.stderr
    assert not report.load(tmp_path / "seen.jsonl").problems
