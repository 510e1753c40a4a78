"""What the log holds back is told: when its time is over, when the watch ends, or at once where it is much worse.

Each program says what was logged, and when it had been: before or after what ends its watch.
"""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from programs import run_program

PRELUDE = """
import asyncio, logging, os, time, warnings
import loopwatch
from scenario import new_loop, quiet, say

class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        stall = record.stall
        self.lines.append((record.getMessage(), stall.duration, record.lineno, record.threadName))

records = Records()
logger = logging.Logger("kept")
logger.addHandler(records)

async def blocked(*durations):
    for seconds in durations:
        await asyncio.sleep(0.01)
        await one(seconds)

async def one(seconds):
    time.sleep(seconds)
    await asyncio.sleep(0)

def watched(**options):
    return quiet(log=logger, hang_after=None, ignore=[of_the_machine], **options)

def of_the_machine(stall):
    return stall.verdict == "not-scheduled"
"""


def said(source: str) -> dict[str, Any]:
    return run_program(PRELUDE + dedent(source)).check()


def logged(source: str) -> list[Any]:
    """(message, the stall's seconds, line, thread) of each record."""
    lines = said(source)["lines"]
    assert {line[3] for line in lines} <= {"loopwatch-reporter"}, "never on the loop's thread"
    return lines


def check_sum(line: Any, count: int, worst: float) -> None:
    many = "stall" if count == 1 else "stalls"
    assert line[0].startswith(f"{count} more {many} in one (<string>) in the last "), line
    assert "held back" in line[0]
    assert line[1] == pytest.approx(worst, rel=0.5)


ENDS = {
    "the loop is closed": """
        loop = new_loop()
        loopwatch.install(loop, **watched())
        loop.run_until_complete(blocked(0.2, 0.2, 0.3))
        loop.close()
        say(lines=records.lines)
    """,
    "uninstall": """
        loop = new_loop()
        watch = loopwatch.install(loop, **watched())
        loop.run_until_complete(blocked(0.2, 0.2, 0.3))
        watch.uninstall()
        say(lines=records.lines)
        loop.close()
    """,
    "uninstall inside the loop": """
        async def main():
            with loopwatch.install(**watched()):
                await blocked(0.2, 0.2, 0.3)
            say(lines=records.lines)
        asyncio.run(main())
    """,
    "run": """
        loopwatch.run(blocked(0.2, 0.2, 0.3), **watched())
        say(lines=records.lines)
    """,
    "the process ends": """
        import atexit
        warnings.simplefilter("ignore")  # the loop is not closed
        atexit.register(lambda: say(lines=records.lines))  # called after loopwatch's, which is put later
        loop = new_loop()
        loopwatch.install(loop, **watched())
        loop.run_until_complete(blocked(0.2, 0.2, 0.3))
    """,
    "the loop is dropped": """
        import gc
        from scenario import wait_until
        loop = new_loop()
        loopwatch.install(loop, **watched())
        loop.run_until_complete(blocked(0.2, 0.2, 0.3))
        warnings.simplefilter("ignore")  # it is not closed
        del loop
        gc.collect()
        wait_until(lambda: len(records.lines) == 2)
        say(lines=records.lines)
    """,
    "its loop ends, of many": """
        from scenario import wait_until
        loopwatch.install_all(**watched())
        asyncio.run(blocked(0.2, 0.2, 0.3))
        wait_until(lambda: len(records.lines) == 2)
        say(lines=records.lines)
        loopwatch.uninstall_all()
    """,
    "uninstall_all": """
        async def main():
            await blocked(0.2, 0.2, 0.3)
            await asyncio.to_thread(loopwatch.uninstall_all)
            say(lines=records.lines)
        loopwatch.install_all(**watched())
        asyncio.run(main())
    """,
}


@pytest.mark.parametrize("source", ENDS.values(), ids=ENDS)
def test_it_is_told_when_the_watch_ends(source: str) -> None:
    first, rest = logged(source)
    assert first[0].startswith("event loop blocked for ")
    check_sum(rest, 2, 0.3)


def test_it_is_told_when_the_time_is_over() -> None:
    first, rest = logged("""
        async def main():
            await blocked(0.2, 0.25)
            for _ in range(500):
                if len(records.lines) == 2:
                    break
                await asyncio.sleep(0.02)
            say(lines=records.lines)
        loopwatch.run(main(), **watched(log_every=1.5))
    """)
    assert first[0].startswith("event loop blocked for ")
    check_sum(rest, 1, 0.25)


def test_much_worse_is_told_at_once() -> None:
    """As in a main() whose first stall is the shortest: the fingerprint has no line."""
    first, worse, rest = logged("""
        async def main():
            time.sleep(0.2)
            await asyncio.sleep(0)
            time.sleep(0.25)
            await asyncio.sleep(0)
            time.sleep(1.2)
            await asyncio.sleep(0)
        loopwatch.run(main(), **watched())
        say(lines=records.lines)
    """)
    assert first[0].startswith("event loop blocked for ")
    assert worse[0].startswith("event loop blocked for 1.")
    assert worse[2] == first[2] + 4
    assert rest[0].startswith("1 more stall in main (<string>) in the last ")
    assert rest[2] == first[2] + 2


def test_a_forked_child_tells_nothing_of_its_parents() -> None:
    facts = said("""
        loop = new_loop()
        loopwatch.install(loop, **watched())
        loop.run_until_complete(blocked(0.2, 0.2))
        pid = os.fork()
        if not pid:
            loop.run_until_complete(blocked(0.2, 0.2))
            loopwatch.uninstall(loop)
            os._exit(len(records.lines))
        status = os.waitpid(pid, 0)[1]
        loop.close()
        say(lines=records.lines, in_child=os.waitstatus_to_exitcode(status))
    """)
    first, rest = facts["lines"]
    assert first[0].startswith("event loop blocked for ")
    check_sum(rest, 1, 0.2)
    assert facts["in_child"] == 1 + 2, "the parent's that it inherited, and its own two"
