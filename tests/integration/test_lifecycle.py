"""Phases of a process's life, each in a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import asyncio, os, sys, threading, time
import loopwatch
BLOCK = 0.3
QUIET = dict(log=False, threshold=0.1)
def say(stall):
    print("stall", round(stall.duration, 1), flush=True)
def block():
    time.sleep(BLOCK)
async def blocked():
    await asyncio.sleep(0)
    block()
    await asyncio.sleep(0)
"""


FORKS = "ignore:This process:DeprecationWarning"  # CPython warns of a fork beside threads: ours, here


def run(program, *, env=None, code=0):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", FORKS, "-c", BEGIN + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ) | (env or {}),
    )
    assert done.returncode == code, done.stderr
    return done.stdout.split("\n")[:-1], done.stderr


def test_exit_delivers_what_has_ended():
    output, errors = run("""
        loop = asyncio.new_event_loop()
        loopwatch.install(loop, on_stall=say, **QUIET)
        loop.run_until_complete(blocked())
        sys.exit(0)
    """)
    assert [line.split()[0] for line in output] == ["stall"]
    assert "Fatal" not in errors


def test_exit_while_a_loop_runs_in_a_daemon_thread():
    output, errors = run("""
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        loopwatch.install(loop, on_stall=say, **QUIET)
        asyncio.run_coroutine_threadsafe(blocked(), loop).result()
    """)
    assert [line.split()[0] for line in output] == ["stall"]
    assert errors == ""


def test_exit_with_a_sink_that_never_returns():
    _, errors = run("""
        loop = asyncio.new_event_loop()
        loopwatch.install(loop, on_stall=lambda _: time.sleep(3600), **QUIET)
        loop.run_until_complete(blocked())
        loop.close()
    """)
    assert errors == ""


def test_sys_exit_in_a_callback_of_the_loop():
    run(
        """
        async def main():
            block()
            sys.exit(7)
        loopwatch.run(main(), **QUIET)
        """,
        code=7,
    )


def test_fork_of_a_watched_loop():
    """The inherited watch is inactive until its loop runs; then the child has threads of its own."""
    output, errors = run(
        """
        loop = asyncio.new_event_loop()
        watch = loopwatch.install(loop, on_stall=say, **QUIET)
        loop.run_until_complete(asyncio.sleep(0))
        child = os.fork()
        if child == 0:
            print("inherited", watch.inherited, threading.active_count(), flush=True)
            loop.run_until_complete(blocked())
            print("flushed", watch.flush(), [t.name for t in threading.enumerate()][1:], flush=True)
            watch.uninstall()
            print("threads", threading.active_count(), flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("parent", watch.inherited, watch.installed)
        loop.run_until_complete(blocked())
        watch.uninstall()
        loop.close()
    """.replace("sys.exit(0)", "loop.close(); sys.exit(0)")
    )
    said = [line for line in output if not line.startswith("stall")]
    assert said == [
        "inherited True 1",
        "flushed True ['loopwatch-reporter']",
        "threads 1",
        "parent False True",
    ]
    assert len(output) - len(said) == 2, "one stall in the child, one in the parent"
    assert errors == ""


@pytest.mark.parametrize("how", ["loopwatch.run(blocked(), on_stall=say, **QUIET)", """
            loop2 = asyncio.new_event_loop()
            with loopwatch.install(loop2, on_stall=say, **QUIET):
                loop2.run_until_complete(blocked())
            loop2.close()""", """
            with loopwatch.install(loop, on_stall=say, **QUIET):
                loop.run_until_complete(blocked())"""])  # fmt: skip
def test_a_fresh_watch_in_the_child_works_at_once(how):
    output, errors = run(f"""
        loop = asyncio.new_event_loop()
        watch = loopwatch.install(loop, **QUIET)
        loop.run_until_complete(asyncio.sleep(0))
        child = os.fork()
        if child == 0:
            {how}
            loop.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        watch.uninstall()
        loop.close()
    """)
    assert len(output) == 1
    assert errors == ""


def test_a_child_that_never_runs_its_loop_exits_cleanly():
    _, errors = run("""
        loop = asyncio.new_event_loop()
        watch = loopwatch.install(loop, **QUIET)
        child = os.fork()
        if child == 0:
            loop.close()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        loop.close()
    """)
    assert errors == ""


def test_switched_off():
    output, errors = run(
        """
        threads = threading.active_count()
        async def main():
            with loopwatch.install(on_stall=say, **QUIET) as watch:
                loopwatch.install(**QUIET)
                with loopwatch.step("tls"), watch.exempt("all"):
                    block()
                watch.threshold = 0.5
                watch.add_stall_callback(say)
                print(type(watch).__name__, watch.current, watch.stalls, watch.threshold)
                print(watch.stats()["turns"], watch.lag.turns, watch.loop is asyncio.get_running_loop())
                print(watch.remove_stall_callback(say), threading.active_count())
                print({"close", "run_forever", "_loopwatch"} & vars(watch.loop).keys())
            loopwatch.uninstall()
            return watch
        print(loopwatch.run(main(), **QUIET).flush())
        with loopwatch.Runner(**QUIET) as runner:
            print(runner.watch.installed)
        print(loopwatch.doctor().ok)
        """,
        env={"LOOPWATCH": "0"},
    )
    assert output == ["Watch None () 0.5", "0 0 True", "2 1", "set()", "True", "False", "False"]
    assert errors == ""


def test_a_bad_variable_is_named():
    _, errors = run("loopwatch.run(blocked())", env={"LOOPWATCH_THRESHOLD": "soon"}, code=1)
    assert (
        "ValueError: environment variable LOOPWATCH_THRESHOLD must be a number of seconds, not 'soon'"
        in errors
    )


def test_the_environment_sets_the_threshold():
    output, _ = run(
        """
        loop = asyncio.new_event_loop()
        watch = loopwatch.install(loop)
        print(watch.threshold, watch.pulse)
        loop.close()
        """,
        env={"LOOPWATCH_THRESHOLD": "0.5", "LOOPWATCH_PULSE": "heartbeat"},
    )
    assert output == ["0.5 heartbeat"]


INSIDE = """
import os, sys
sys.path[:] = {path!r}
try:
    import asyncio, loopwatch
    loop = asyncio.new_event_loop()
    try:
        loopwatch.install(loop)
    finally:
        loop.close()
except BaseException as problem:
    os.write({write}, (type(problem).__name__ + ": " + str(problem)).encode())
"""


def test_subinterpreter():
    """Said, wherever it is noticed: when the native half is imported or when something is installed."""
    output, _ = run(f"""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        read, write = os.pipe()
        other = interpreters.create()
        code = {INSIDE!r}.format(path=sys.path, write=write)
        interpreters.run_string(other, code)
        os.close(write)
        print(os.read(read, 10000).decode())
        interpreters.destroy(other)
    """)
    assert "subinterpreter" in output[0].lower()
    assert output[0].startswith("RuntimeError")


def test_import_starts_nothing():
    output, _ = run("print(threading.active_count(), len(os.listdir('/proc/self/task')))")
    assert output == ["1 1"]
