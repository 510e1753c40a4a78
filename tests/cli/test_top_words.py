"""What loopwatch top says of stalls: no more than is known, once, and in order."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pages import FACTS, body, write_page
from programs import environment, full_build, next_fact, started, wait_until
from statuspages import current, service

from loopwatch import _page
from loopwatch.cli import _page_check, _pages

UNITS = {"ms": 0.001, "s": 1.0}


def lengths(text: str, pattern: str) -> list[float]:
    """Seconds."""
    return [float(value) * UNITS[unit] for value, unit in re.findall(pattern, text)]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page"


def followed(page: Path, program: subprocess.Popen[str], seconds: float) -> str:
    """What `top` writes of a program from its first fact on, until that is killed."""
    next_fact(program)
    line = [sys.executable, "-m", "loopwatch", "top", str(page), "--every", "20ms"]
    with subprocess.Popen(line, env=environment(), stdout=subprocess.PIPE, text=True) as top:
        time.sleep(seconds)
        program.kill()
        program.wait()
        return top.communicate(timeout=20)[0]


@full_build
def test_short_stalls_have_a_line_each_when_they_have_ended(page: Path) -> None:
    body = """
        for _ in range(100):
            await asyncio.sleep(0.1)
            block(0.3)
    """
    with started(service(body.strip()), page) as program:
        text = followed(page, program, 4)
    ended = re.findall(r"ended: .* in block \(scenario\.py:\d+\)", text)
    assert len(ended) >= 3
    until_killed = text.partition("when this was written")[0]
    assert "so far" not in until_killed
    assert 'File "' not in until_killed


@full_build
def test_a_stall_is_never_older_than_it_gets(page: Path) -> None:
    body = """
        for _ in range(100):
            await asyncio.sleep(0.1)
            block(1.5)
    """
    with started(service(body.strip()), page) as program:
        text = followed(page, program, 7)
    longest = max(lengths(text, r"ended: \S+  ([\d.]+) (m?s)  blocking-call"))
    so_far = lengths(text, r"blocked for ([\d.]+) (m?s) so far")
    assert so_far
    assert min(so_far) >= 1
    assert max(so_far) <= longest
    assert text.count("in block (scenario.py") > len(so_far), "its end has a line too"
    assert text.count(", in block\n") == 1, "the stack once a place"


def test_the_age_is_that_of_the_page(page: Path) -> None:
    """However long ago that was; the parts add up to it."""
    begin = time.monotonic_ns() - 60_000_000_000
    said = body()
    said["current"][0] |= {"begin": begin, "seen": begin + 900_000_000}
    found = _page_check.read(write_page(page, said))
    now = _pages.Now(time.monotonic_ns(), alive=True, stopped=False, written=True)
    assert "blocked for 900 ms so far" in _pages.current_line(found.body["current"][0], now)
    assert _pages.causes_line(found.body["current"][0]) == "python 900 ms"


def test_a_stopped_process_is_told_from_one_that_runs(page: Path) -> None:
    with started(service("block(60)"), page) as program:
        next_fact(program)
        wait_until(lambda: current(page))
        program.send_signal(signal.SIGSTOP)
        wait_until(lambda: _page.read(page).stopped)
        text = "\n".join(_pages.report(_page_check.read(page)))
        assert f"process {program.pid} is stopped: " in text
        assert "was blocked for " in text
        assert "when this was written" in text
        program.send_signal(signal.SIGCONT)
        wait_until(lambda: "so far:" in "\n".join(_pages.report(_page_check.read(page))))
        assert "when this was written" not in "\n".join(_pages.report(_page_check.read(page)))


# --- stacks ---


def stack(*lines: str) -> list[str]:
    found = _page.Page(Path("page"), FACTS, body(), 0)
    return _pages.stack_lines({"stack": "\n".join(lines)}, found)


LOOP = [
    '  File "/srv/app.py", line 90, in <module>',
    '  File "/usr/lib/python3.11/asyncio/runners.py", line 190, in run',
    '  File "/usr/lib/python3.11/asyncio/base_events.py", line 1922, in BaseEventLoop._run_once',
    '  File "/usr/lib/python3.11/asyncio/events.py", line 80, in Handle._run',
]
OWN = '  File "/srv/app.py", line 3, in main'
IMPORTS = '  File "<frozen importlib._bootstrap>", line 1027, in _find_and_load'


def test_what_started_the_loop_is_folded() -> None:
    title = "Stack of the loop's thread (most recent call last):"
    assert stack(title, *LOOP, OWN) == [title, "  [4 frames that started and run the loop]", OWN]


def test_so_are_the_import_system_and_a_recursion() -> None:
    assert stack(*LOOP, OWN, IMPORTS, IMPORTS, OWN)[1:] == [OWN, "  [2 frames of the import system]", OWN]
    assert stack(*LOOP, *[OWN] * 50)[1:] == [
        *[OWN] * 3,
        "  [the same line again and again is shown three times]",
    ]


def test_each_stack_is_folded_by_itself() -> None:
    holder = "The GIL was held by thread 7:"
    other = '  File "/srv/app.py", line 7, in other'
    assert stack(*LOOP, OWN, holder, other)[1:] == [OWN, holder, other]


def test_what_is_no_frame_stays() -> None:
    lines = ["  ... 900 more frames", OWN, '  File "/srv/app.py", li']
    assert stack(*lines) == lines


# --- several loops ---


def past(number: int, key: int, begin: int, end: int) -> dict[str, Any]:
    [stall] = body()["stalls"]
    return stall | {"id": number, "key": key, "begin": begin * 10**9, "end": end * 10**9}


def test_past_stalls_are_in_the_order_of_the_times_shown(page: Path) -> None:
    """The page has them as they came to an end."""
    said = body() | {"stalls": [past(3, 1, 2, 9), past(2, 2, 7, 8), past(1, 2, 4, 5)]}
    text = "\n".join(_pages.report(_page_check.read(write_page(page, said))))
    assert re.findall(r"([\d.]+) s  python", text) == ["1.00", "1.00", "7.00"]
    times = re.findall(r"^  (\d\d:\d\d:\d\d)  ", text, re.MULTILINE)
    assert times == sorted(times, reverse=True)
