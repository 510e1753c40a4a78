"""The GIL is held for as long as the test lasts, and the report comes all the same."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from programs import GIL, Finished, full_build, next_fact, run_program, started, wait_until

pytestmark = pytest.mark.skipif(not GIL, reason="no GIL that could be held")

HANG_AFTER = 0.3
TAKE_WITHIN = 0.25
SLACK = 0.75
"""For a machine with more to do than it has CPUs; the GIL stays held for far longer."""

HOLDS_FOR_EVER = """
    import asyncio, ctypes, sys, time
    import loopwatch
    from scenario import say

    def wait_for_device():
        say(begin=time.monotonic())
        ctypes.PyDLL(None).usleep(60_000_000)

    async def main():
        await asyncio.sleep(0.05)
        wait_for_device()

    loopwatch.run(main(), hang_after=0.3, dump_to=sys.argv[1])
"""


def grown(path: Path) -> str:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text if "run_forever" in text and text.endswith("\n") else ""


@full_build
def test_report_is_written_while_it_is_held(tmp_path: Path) -> None:
    """The program is killed inside the call that holds the GIL: no Python code ran after the report."""
    dump = tmp_path / "dump"
    with started(HOLDS_FOR_EVER, dump) as program:
        begin = next_fact(program)["begin"]
        text = wait_until(lambda: grown(dump))
        arrived = time.monotonic() - begin
        assert program.poll() is None
    assert HANG_AFTER + TAKE_WITHIN <= arrived < HANG_AFTER + TAKE_WITHIN + SLACK
    age = re.search(r"has not come back for (\d+\.\d+) s", text)
    assert age is not None
    assert HANG_AFTER <= float(age[1]) <= arrived + 0.1
    assert "culprit: wait_for_device (<string>:8)" in text
    stack = re.findall(r'^  File "(.*)", line (\d+), in (\S+)$', text, re.MULTILINE)
    assert stack[0][0] == "<string>"
    assert ("<string>", "12", "main") in stack
    assert stack[-1] == ("<string>", "8", "wait_for_device")


def test_report_again_when_ten_times_as_old(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    with started(HOLDS_FOR_EVER.replace("hang_after=0.3", "hang_after=0.12"), dump) as program:
        next_fact(program)
        wait_until(lambda: dump.exists() and dump.read_text().count("loopwatch: the event loop") == 2)
        assert program.poll() is None


@full_build
def test_held_by_another_thread_while_the_loop_wants_it(tmp_path: Path) -> None:
    dump = tmp_path / "dump"
    source = """
        import asyncio, sys, threading, time
        import loopwatch
        from scenario import hold_gil, say

        def work():
            time.sleep(0.2)
            say(begin=time.monotonic())
            hold_gil(60)

        async def main():
            threading.Thread(target=work, daemon=True).start()
            while True:
                await asyncio.sleep(0.001)

        loopwatch.run(main(), hang_after=0.3, dump_to=sys.argv[1])
    """
    with started(source, dump) as program:
        begin = next_fact(program)["begin"]
        wait_until(lambda: grown(dump))
        assert time.monotonic() - begin < HANG_AFTER + TAKE_WITHIN + SLACK
        assert program.poll() is None


def held_for(seconds: float, extra: str = "") -> Finished:
    source = f"""
        import asyncio, logging, sys
        import loopwatch
        from scenario import hold_gil, say

        logged, called = [], []

        class Keep(logging.Handler):
            def emit(self, record):
                logged.append(record)

        logging.getLogger("loopwatch").addHandler(Keep())

        async def main():
            await asyncio.sleep(0.05)
            hold_gil({seconds})
            await asyncio.sleep(0.05)

        loopwatch.run(main(), hang_after=0.3, on_stall=called.append{extra})
        say(logged=[(r.levelname, r.stall.ongoing, r.stall.id) for r in logged],
            called=[(s.ongoing, s.id) for s in called])
    """
    return run_program(source)


def test_what_was_dumped_is_not_logged_again_but_the_end_is() -> None:
    ended = held_for(1.0)
    assert ended.returncode == 0
    assert "has not come back for" in ended.stderr, "None is standard error"
    assert ended.facts["logged"] == [["WARNING", False, 1]]
    assert ended.facts["called"] == [[True, 1], [False, 1]]


def test_nowhere() -> None:
    facts = held_for(1.0, ", dump_to=False").check()
    assert facts["logged"] == [["ERROR", True, 1], ["WARNING", False, 1]], "late is better than never"
