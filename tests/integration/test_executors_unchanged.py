"""Thread pools that are watched: nothing else changes for who uses them, and nothing is left at the end."""

import asyncio
import contextvars
import gc
import itertools
import threading
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import BrokenThreadPool

import pytest
from kinds import KINDS, kind_fixture
from pools import counts, gate_fixture, has_submit, loop_fixture, stock_fixture, watched
from programs import run_program
from scenario import left_on, new_loop, wait_until

from loopwatch._registry import registry

kind = kind_fixture(*KINDS)
loop = loop_fixture()
stock = stock_fixture()
gate = gate_fixture()


# --- nothing else changes ---


class Everything(ThreadPoolExecutor):
    """Shows what reaches the pool."""

    def submit(self, /, *args, **kwargs):
        self.reached = args, kwargs
        return super().submit(*args, **kwargs)


def test_the_work_is_what_it_was(stock):
    variable = contextvars.ContextVar("variable", default="unset")
    variable.set("set")

    def work(self, fn=None, *, pool=None):
        return self, fn, pool, variable.get()

    def fails():
        raise ZeroDivisionError("mine")

    def seen_of(pool):
        call = pool.submit(work, 1, fn=2, pool=3)
        seen = [type(call), call.result(), pool.reached == ((work, 1), {"fn": 2, "pool": 3})]
        error = pool.submit(fails).exception()
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        return [*seen, type(error), frames, list(pool.map(abs, [-1, -2]))]

    with Everything(1) as plain, Everything(1) as pool, watched(stock) as watch:
        executor = watch.executor(pool)
        assert seen_of(pool) == seen_of(plain)
        assert executor.state().submitted == 4
        assert stock.run_until_complete(asyncio.to_thread(variable.get)) == "set"


def said_by(*calls):
    """The type and the words of what each call raises."""
    said = []
    for call in calls:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - that it is the same one is the test
            call()
        said.append((caught.type, str(caught.value)))
    return said


def test_errors_are_what_they_were(stock):
    said = []
    with watched(stock) as watch:
        for see in (False, True):
            pool = ThreadPoolExecutor(1)
            if see:
                executor = watch.executor(pool)
            wrong = said_by(pool.submit, lambda pool=pool: pool.submit(fn=int))
            pool.shutdown()
            said.append(wrong + said_by(lambda pool=pool: pool.submit(int)))
        assert executor.state().submitted == 0
    assert said[0] == said[1]


def test_a_broken_pool(stock, caplog):
    def fails():
        raise ZeroDivisionError

    with watched(stock) as watch, ThreadPoolExecutor(1, initializer=fails) as pool:
        executor = watch.executor(pool)
        call = pool.submit(int)
        assert isinstance(call.exception(10), BrokenThreadPool)
        with pytest.raises(BrokenThreadPool):
            pool.submit(int)
        assert (executor.state().submitted, executor.state().completed) == (1, 1)
    assert "Exception in initializer" in caplog.text


@pytest.mark.parametrize("cancel", [False, True])
def test_shutdown_of_a_full_pool(stock, gate, cancel):
    with watched(stock) as watch:
        pool = ThreadPoolExecutor(1)
        executor = watch.executor(pool)
        calls = [pool.submit(gate.wait_at_gate) for _ in range(3)]
        gate.until(1)
        pool.shutdown(wait=False, cancel_futures=cancel)
        assert [call.cancelled() for call in calls] == [False, cancel, cancel]
        assert counts(executor) == (1, 1, 0 if cancel else 2)
        gate.event.set()
        pool.shutdown()
        state = executor.state()
        assert (state.submitted, state.completed, state.queued, state.busy) == (3, 3, 0, 0)


def test_from_many_threads(stock):
    def submit_many():
        for _ in range(200):
            pool.submit(int)

    with ThreadPoolExecutor(3) as pool, watched(stock, threshold=0.005) as watch:
        executor = watch.executor(pool)
        threads = [threading.Thread(target=submit_many) for _ in range(8)]
        for thread in threads:
            thread.start()
        seen = []
        while any(thread.is_alive() for thread in threads):
            seen.append(executor.state())
        for thread in threads:
            thread.join()
        assert wait_until(lambda: executor.state().completed == 1600)
        state = executor.state()
        assert (state.submitted, state.busy, state.queued) == (1600, 0, 0)
        assert watch.stats()["callback_errors"] == 0
    for earlier, later in itertools.pairwise(seen):
        assert earlier.submitted <= later.submitted
        assert earlier.completed <= later.completed <= later.submitted
        assert earlier.saturated <= later.saturated


def test_a_pool_that_is_dropped_goes_at_once(stock):
    gc.disable()
    try:
        with watched(stock) as watch:
            pool = ThreadPoolExecutor(1)
            executor = watch.executor(pool)
            pool.submit(int).result()
            (worker,) = pool._threads
            gone = weakref.ref(pool)
            submit = pool.submit
            del pool
            assert wait_until(lambda: gone() is None), "a worker that goes idle has hold of it for a moment"
            worker.join(10)
            assert not worker.is_alive()
            assert watch.executors == (watch.executor(),)
            assert executor.pool is None
            assert wait_until(lambda: executor.state().completed == 1)
            with pytest.raises(RuntimeError, match="the pool is gone"):
                submit(int)
    finally:
        gc.enable()


# --- the end ---


def test_uninstall_takes_everything_off(loop, kind):
    with ThreadPoolExecutor(1) as pool:
        watch = watched(loop, kind)
        executor = watch.executor(pool)
        loop.run_until_complete(asyncio.to_thread(int))
        default = watch.executor().pool
        assert has_submit(pool)
        assert has_submit(default)
        assert ("run_in_executor" in vars(loop)) == (kind == "uv")
        watch.uninstall()
        assert not has_submit(pool)
        assert not has_submit(default)
        assert left_on(loop) == []
        pool.submit(int).result()
        assert executor.state().submitted == 0
        assert len(watch.executors) == 2  # what was seen is still there
        late = watch.executor(ThreadPoolExecutor(1))
        assert late.state().submitted == 0


def test_uninstall_while_calls_wait(stock, gate):
    seen = []
    with ThreadPoolExecutor(1) as pool:
        watch = watched(stock, threshold=0.05)
        watch.add_saturation_callback(seen.append)
        executor = watch.executor(pool)
        calls = [pool.submit(gate.wait_at_gate) for _ in range(3)]
        assert registry().alarms.wait_ns() is not None
        watch.uninstall()
        assert registry().alarms.wait_ns() is None
        assert executor.state().queued == 2
        gate.event.set()
        assert [call.result() for call in calls] == [None] * 3
    assert seen == []


def test_an_alarm_beside_the_end_delays_nothing(stock):
    """The reporter wakes for the alarm, finds nothing watched and stops the watchdog, which must have let the loop
    go by then: uninstall() waited for that for 2 s, once in ten times."""
    began = time.monotonic()
    for _ in range(100):
        watch = watched(stock)
        registry().alarms.call_later(10, int).cancel()
        watch.uninstall()
    assert time.monotonic() - began < 10


def test_two_watches_of_one_pool(stock):
    other = new_loop()
    with ThreadPoolExecutor(1) as pool:
        first, second = watched(stock), watched(other)
        executors = [watch.executor(pool) for watch in (first, second)]
        pool.submit(int).result()
        first.uninstall()
        assert has_submit(pool)
        pool.submit(int).result()
        second.uninstall()
        assert not has_submit(pool)
        assert [executor.state().submitted for executor in executors] == [1, 2]
    other.close()


def test_what_others_put_on_a_pool_stays(stock):
    seen = []
    with ThreadPoolExecutor(1) as pool:
        own = pool.submit

        def theirs(*args):
            seen.append(args)
            return own(*args)

        pool.submit = theirs
        watch = watched(stock)
        executor = watch.executor(pool)
        pool.submit(int).result()
        below = pool.submit
        pool.submit = lambda *args: below(*args)
        above = pool.submit
        watch.uninstall()
        assert pool.submit is above
        pool.submit(int).result()
        assert len(seen) == 2
        assert executor.state().submitted == 1
        del pool.submit


def test_switched_off():
    facts = run_program(
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        import loopwatch
        from scenario import left_on, say

        loop = asyncio.new_event_loop()
        watch = loopwatch.install(loop)
        pool = ThreadPoolExecutor(1)
        executor = watch.executor(pool, name="io")
        assert watch.executor(pool) is executor
        watch.add_saturation_callback(print)
        watch.remove_saturation_callback(print)
        loop.run_until_complete(asyncio.to_thread(int))
        pool.submit(int).result()
        try:
            watch.executor(3)
        except TypeError as problem:
            say(error=str(problem))
        say(
            left=left_on(loop), submit="submit" in vars(pool), name=executor.name,
            submitted=executor.state().submitted, executors=len(watch.executors),
        )
        pool.shutdown()
        loop.close()
        """,
        env={"LOOPWATCH": "0"},
    ).check()
    assert facts["error"].startswith("pool must be")
    del facts["error"]
    assert facts == {"left": [], "submit": False, "name": "io", "submitted": 0, "executors": 0}


def test_in_a_forked_child():
    """A pre-fork server: the child makes its pools itself, and its full ones are reported by its own reporter."""
    facts = run_program(
        """
        import asyncio, os, sys, time
        from concurrent.futures import ThreadPoolExecutor
        import loopwatch
        from scenario import new_loop, quiet, say, wait_until

        seen = []

        def fill(loop, watch, name):
            pool = ThreadPoolExecutor(1)
            executor = watch.executor(pool, name=name)

            async def main():
                calls = [loop.run_in_executor(pool, time.sleep, 0.1) for _ in range(3)]
                calls.append(asyncio.to_thread(int))
                await asyncio.gather(*calls)

            loop.run_until_complete(main())
            assert wait_until(lambda: seen)
            pool.shutdown()
            return executor.state().submitted

        loop = new_loop()
        watch = loopwatch.install(loop, **quiet(threshold=0.05))
        watch.add_saturation_callback(lambda saturation: seen.append(saturation.executor.name))
        before = fill(loop, watch, "parent")
        loop.run_until_complete(loop.shutdown_default_executor())
        if (pid := os.fork()) == 0:
            seen.clear()
            inherited, loop = loop, new_loop()  # kept, since dropping an open loop is a warning
            watch = loopwatch.install(loop, **quiet(threshold=0.05))
            watch.add_saturation_callback(lambda saturation: seen.append(saturation.executor.name))
            submitted = fill(loop, watch, "child")
            say(child=sorted(set(seen)), submitted=submitted, default=watch.executor().state().submitted)
            watch.uninstall()
            loop.close()
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        say(parent=sorted(set(seen)), before=before)
        loop.close()
        """
    ).check()
    assert facts == {"child": ["child"], "submitted": 3, "default": 1, "parent": ["parent"], "before": 3}


def test_an_inherited_watch_sees_its_pools_in_the_child():
    facts = run_program(
        """
        import asyncio, os, sys, time
        from concurrent.futures import ThreadPoolExecutor
        import loopwatch
        from scenario import new_loop, quiet, say, wait_until

        loop, seen = new_loop(), []
        watch = loopwatch.install(loop, **quiet(threshold=0.05))
        watch.add_saturation_callback(lambda saturation: seen.append(saturation.state.queued))
        pool = ThreadPoolExecutor(1)  # without a thread yet
        executor = watch.executor(pool, name="io")

        async def main():
            await asyncio.gather(*(loop.run_in_executor(pool, time.sleep, 0.1) for _ in range(3)))

        if (pid := os.fork()) == 0:
            loop.run_until_complete(main())
            assert wait_until(lambda: seen)
            state = executor.state()
            say(submitted=state.submitted, completed=state.completed, seen=len(seen) > 0)
            pool.shutdown()
            loop.close()
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        say(parent=executor.state().submitted)
        pool.shutdown()
        loop.close()
        """
    ).check()
    assert facts == {"submitted": 3, "completed": 3, "seen": True, "parent": 0}
