"""install_all() where a loop runs inside another one's callback, as nest_asyncio makes it: set as the running loop once
more, and the outer one set again afterwards. A loop that is not running is no stall."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from everywhere import need_uvloop, run
from programs import full_build

NESTED = """
from asyncio import _set_running_loop as set_running

def nested(inner, outer, work):
    set_running(inner)
    try:
        work()
    finally:
        set_running(outer)

def turns(loop, work=lambda: None):
    # A run of `loop` from within a callback: stock loops refuse that, so its turns are made as nest_asyncio does.
    loop.call_soon(work)
    loop._run_once()

def rest():
    # Longer than the threshold, while no loop runs.
    time.sleep(3 * BLOCK)
    return [watch.current is not None for watch in registry().watches()], [
        watch.slot.running for watch in registry().watches()]
"""


def run_nested(source: str) -> dict[str, Any]:
    return run(NESTED + dedent(source))


@pytest.mark.parametrize("kind", ["turn", "wrapped", "uv"])
def test_the_end_of_a_run_in_which_the_loop_was_set_again(kind: str) -> None:
    if kind == "uv":
        need_uvloop()
    facts = run_nested(f"""
        watch_all()
        loop = new_loop("{kind}")
        async def main():
            nested(loop, loop, block)
            nested(loop, loop, lambda: nested(loop, loop, lambda: None))
            await asyncio.sleep(0.01)
        loop.run_until_complete(main())
        first = rest()
        loop.run_until_complete(main())
        second = rest()
        settle()
        loop.close()
        loopwatch.uninstall_all()
        say(first=first, second=second, culprits=culprits(seen))
    """)
    assert facts["first"] == facts["second"] == [[False], [False]]
    assert facts["culprits"] == ["block", "block"]


def test_the_end_of_a_loop_inside_another_one() -> None:
    """The outer loop is blocked while the inner one runs; neither is afterwards."""
    facts = run_nested("""
        watch_all()
        loop, other = new_loop(), new_loop()
        async def main():
            nested(other, loop, lambda: turns(other, block))
            inner = registry().find(other).slot.running
            await asyncio.sleep(3 * BLOCK)
            return inner, registry().find(other).current is not None, registry().find(loop).slot.running
        inside = loop.run_until_complete(main())
        after = rest()
        settle()
        stalled = sorted({stall.culprit.qualname for stall in seen if stall.culprit})
        loop.close(), other.close()
        loopwatch.uninstall_all()
        say(inside=inside, after=after, stalled=stalled, stalls=len(culprits(seen)))
    """)
    assert facts["inside"] == [False, False, True]
    assert facts["after"] == [[False, False], [False, False]]
    assert facts["stalled"] == ["block"]
    assert facts["stalls"] == 2


@full_build  # only a raw look tells that the run is over
def test_a_loop_that_runs_while_the_outer_one_is_set_aside() -> None:
    facts = run_nested("""
        watch_all()
        loop, other = new_loop(), new_loop()
        def aside():  # in no task: from 3.14 on a thread has one at a time
            set_running(None)
            other.run_until_complete(asyncio.sleep(0))
            set_running(loop)
            loop.call_later(0.01, loop.stop)
        loop.call_soon(aside)
        loop.run_forever()
        after = rest()
        loop.close(), other.close()
        loopwatch.uninstall_all()
        say(after=after[0])
    """)
    assert facts["after"] == [False, False]


@full_build  # only a raw look tells that the run is over
def test_deeper_than_is_kept() -> None:
    facts = run_nested("""
        watch_all()
        loops = [new_loop() for _ in range(12)]
        def deeper(rest):
            if len(rest) > 1:
                nested(rest[1], rest[0], lambda: turns(rest[1], lambda: deeper(rest[1:])))
        async def main():
            deeper(loops)
        loops[0].run_until_complete(main())
        after = rest()
        for loop in loops: loop.close()
        loopwatch.uninstall_all()
        say(watches=len(after[0]), current=any(after[0]))
    """)
    assert facts == {"watches": 12, "current": False}


def test_a_run_that_began_under_an_earlier_install_all() -> None:
    facts = run_nested("""
        watch_all()
        loop = new_loop()
        async def main():
            loopwatch.uninstall_all()
        loop.run_until_complete(main())
        watch_all()
        loop.run_until_complete(asyncio.sleep(0.01))
        after = rest()
        loop.close()
        loopwatch.uninstall_all()
        say(after=after)
    """)
    assert facts["after"] == [[False], [False]]
