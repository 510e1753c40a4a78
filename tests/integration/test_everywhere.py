"""install_all(): every loop of the process, whoever makes it, and nothing is left after uninstall_all()."""

from __future__ import annotations

import pytest
from everywhere import need_uvloop, run
from programs import GIL, full_build

RUNS = {
    "run": "asyncio.run(blocked_once())",
    "Runner": "with asyncio.Runner() as runner: runner.run(blocked_once())",
    "own loop": "loop = new_loop(); loop.run_until_complete(blocked_once()); loop.close()",
    "wrapped": "loop = new_loop('wrapped'); loop.run_until_complete(blocked_once()); loop.close()",
    "factory": "with asyncio.Runner(loop_factory=new_loop) as runner: runner.run(blocked_once())",
    "thread": "t = threading.Thread(target=asyncio.run, args=(blocked_once(),)); t.start(); t.join()",
    "uvloop": "import uvloop; uvloop.run(blocked_once())",
    "first callback": "async def early(): block()\nasyncio.run(early())",
}


@pytest.mark.parametrize("how", RUNS)
def test_every_way_to_run_a_loop(how: str) -> None:
    if how == "uvloop":
        need_uvloop()
    facts = run(f"watch_all()\n{RUNS[how]}\nloopwatch.uninstall_all()\nsay(culprits=culprits(seen))")
    assert facts["culprits"] == ["block"]


@pytest.mark.parametrize("kind", ["turn", "wrapped", "uv"])
def test_the_end_of_the_first_run_is_seen(kind: str) -> None:
    """What happens between two runs is no stall, also after the run in which the watch was put."""
    if kind == "uv":
        need_uvloop()
    facts = run(f"""
        watch_all()
        loop = new_loop("{kind}")
        loop.run_until_complete(asyncio.sleep(0.01))
        watch, = registry().watches()
        running = watch.slot.running
        block()
        loop.run_until_complete(blocked_once())
        running = [running, watch.slot.running]
        loop.close()
        loopwatch.uninstall_all()
        say(running=running, culprits=culprits(seen), turns=watch.lag.turns)
    """)
    assert facts["running"] == [False, False]
    assert facts["culprits"] == ["block"]
    assert facts["turns"] >= 4


def test_uvloop_that_was_imported_before() -> None:
    need_uvloop()
    facts = run("""
        import uvloop
        uvloop.run(asyncio.sleep(0))
        bound = asyncio.events._set_running_loop
        watch_all()
        uvloop.run(blocked_once())
        same = bound is asyncio.events._set_running_loop
        loopwatch.uninstall_all()
        say(culprits=culprits(seen), same=same)
    """)
    assert facts == {"culprits": ["block"], "same": True}


def test_loops_that_run_already_in_this_thread_and_in_others() -> None:
    facts = run("""
        async def long(ready, go):
            ready.set()
            while not go.is_set():
                await asyncio.sleep(0.01)
            block()
            await asyncio.sleep(0.01)

        async def main():
            ready, go = threading.Event(), threading.Event()
            thread = threading.Thread(target=asyncio.run, args=(long(ready, go),), name="other")
            thread.start()
            ready.wait()
            watch_all()
            found = len(registry().watches())
            await asyncio.sleep(0.05)
            go.set()
            await asyncio.to_thread(thread.join)
            block()
            await asyncio.sleep(0.01)
            return found

        found = asyncio.run(main())
        settle()
        loopwatch.uninstall_all()
        say(found=found, threads=sorted(stall.thread for stall in seen if stall.culprit), culprits=culprits(seen))
    """)
    assert facts["found"] == 2
    assert facts["culprits"] == ["block", "block"]
    assert facts["threads"] == ["MainThread", "other"]


@full_build  # elsewhere, and without a GIL, a loop without a task is not found while it runs
@pytest.mark.skipif(not GIL, reason="without a GIL a loop without a task is not found while it runs")
def test_a_running_loop_without_a_task_is_found() -> None:
    facts = run("""
        loop = new_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        wait_until(loop.is_running)
        time.sleep(0.05)
        watch_all()
        found = [watch.loop is loop for watch in registry().watches()]
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        loopwatch.uninstall_all()
        say(found=found)
    """)
    assert facts["found"] == [True]


def test_nothing_is_left() -> None:
    facts = run("""
        loop, other = new_loop(), new_loop()
        watch_all()
        loop.run_until_complete(asyncio.sleep(0))
        put = left_on(loop)
        threads = len(our_threads())
        loopwatch.uninstall_all()
        loopwatch.uninstall_all()
        left = left_on(loop)
        gone = no_thread_of_ours()
        other.run_until_complete(asyncio.sleep(0))
        left += left_on(other)
        loop.close(), other.close()
        say(put=put, left=left, gone=gone, threads=threads, held=registry().held)
    """)
    assert "run_forever" in facts["put"]
    assert facts["threads"] == 2
    assert (facts["left"], facts["gone"], facts["held"]) == ([], True, False)


def test_a_watch_goes_with_its_loop_and_the_threads_stay() -> None:
    facts = run("""
        watch_all()
        asyncio.run(asyncio.sleep(0))
        before = sorted(our_threads())
        idents = {thread.ident for thread in threading.enumerate()}
        for _ in range(50):
            asyncio.run(asyncio.sleep(0))
        same = idents == {thread.ident for thread in threading.enumerate()}
        watches = len(registry().watches())
        known = len(registry()._by_key)
        loopwatch.uninstall_all()
        say(before=before, same=same, watches=watches, known=known, left=our_threads())
    """)
    assert facts["before"] == ["loopwatch", "loopwatch-reporter"]
    assert facts["same"]
    assert facts["watches"] == 0
    assert facts["known"] < 40  # _FORGET_AT, and what the watchdog has not let go yet
    assert facts["left"] == []


def test_an_explicit_install_takes_over_and_is_left_alone_afterwards() -> None:
    facts = run("""
        watch_all()
        mine = []
        async def main():
            loop = asyncio.get_running_loop()
            automatic = registry().find(loop)
            with loopwatch.install(**quiet(on_stall=mine.append)) as watch:
                block()
                await asyncio.sleep(0.01)
                try:
                    loopwatch.install()
                except RuntimeError as problem:
                    refused = "uninstall" in str(problem)
                taken = registry().find(loop) is watch and not automatic.installed
            await asyncio.sleep(0)
            return taken, refused
        loop = new_loop()
        taken, refused = loop.run_until_complete(main())
        loop.run_until_complete(asyncio.sleep(0))
        again = registry().find(loop) is not None
        loop.close()
        loopwatch.uninstall_all()
        say(taken=taken, refused=refused, again=again, mine=culprits(mine), all=culprits(seen))
    """)
    assert facts == {"taken": True, "refused": True, "again": False, "mine": ["block"], "all": []}


def test_run_is_not_watched_twice() -> None:
    facts = run("""
        watch_all()
        mine = []
        loopwatch.run(blocked_once(), **quiet(on_stall=mine.append))
        loopwatch.uninstall_all()
        say(mine=culprits(mine), all=culprits(seen))
    """)
    assert facts == {"mine": ["block"], "all": []}
