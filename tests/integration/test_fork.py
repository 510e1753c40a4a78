"""A forked child is watched again once its loop runs there; one that execs or exits pays nothing."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from forking import PRELUDE, run
from programs import full_build, run_program


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
