"""install_all() and the moments that are easily missed: an interruption in the hook, a fork, a page that comes last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import run_program

PRELUDE = """
    import asyncio, os, sys
    import loopwatch
    from loopwatch import _everywhere, _page
    from loopwatch._registry import registry
    from scenario import new_loop, our_threads, quiet, say, wait_until
"""


def run(source: str, *args: str | Path) -> dict[str, Any]:
    return run_program(PRELUDE + source, *args).check()


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit", "Interrupted"])
def test_an_interruption_in_the_hook_ends_the_run_in_order(error: str) -> None:
    """What pytest-timeout raises on a signal is neither KeyboardInterrupt nor SystemExit."""
    facts = run(f"""
    class Interrupted(BaseException):
        pass

    def interrupted(watch):
        raise {error}

    _everywhere.watch_all(quiet(), origin="a tool", on_watch=interrupted)
    loop = new_loop()
    try:
        loop.run_until_complete(asyncio.sleep(5))
    except {error}:
        say(interrupted=True)
    _everywhere.unwatch_all("a tool")
    again = loop.run_until_complete(asyncio.sleep(0, "again"))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    say(again=again, running=asyncio._get_running_loop())
""")
    assert facts == {"interrupted": True, "again": "again", "running": None}


def test_a_loop_that_was_uninstalled_stays_alone_in_a_forked_child() -> None:
    facts = run("""
    loopwatch.install_all(**quiet())
    loop = new_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loopwatch.uninstall(loop)
    pid = os.fork()
    if pid == 0:
        loop.run_until_complete(asyncio.sleep(0))
        alone = registry().find(loop) is None
        asyncio.run(asyncio.sleep(0))
        loopwatch.uninstall_all()
        say(alone=alone, threads=our_threads())
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    loop.close()
    loopwatch.uninstall_all()
    say(status=status)
""")
    assert facts == {"alone": True, "threads": [], "status": 0}


def test_a_page_that_is_asked_for_when_every_loop_is_watched_already(tmp_path: Path) -> None:
    facts = run(
        """
    async def main():
        loopwatch.install(**quiet())
        _everywhere.watch_all(quiet(status=sys.argv[1]), origin="a tool")
        for _ in range(200):
            await asyncio.sleep(0.05)
            if loops := _page.read(sys.argv[1]).body.get("loops"):
                break
        say(loops=len(loops))

    asyncio.run(main())
    _everywhere.unwatch_all("a tool")
    say(there=os.path.exists(sys.argv[1]), threads=our_threads())
""",
        tmp_path / "page",
    )
    assert facts == {"loops": 1, "there": False, "threads": []}
