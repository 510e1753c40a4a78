"""A forked child is watched again once its loop runs there; one that execs or exits pays nothing."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from programs import full_build, run_program

PRELUDE = """
import asyncio, multiprocessing, os, subprocess, sys, threading, time
import loopwatch
from scenario import THRESHOLD, block, blocked_once, culprits, left_on, native_threads, new_loop
from scenario import no_thread_of_ours, our_threads, quiet, say
from scenario import wait_until, pulse_of

def reap(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def fork(child):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid
"""


def run(source: str, **options: object) -> dict[str, object]:
    return run_program(PRELUDE + dedent(source), **options).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["turn", "wrapped", "heartbeat", "uv"])
def test_inherited_loop_is_watched_when_it_runs(kind: str) -> None:
    if kind == "uv":
        pytest.importorskip("uvloop")
    facts = run(f"""
        loop = new_loop("{kind}")
        watch = loopwatch.install(loop, **quiet(pulse=pulse_of("{kind}")))
        loop.run_until_complete(blocked_once())
        watch.flush()
        assert len(watch.stalls) == 1, watch.stalls

        def child():
            assert watch.inherited
            assert our_threads() == []
            loop.run_until_complete(blocked_once())
            assert not watch.inherited
            assert watch.flush()
            say(child=culprits(watch.stalls[1:]), threads=sorted(our_threads()))
            watch.uninstall()
            assert no_thread_of_ours() and left_on(loop) == []
            loop.close()

        assert reap(fork(child)) == 0
        loop.run_until_complete(blocked_once())
        watch.flush()
        say(parent=culprits(watch.stalls))
        loop.close()
    """)
    assert facts["child"] == ["block"]
    assert facts["parent"] == ["block", "block"]
    assert facts["threads"] == ["loopwatch", "loopwatch-reporter"]


def test_fork_before_the_first_run() -> None:
    facts = run("""
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet())

        def child():
            loop.run_until_complete(blocked_once())
            watch.flush()
            say(child=culprits(watch.stalls))
            loop.close()

        pid = fork(child)
        loop.close()
        assert reap(pid) == 0
    """)
    assert facts["child"] == ["block"]


@pytest.mark.parametrize("kind", ["turn", "heartbeat"])
def test_fork_inside_the_running_loop_whose_child_goes_on(kind: str) -> None:
    """A pre-fork in a callback. asyncio says in the child that no loop runs, but the loop goes on."""
    facts = run(f"""
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet(pulse="{kind}"))

        def in_child():
            watch.flush()
            say(child=culprits(watch.stalls))
            os._exit(0)

        def fork_here():
            global pid
            pid = os.fork()
            if pid:
                loop.call_later(0.6, loop.stop)  # reaped then: waiting for a late child would be a stall
            else:
                # The epoll descriptor is shared with the parent, so nothing but timers here.
                loop.call_later(0.05, block)
                loop.call_later(0.1, lambda: threading.Thread(target=in_child).start())

        loop.call_later(0.02, fork_here)
        loop.run_forever()
        loop.close()
        say(code=reap(pid), parent=culprits(watch.stalls))
    """)
    assert facts == {"child": ["block"], "code": 0, "parent": []}


def test_child_that_exits_inside_a_running_loop() -> None:
    """Pays nothing, prints nothing, hangs nowhere: not even where Python's exit runs in it."""
    facts = run("""
        async def main():
            watch = loopwatch.install(**quiet())
            await asyncio.sleep(0.02)
            pids = [fork(lambda: None) for _ in range(5)]
            await asyncio.sleep(0.02)
            return [reap(pid) for pid in pids]

        say(children=asyncio.run(main()))
        loop = new_loop()
        loopwatch.install(loop, **quiet())
        begin = time.monotonic()
        if (pid := os.fork()) == 0:
            loop.close()
            sys.exit(7)
        say(exit=reap(pid), seconds=time.monotonic() - begin)
        loop.close()
    """)
    assert facts["children"] == [0] * 5
    assert facts["exit"] == 7
    assert facts["seconds"] < 2  # type: ignore[operator]


def test_no_thread_and_no_descriptor_in_a_child_that_does_nothing() -> None:
    facts = run("""
        loop = new_loop()
        loopwatch.install(loop, **quiet())
        loop.run_until_complete(asyncio.sleep(0.01))
        before = set(os.listdir("/proc/self/fd"))
        def child():
            say(threads=native_threads(), more=len(set(os.listdir("/proc/self/fd")) - before))
        assert reap(fork(child)) == 0
        loop.close()
    """)
    assert facts == {"threads": 1, "more": 0}


def test_fresh_run_and_install_in_the_child() -> None:
    facts = run("""
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet())
        loop.run_until_complete(asyncio.sleep(0.01))

        def child():
            seen = []
            loopwatch.run(blocked_once(), **quiet(on_stall=seen.append))
            say(run=culprits(seen))
            assert no_thread_of_ours()
            again = loopwatch.install(loop, **quiet())  # takes over from the inherited one
            loop.run_until_complete(blocked_once())
            again.flush()
            say(install=culprits(again.stalls), old=len(watch.stalls))
            try:
                loopwatch.install(loop)
            except RuntimeError as problem:
                say(second=str(problem))
            loop.close()
            assert no_thread_of_ours()

        assert reap(fork(child)) == 0
        loop.close()
    """)
    assert facts["run"] == facts["install"] == ["block"]
    assert facts["old"] == 0
    assert "uninstall" in str(facts["second"])


def test_uninstall_in_the_child_of_a_watch_that_never_ran_there() -> None:
    facts = run("""
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet())
        loop.run_until_complete(asyncio.sleep(0.01))
        def child():
            begin = time.monotonic()
            watch.uninstall()
            assert left_on(loop) == [] and our_threads() == []
            loop.run_until_complete(asyncio.sleep(0.01))
            loop.close()
            say(seconds=time.monotonic() - begin)
        assert reap(fork(child)) == 0
        loop.run_until_complete(blocked_once())
        watch.flush()
        say(parent=culprits(watch.stalls))
        loop.close()
    """)
    assert facts["seconds"] < 1  # type: ignore[operator]
    assert facts["parent"] == ["block"]


def test_two_generations() -> None:
    facts = run("""
        loop = new_loop()
        watch = loopwatch.install(loop, **quiet())
        loop.run_until_complete(asyncio.sleep(0.01))

        def grandchild():
            loop.run_until_complete(blocked_once())
            watch.flush()
            say(grandchild=culprits(watch.stalls))
            loop.close()

        def child():
            loop.run_until_complete(asyncio.sleep(0.01))
            assert reap(fork(grandchild)) == 0
            loop.run_until_complete(blocked_once())
            watch.flush()
            say(child=culprits(watch.stalls))
            loop.close()

        assert reap(fork(child)) == 0
        loop.close()
    """)
    assert facts["grandchild"] == facts["child"] == ["block"]


@pytest.mark.parametrize("dump_to", ["path", "None", "descriptor"])
@full_build
def test_dump_to_in_the_child(dump_to: str, tmp_path: Path) -> None:
    """The descriptors that the watchdog took over are the parent's, so the child's opens its own."""
    program = run_program(
        PRELUDE
        + dedent(f"""
        import logging
        class Stuck(logging.Handler):
            def emit(self, record):
                time.sleep(0.6)
        logging.getLogger("loopwatch").addHandler(Stuck())
        path = sys.argv[1]
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        loop = new_loop()
        watch = loopwatch.install(loop, threshold=THRESHOLD, hang_after=0.1, dump_to={dump_to})
        def child():
            loop.run_until_complete(blocked_once(0.6))
            say(dumps=watch.stats()["dumps"])
            loop.close()
        assert reap(fork(child)) == 0
        loop.close()
        """),
        tmp_path / "dump",
    )
    assert (program.returncode, program.facts) == (0, {"dumps": 1}), program
    text = program.stderr if dump_to == "None" else (tmp_path / "dump").read_text()
    assert "culprit: block" in text


def test_dump_to_of_a_descriptor_whose_number_is_another_files_in_the_child() -> None:
    facts = run("""
        descriptor, other = os.pipe()[1], os.pipe()
        loop = new_loop()
        watch = loopwatch.install(loop, threshold=THRESHOLD, hang_after=0.1, log=False, dump_to=descriptor,
                                  on_stall=lambda stall: time.sleep(0.6))
        def child():
            os.dup2(other[1], descriptor)
            loop.run_until_complete(blocked_once(0.6))
            os.set_blocking(other[0], False)
            try:
                say(foreign=os.read(other[0], 100).decode())
            except BlockingIOError:
                say(foreign="")
            loop.close()
        assert reap(fork(child)) == 0
        loop.close()
    """)
    assert facts == {"foreign": ""}


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


def test_multiprocessing_by_fork() -> None:
    facts = run("""
        def work(queue):
            seen = []
            loopwatch.run(blocked_once(), **quiet(on_stall=seen.append))
            queue.put(culprits(seen) * no_thread_of_ours())

        async def main():
            loopwatch.install(**quiet())
            context = multiprocessing.get_context("fork")
            queue = context.SimpleQueue()
            processes = [context.Process(target=work, args=(queue,)) for _ in range(2)]
            for process in processes:
                process.start()
            got = await asyncio.to_thread(lambda: [queue.get() for _ in processes])
            await asyncio.to_thread(lambda: [process.join(10) for process in processes])
            return got, [process.exitcode for process in processes]

        got, codes = asyncio.run(main())
        say(got=got, codes=codes)
    """)
    assert facts["got"] == [["block"], ["block"]]
    assert facts["codes"] == [0, 0]


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


def test_child_that_only_execs() -> None:
    facts = run("""
        async def main():
            loopwatch.install(**quiet())
            await asyncio.sleep(0.02)
            pid = os.fork()
            if pid == 0:
                os.execv("/bin/sh", ["/bin/sh", "-c", "exit 9"])
            return reap(pid)
        say(code=asyncio.run(main()))
    """)
    assert facts["code"] == 9


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
