"""Which page a process id means, and the list of pages: after `kill -9` a user has the number of `loopwatch run`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pages import FACTS, body, write_page
from programs import full_build, wait_until
from test_run import LOOPWATCH, environment, write

from loopwatch import _page
from loopwatch.cli import _families, _pages

STALLED = """
    import asyncio, os, time
    if {fork}: os.fork()
    async def main():
        await asyncio.sleep(0.02)
        time.sleep(60)
    asyncio.run(main())
"""


@contextmanager
def running(tmp_path: Path, *, fork: bool = False) -> Iterator[subprocess.Popen[str]]:
    """`loopwatch run` of a program, all of whose processes are in a stall."""
    line = [*LOOPWATCH, "run", write(tmp_path, STALLED.format(fork=fork))]
    run = subprocess.Popen(line, env=environment(tmp_path), cwd=tmp_path, stdout=-1, stderr=-1, text=True)
    try:
        wait_until(lambda: len(stalled(tmp_path)) == 1 + fork)
        yield run
    finally:
        run.kill()
        run.communicate()
        for page in pages(tmp_path):
            if page.alive:  # a forked one outlives the program
                os.kill(page.pid, signal.SIGKILL)


def pages(tmp_path: Path) -> list[_page.Page]:
    return [_page.read(path) for path in (tmp_path / "runtime" / "loopwatch").glob("*.page")]


def stalled(tmp_path: Path) -> list[_page.Page]:
    return [page for page in pages(tmp_path) if page.body.get("current")]


def post(tmp_path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOOPWATCH, "post", *map(str, arguments)],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def end(tmp_path: Path, run: subprocess.Popen[str]) -> None:
    run.kill()
    run.wait()
    for page in pages(tmp_path):
        wait_until(lambda page=page: not page.alive)


def test_the_number_of_a_killed_run_finds_its_program(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        [page] = pages(tmp_path)
        assert f"process {page.pid} runs: " in post(tmp_path, run.pid).stdout
        end(tmp_path, run)
        text = post(tmp_path, run.pid).stdout
        assert f"process {page.pid} is gone: " in text
        assert "was blocked for " in text
        assert post(tmp_path, page.pid).stdout.splitlines()[0] == text.splitlines()[0]


def test_several_processes_are_named(tmp_path: Path) -> None:
    with running(tmp_path, fork=True) as run:
        numbers = {str(page.pid) for page in pages(tmp_path)}
        assert named(tmp_path, run) == numbers
        for number in map(int, numbers):
            os.kill(number, signal.SIGKILL)
        end(tmp_path, run)
        assert named(tmp_path, run) == numbers, "also afterwards"


def named(tmp_path: Path, run: subprocess.Popen[str]) -> set[str]:
    """The processes among which one must choose."""
    asked = post(tmp_path, run.pid)
    assert asked.returncode == 1
    return set(asked.stderr.strip().rpartition(": ")[2].split(", "))


@full_build
def test_the_pages_are_listed(tmp_path: Path) -> None:
    with running(tmp_path) as run:
        [page] = pages(tmp_path)
        _, line, stall = [line for line in post(tmp_path).stdout.splitlines() if of_this(line, page)]
        assert " runs " in line
        assert "so far: blocking-call in main (program.py:6)" in stall
        end(tmp_path, run)
        _, line, stall = [line for line in post(tmp_path).stdout.splitlines() if of_this(line, page)]
        assert " gone " in line
        assert line.endswith("program.py")
        assert "blocked when it died, for " in stall
        assert "blocking-call in main (program.py:6)" in stall


def of_this(line: str, page: _page.Page) -> bool:
    """The title, and this page: for root the list has those of all users."""
    return "PID" in line or line.split()[0] == str(page.pid) or "program.py:6" in line


# --- pages that nobody wrote ---


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pages are looked for, and nowhere else."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(_page, "directories", lambda _: iter([tmp_path]))
    monkeypatch.setattr(_page, "left_in_default_places", lambda: sorted(tmp_path.glob("*.page")))
    return tmp_path


def put(place: Path, pid: int, ancestors: list[list[int]], **changes: Any) -> Path:
    facts = FACTS | {"pid": pid, "ancestors": ancestors}
    return write_page(place / f"{pid}.page", body() | changes, facts)


def test_the_last_process_with_the_number_is_meant(place: Path) -> None:
    put(place, 900000001, [[800000000, 50]])
    newer = put(place, 900000002, [[700000000, 90], [800000000, 60]])
    assert _pages.page_of("800000000") == newer


def test_a_process_that_runs_is_not_one_before_it(place: Path) -> None:
    put(place, 900000001, [[os.getpid(), 1]])
    with pytest.raises(FileNotFoundError, match="no status page"):
        _pages.page_of(str(os.getpid()))


def test_a_page_without_a_loop_gives_way_to_one_with_loops(place: Path) -> None:
    master = put(place, 800000000, [], loops=[], current=[], stalls=[])
    assert _pages.page_of("800000000") == master
    idle = put(place, 900000001, [[800000000, 50]], loops=[], current=[], stalls=[])
    assert _pages.page_of("800000000") == master
    assert _pages.page_of("900000001") == idle
    worker = put(place, 900000002, [[800000000, 50]])
    assert _pages.page_of("800000000") == worker


def test_a_page_of_somebody_else_names_no_ancestors(place: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    path = put(place, 900000001, [[800000000, 50]])
    assert _pages.page_of("800000000") == path
    os.chown(path, 12345, -1)
    with pytest.raises(FileNotFoundError):
        _pages.page_of("800000000")


def test_the_page_written_last_is_listed_first_and_broken_ones_are_not(place: Path) -> None:
    for pid, wall in ((900000001, 3), (900000002, 5), (900000003, 4)):
        put(place, pid, [], wall=wall * 10**18)
    (place / "900000004.page").write_text("nothing")
    assert [page.pid for page in _families.known_pages()] == [900000002, 900000003, 900000001]


@pytest.mark.parametrize("argument", ["abc", "-1", "/no/such/page", ""])
def test_what_is_accepted_is_said(tmp_path: Path, argument: str) -> None:
    done = post(tmp_path, "--", argument)
    assert done.returncode == 1
    assert "neither a process id nor the path of a status page" in done.stderr


def test_ancestors() -> None:
    parent, *_ = _page.ancestors(os.getpid())
    assert parent == (os.getppid(), _page.process_start(os.getppid()))
    assert _page.ancestors(999999999) == []
