"""loopwatch top in a real terminal, and where there is none."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import environment, full_build, next_fact, started

pytest.importorskip("rich")
pytest.importorskip("pyte")

from pages import body, write_page
from terminal import Terminal, terminal

from loopwatch.cli import _page_check, _pages, _screen

TARGET = """
    import asyncio, os, sys
    import loopwatch
    from scenario import hold_gil, say

    def crunch(seconds):
        hold_gil(seconds)

    async def main():
        loopwatch.install(threshold=0.05, log=False, dump_to=False, status=sys.argv[1])
        await asyncio.sleep(0.1)
        say(pid=os.getpid())
        await asyncio.to_thread(sys.stdin.readline)
        crunch(float(sys.argv[2]))
        await asyncio.sleep(float(sys.argv[3]))

    asyncio.run(main())
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page"


@pytest.fixture
def target(page: Path) -> Iterator[subprocess.Popen[str]]:
    """Waits for a line, holds the GIL for 5 s, and then waits."""
    with started(TARGET, page, 5, 20, stdin=subprocess.PIPE) as program:
        next_fact(program)
        yield program


def go(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


def top(page: Path) -> list[str]:
    return ["-m", "loopwatch", "top", str(page)]


def age(text: str) -> float:
    """Seconds of the stall that goes on."""
    found = re.search(r"blocked for ([\d.]+) (m?s) so far", text)
    return float(found[1]) / (1000 if found[2] == "ms" else 1) if found else 0.0


def shows_a_stall(screen: Terminal) -> str:
    return screen.wait_for(lambda text: age(text) > 0.5)


@full_build
def test_a_stall_with_the_gil_held_grows_on_the_screen(page: Path, target: subprocess.Popen[str]) -> None:
    with terminal(*top(page)) as screen:
        idle = screen.wait_for(lambda text: "MainThread" in text)
        assert "so far" not in idle
        go(target)
        first = shows_a_stall(screen)
        assert "in crunch" in first
        assert "usleep(int(seconds" in first, "the source line"
        later = screen.wait_for(lambda text: age(text) > age(first) + 1)
        assert "q quit" in later.splitlines()[-1]
        ended = screen.wait_for(lambda text: "Last stalls" in text and "so far" not in text)
        assert "5.0" in ended
        screen.press("q")
        assert screen.wait() == 0
    assert target.poll() is None


def whole(lines: list[str]) -> bool:
    """Neither wrapped nor scrolled."""
    return lines[0].startswith("process ") and lines[-1].startswith("q quit") and lines[1].count(":") == 2


def test_it_fits_any_size(page: Path, target: subprocess.Popen[str]) -> None:
    go(target)
    with terminal(*top(page)) as screen:
        shows_a_stall(screen)
        for columns, lines in ((40, 10), (132, 50), (20, 5), (80, 24)):
            screen.resize(columns, lines)
            screen.wait_for(lambda text: whole(text.split("\n")))
        screen.press("q")
        assert screen.wait() == 0


TITLES = "loop of thread state busy worst turn waits p99 gc turns stalls"


@pytest.mark.parametrize("columns", [40, 50, 79, 80])
def test_a_narrow_terminal_has_all_columns(columns: int) -> None:
    titles = _screen._cells(_pages.LOOP_TITLES, columns)
    assert all(len(line) <= columns for line in titles)
    assert " ".join(titles).split() == TITLES.split()
    assert (len(titles) == 1) is (columns >= 80)


@pytest.mark.parametrize("lines", range(5, 40))
def test_no_heading_without_a_stall_below_it(tmp_path: Path, lines: int) -> None:
    page = _page_check.read(write_page(tmp_path / "page", body()))
    shown = _screen.draw(page, _pages.moment(page), _screen.View(), 50, lines).plain.split("\n")
    assert len(shown) == lines
    if "Last stalls" in shown:
        assert shown[shown.index("Last stalls") + 1].strip().startswith(tuple("0123456789"))
    elif lines > 25:
        pytest.fail("there is room for it")


def test_the_end_of_the_process_is_shown(page: Path, target: subprocess.Popen[str]) -> None:
    go(target)
    with terminal(*top(page)) as screen:
        shows_a_stall(screen)
        target.send_signal(signal.SIGKILL)
        target.wait()
        text = screen.wait_for(lambda text: "is gone" in text)
        assert "when this was written" in text, "what it said last stays"
        time.sleep(0.5)
        screen.press("q")
        assert screen.wait() == 0


def test_keys(page: Path, target: subprocess.Popen[str]) -> None:
    go(target)
    with terminal(*top(page)) as screen:
        shows_a_stall(screen)
        screen.press("p")
        screen.wait_for(lambda text: "paused" in text)
        screen.press("p")
        screen.wait_for(lambda text: "paused" not in text)
        screen.press("s")
        screen.wait_for(lambda text: "most recent call last" not in text)
        screen.press("\x03")
        assert screen.wait() == 0


def test_it_starts_at_once(page: Path, target: subprocess.Popen[str]) -> None:
    """Half a second, at its best of five, where the machine has no other work; here it has."""
    begin = []
    for _ in range(5):
        began = time.monotonic()
        with terminal(*top(page)) as screen:
            screen.wait_for(lambda text: "q quit" in text)
            begin.append(time.monotonic() - began)
            screen.press("q")
            screen.wait()
    assert min(begin) < 1.0
    assert target.poll() is None


def test_plain_lines_where_there_is_no_terminal(page: Path, target: subprocess.Popen[str]) -> None:
    go(target)
    program = subprocess.Popen(
        [sys.executable, *top(page)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    out = ""
    while age(out) == 0:
        out += program.stdout.readline()
    target.send_signal(signal.SIGKILL)
    target.wait()
    rest, error = program.communicate(timeout=20)
    out += rest
    assert (program.returncode, error) == (0, "")
    assert out.splitlines()[-1].endswith("is gone")
    assert "\x1b" not in out


def test_a_terminal_that_is_gone_ends_it(page: Path, target: subprocess.Popen[str]) -> None:
    """Also where nothing ends it by SIGHUP."""
    ignoring = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); from loopwatch.cli import main"
    )
    with terminal("-c", f"{ignoring}; sys.exit(main(['top', {str(page)!r}]))") as screen:
        screen.wait_for(lambda text: "q quit" in text)
        screen.hang_up()
        assert screen.wait() == 0
    assert target.poll() is None


DETACHING = """
    import asyncio, os, sys
    import loopwatch
    from scenario import say

    async def main():
        watch = loopwatch.install(threshold=0.05, log=False, status=sys.argv[1])
        await asyncio.sleep(0.3)
        say(pid=os.getpid())
        await asyncio.to_thread(sys.stdin.readline)
        watch.uninstall()
        await asyncio.to_thread(sys.stdin.readline)

    asyncio.run(main())
"""


def test_a_page_that_goes_while_its_process_lives(page: Path) -> None:
    with contextlib.ExitStack() as stack:
        program = stack.enter_context(started(DETACHING, page, stdin=subprocess.PIPE))
        next_fact(program)
        screen = stack.enter_context(terminal(*top(page)))
        screen.wait_for(lambda text: "MainThread" in text)
        plain = subprocess.Popen(
            [sys.executable, *top(page)], env=environment(), stdout=subprocess.PIPE, text=True
        )
        assert plain.stdout is not None
        assert "MainThread" in plain.stdout.readline()
        go(program)
        screen.wait_for(lambda text: "has no status page any more" in text and "runs: " in text)
        out, _ = plain.communicate(timeout=20)
        assert "has no status page any more" in out.splitlines()[-1]
        assert program.poll() is None
        screen.press("q")
        assert screen.wait() == 0


@pytest.mark.parametrize("argument", ["999999999", "/no/such/page", "/dev/null", ""])
@pytest.mark.parametrize("command", ["top", "post"])
def test_what_has_no_page_is_an_error(command: str, argument: str) -> None:
    line = [sys.executable, "-m", "loopwatch", command, argument]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"loopwatch {command}: ")
    assert done.stderr.count("\n") == 1


# --- post ---


def post(page: Path) -> str:
    line = [sys.executable, "-m", "loopwatch", "post", str(page)]
    return subprocess.run(
        line, env=environment(), capture_output=True, text=True, timeout=30, check=True
    ).stdout


@full_build
def test_post_names_the_line_of_a_killed_process(page: Path, target: subprocess.Popen[str]) -> None:
    assert "runs: " in post(page)
    go(target)
    deadline = time.monotonic() + 10
    while "so far" not in post(page):
        assert time.monotonic() < deadline
    target.send_signal(signal.SIGKILL)
    target.wait()
    text = post(page)
    assert f"process {target.pid} is gone: " in text
    assert re.search(
        r"was blocked for [\d.]+ m?s when this was written: .* in hold_gil \(scenario\.py:\d+\)", text
    )
    assert "usleep(int(seconds" in text, "the source line"
