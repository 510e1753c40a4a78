"""run and Runner behave as asyncio's do, and watch from the first task to the last callback of closing."""

import asyncio
import contextvars
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import loopwatch

BLOCK = 0.3
QUIET = {"log": False, "threshold": 0.1}
VARIABLE = contextvars.ContextVar("variable", default="outside")


async def answer():
    await asyncio.sleep(0)
    return 42


def test_run_returns_and_raises_what_main_does():
    assert loopwatch.run(answer(), **QUIET) == 42

    async def fail():
        raise LookupError("main's own")

    with pytest.raises(LookupError, match="main's own"):
        loopwatch.run(fail(), **QUIET)


def test_signature():
    for call in (loopwatch.run, loopwatch.Runner):
        parameters = inspect.signature(call).parameters
        assert parameters["debug"].default is None
        assert parameters["loop_factory"].default is None
        assert parameters["debug"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("debug", [None, True, False])
def test_debug(debug):
    async def is_debug():
        return asyncio.get_running_loop().get_debug()

    assert loopwatch.run(is_debug(), debug=debug, **QUIET) == bool(debug)


def test_loop_factory():
    made = []

    def factory():
        made.append(asyncio.SelectorEventLoop())
        return made[0]

    async def running():
        return asyncio.get_running_loop()

    assert loopwatch.run(running(), loop_factory=factory, **QUIET) is made[0]
    assert made[0].is_closed()


def test_inside_a_running_loop():
    async def main():
        coroutine = answer()
        with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
            loopwatch.run(coroutine)
        coroutine.close()

    asyncio.run(main())


def test_not_a_coroutine():
    with pytest.raises((TypeError, ValueError)) as stock:
        asyncio.run(3)
    with pytest.raises((TypeError, ValueError)) as ours:
        loopwatch.run(3, **QUIET)
    assert ours.type is stock.type
    assert str(ours.value) == str(stock.value)


def test_bad_options_are_refused_before_anything_runs():
    coroutine = answer()
    with pytest.raises(ValueError, match="threshold"):
        loopwatch.run(coroutine, threshold=0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'treshold'"):
        loopwatch.Runner(treshold=1)
    coroutine.close()


def test_an_install_that_fails_closes_the_loop():
    made = []

    def factory():
        made.append(asyncio.SelectorEventLoop())
        return made[0]

    with pytest.raises(ValueError, match="uv"), loopwatch.Runner(loop_factory=factory, pulse="uv"):
        pass
    assert made[0].is_closed()


def test_runner_makes_its_loop_late_and_keeps_it():
    runner = loopwatch.Runner(**QUIET)
    assert runner.watch is None
    runner.close()
    runner = loopwatch.Runner(**QUIET)
    loop = runner.get_loop()
    watch = runner.watch
    assert watch.loop is loop
    assert runner.run(answer()) == runner.run(answer()) == 42
    assert runner.get_loop() is loop
    assert runner.watch is watch
    runner.close()
    runner.close()
    assert not watch.installed
    coroutine = answer()
    with pytest.raises(RuntimeError, match="closed"):
        runner.run(coroutine)
    coroutine.close()


def test_runner_context():
    async def change():
        before = VARIABLE.get()
        VARIABLE.set("inside")
        return before

    context = contextvars.copy_context()
    with loopwatch.Runner(**QUIET) as runner:
        assert runner.run(change()) == "outside"
        assert runner.run(change()) == "inside", "one context for all runs of a runner"
        assert runner.run(change(), context=context) == "outside"
    assert context[VARIABLE] == "inside"
    assert VARIABLE.get() == "outside"


def test_the_event_loop_of_the_thread_is_set_as_asyncio_does():
    async def current():
        return asyncio.get_event_loop() is asyncio.get_running_loop()

    with loopwatch.Runner(**QUIET) as runner:
        assert runner.run(current())
        runner.get_loop().call_soon(lambda: None)
        if sys.version_info < (3, 14):
            assert asyncio.get_event_loop_policy().get_event_loop() is runner.get_loop()


def test_watched_from_the_first_step_to_the_last_callback_of_closing():
    seen = []

    async def write_forever():
        try:
            await asyncio.sleep(3600)
        finally:
            time.sleep(BLOCK)

    async def generate():
        try:
            yield 1
        finally:
            time.sleep(BLOCK)

    async def main():
        time.sleep(BLOCK)
        main.task = asyncio.create_task(write_forever())
        main.generator = generate()
        await anext(main.generator)
        await asyncio.sleep(0)

    loopwatch.run(main(), on_stall=seen.append, **QUIET)
    functions = [stall.culprit.qualname.rpartition(".")[2] for stall in seen]
    assert functions == ["main", "write_forever", "generate"]


def test_close_waits_until_stalls_are_delivered():
    seen = []

    def slow(stall):
        time.sleep(0.3)
        seen.append(stall)

    async def main():
        time.sleep(BLOCK)

    loopwatch.run(main(), on_stall=slow, **QUIET)
    assert len(seen) == 1


def test_two_runners_in_two_threads():
    results = []

    async def main(name):
        await asyncio.sleep(0)
        time.sleep(BLOCK)
        return name

    def work(name):
        seen = []
        loopwatch.run(main(name), on_stall=seen.append, **QUIET)
        results.append((name, [stall.thread for stall in seen]))

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [("one", ["one"]), ("two", ["two"])]


PROGRAM = """
import asyncio, signal, sys, time
import loopwatch
run = {run}
async def main():
    print("ready", flush=True)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
try:
    run(main())
except KeyboardInterrupt:
    print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.parametrize("run", ["asyncio.run", "loopwatch.run"])
def test_keyboard_interrupt(run):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM.format(run=run))],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout.readline() == "ready\n"
    os.kill(child.pid, signal.SIGINT)
    output, _ = child.communicate(timeout=30)
    assert output == "cancelled\ninterrupted True\n"
    assert child.returncode == 0


def test_system_exit_in_a_task():
    async def main():
        async def leave():
            raise SystemExit(3)

        await asyncio.gather(leave())

    with pytest.raises(SystemExit):
        loopwatch.run(main(), **QUIET)
