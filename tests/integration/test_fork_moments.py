"""Forks at any moment: while a stall goes on, by another thread, under load, in a callback, while others install."""

from __future__ import annotations

import pytest
from forking import run


def test_fork_while_a_stall_goes_on() -> None:
    """It is the parent's stall; the child has none of it, and sees its own."""
    facts = run("""
        def fork_in_the_middle(child):
            block()
            pid = fork(child)
            block()
            return pid

        loop = new_loop()
        watch = loopwatch.install(loop, **quiet())
        other = new_loop()

        def child():
            asyncio._set_running_loop(None)
            seen = []
            loopwatch.run(blocked_once(), **quiet(on_stall=seen.append))
            say(child=culprits(seen), inherited=len(watch.stalls))

        async def main():
            await asyncio.sleep(0.02)
            return fork_in_the_middle(child)

        assert reap(loop.run_until_complete(main())) == 0
        watch.flush()
        say(parent=culprits(watch.stalls), duration=watch.stalls[0].duration)
        loop.close()
        other.close()
    """)
    assert facts["child"] == ["block"]
    assert facts["inherited"] == 0
    assert facts["parent"] == ["block"]
    assert 0.4 <= facts["duration"] < 2  # type: ignore[operator]


def test_fork_by_another_thread_while_the_loop_is_blocked() -> None:
    facts = run("""
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet())
        statuses = []
        def child():
            seen = []
            loopwatch.run(blocked_once(), **quiet(on_stall=seen.append))
            say(child=culprits(seen))
        def forker():
            time.sleep(0.2)
            statuses.append(reap(fork(child)))
        async def main():
            await asyncio.sleep(0.02)
            thread = threading.Thread(target=forker)
            thread.start()
            block(0.5)
            await asyncio.to_thread(thread.join)
        loop.run_until_complete(main())
        watch.flush()
        say(statuses=statuses, parent=culprits(watch.stalls))
        loop.close()
    """)
    assert facts["statuses"] == [0]
    assert facts["child"] == facts["parent"] == ["block"]


@pytest.mark.parametrize("kind", ["turn", "uv"])
def test_child_processes_under_load(kind: str) -> None:
    """Each spawn forks or vforks inside a busy, watched loop."""
    if kind == "uv":
        pytest.importorskip("uvloop")
    facts = run(f"""
        async def one(n):
            process = await asyncio.create_subprocess_exec("/bin/echo", str(n), stdout=subprocess.PIPE)
            out, _ = await process.communicate()
            return int(out)

        async def main():
            watch = loopwatch.install(**quiet(threshold=2.0))
            assert watch.pulse == "{kind}"
            busy = True
            async def turn():
                while busy:
                    await asyncio.sleep(0)
            turner = asyncio.create_task(turn())
            numbers = []
            for _ in range(5):
                numbers += await asyncio.gather(*(one(n) for n in range(4)))
            popen = [subprocess.Popen(["/bin/true"], preexec_fn=(lambda: None)).wait() for _ in range(5)]
            busy = False
            await turner
            return numbers, popen, watch.stats()

        loop = new_loop("{kind}")
        if sys.version_info < (3, 12) and "{kind}" == "turn":
            asyncio.get_child_watcher().attach_loop(loop)
        numbers, popen, stats = loop.run_until_complete(main())
        say(numbers=numbers, popen=popen, stalls=stats["stalls"])
        loop.close()
    """)
    assert sorted(facts["numbers"]) == sorted([0, 1, 2, 3] * 5)  # type: ignore[call-overload]
    assert facts["popen"] == [0] * 5
    assert facts["stalls"] == 0


def test_fork_in_a_stall_callback() -> None:
    """The child's one thread is what was the reporter's; it may watch loops of its own."""
    facts = run("""
        def child():
            seen = []
            loopwatch.run(blocked_once(), **quiet(on_stall=seen.append))
            say(child=culprits(seen))

        statuses = []
        def on_stall(stall):
            statuses.append(reap(fork(child)))

        loop = new_loop()
        watch = loopwatch.install(loop, **quiet(on_stall=on_stall))
        loop.run_until_complete(blocked_once())
        watch.flush()
        loop.close()
        say(statuses=statuses, errors=watch.stats()["callback_errors"])
    """)
    assert facts == {"child": ["block"], "statuses": [0], "errors": 0}


def test_forks_while_threads_install_and_uninstall() -> None:
    """Whatever lock of ours another thread holds at the fork, the child does not wait for it."""
    facts = run("""
        done = False
        def churn():
            while not done:
                loop = new_loop()
                with loopwatch.install(loop, **quiet()):
                    loop.run_until_complete(asyncio.sleep(0))
                loop.close()

        def child():
            seen = []
            loopwatch.run(blocked_once(0.15), **quiet(on_stall=seen.append))
            assert culprits(seen) == ["block"], seen

        threads = [threading.Thread(target=churn) for _ in range(2)]
        for thread in threads:
            thread.start()
        pids = []
        for _ in range(10):
            time.sleep(0.03)
            pids.append(fork(child))
        deadline = time.monotonic() + 10
        statuses = {}
        while len(statuses) < len(pids) and time.monotonic() < deadline:
            for pid in pids:
                if pid not in statuses and (got := os.waitpid(pid, os.WNOHANG))[0]:
                    statuses[pid] = os.waitstatus_to_exitcode(got[1])
            time.sleep(0.01)
        for pid in set(pids) - set(statuses):
            os.kill(pid, 9)
        done = True
        for thread in threads:
            thread.join()
        say(statuses=sorted(statuses.values()))
    """)
    assert facts == {"statuses": [0] * 10}
