"""Thread pools that are watched: which there are, what is seen of them, and what is said of a full one."""

import asyncio
import functools
import logging
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from kinds import KINDS, kind_fixture
from pools import Gate, counts, gate_fixture, has_submit, loop_fixture, stock_fixture, watched
from programs import full_build
from scenario import left_on, quiet, wait_until

import loopwatch
from loopwatch._registry import registry

kind = kind_fixture(*KINDS)
loop = loop_fixture()
stock = stock_fixture()
gate = gate_fixture()


# --- the default executor ---


def test_the_first_call_to_a_fresh_default_executor_is_seen(loop, kind, gate):
    async def main():
        default = watch.executor()
        width = default.state().max_workers
        assert watch.executors == ((default,) if width else ())  # a stock loop has it from the install on
        assert default.state() == loopwatch.ExecutorState("default", width, 0, 0, 0, 0.0, 0.0, 0, 0)
        call = loop.run_in_executor(None, gate.wait_at_gate)
        await asyncio.to_thread(gate.until, 1)
        assert watch.executors == (default,)
        state = default.state()
        assert (state.submitted, state.busy, state.queued, state.completed) == (2, 1, 0, 1)
        gate.event.set()
        await call
        assert (default.state().busy, default.state().completed) == (0, 2)

    with watched(loop, kind) as watch:
        loop.run_until_complete(main())


def test_one_that_was_there_before(loop, kind):
    async def main():
        await asyncio.to_thread(int)
        watch = watched(loop, kind)
        (default,) = watch.executors
        assert default is watch.executor()
        assert (default.name, default.state().submitted) == ("default", 0)
        await asyncio.to_thread(int)
        assert default.state().submitted == 1
        watch.uninstall()

    loop.run_until_complete(main())


def test_one_that_is_set_takes_the_place_of_the_one_before(loop, kind):
    async def main():
        await asyncio.to_thread(int)
        with ThreadPoolExecutor(3) as first, ThreadPoolExecutor(5) as second:
            for pool, width in ((first, 3), (second, 5)):
                loop.set_default_executor(pool)
                if kind != "uv":  # the one before lives on, so nothing tells of the change
                    assert watch.executor().pool is pool
                await asyncio.to_thread(int)
                await loop.run_in_executor(None, int)
                assert watch.executors[0].pool is pool
                assert watch.executors[0].state().max_workers == width
            assert not has_submit(first)
            assert len(watch.executors) == 1
            assert watch.executors[0].state().submitted == 5
            loop.set_default_executor(ThreadPoolExecutor())

    with watched(loop, kind) as watch:
        loop.run_until_complete(main())


def test_one_that_is_set_at_the_start_is_seen_from_its_first_call_on(loop, kind):
    async def main():
        loop.set_default_executor(ThreadPoolExecutor(3))
        await asyncio.gather(*(asyncio.to_thread(int) for _ in range(5)))

    with watched(loop, kind) as watch:
        loop.run_until_complete(main())
        state = watch.executor().state()
        assert (state.name, state.max_workers, state.submitted, state.completed) == ("default", 3, 5, 5)


def test_one_that_the_program_named_keeps_its_name(loop, kind):
    with ThreadPoolExecutor(2) as pool, watched(loop, kind) as watch:
        named = watch.executor(pool, name="database")
        loop.set_default_executor(pool)
        loop.run_until_complete(asyncio.to_thread(int))
        assert watch.executor() is named
        assert [executor.name for executor in watch.executors] == ["database"]
        assert named.state().submitted == 1


def test_another_executor_is_no_default_one(loop, kind):
    with ThreadPoolExecutor(2) as pool, watched(loop, kind) as watch:
        loop.run_until_complete(loop.run_in_executor(pool, int))
        loop.mine = pool
        assert watch.executor().pool is not pool
        assert watch.executor().state().submitted == 0
        assert not has_submit(pool)
        del loop.mine


def test_a_stock_loop_gets_the_one_it_would_make(stock):
    """In the place that it has for it, with nothing else on the loop; what nobody used is taken back."""
    with watched(stock) as watch:
        assert stock._default_executor is watch.executor().pool
        made = stock._default_executor
        assert (len(made._threads), made._thread_name_prefix) == (0, "asyncio")
        assert made._max_workers == ThreadPoolExecutor()._max_workers
        assert left_on(stock) == ["run_forever", "select", "close"]
        stock.run_until_complete(asyncio.sleep(0))
        assert stock._default_executor is None, "whoever closes it sees a loop that never had one"
        assert watch.executors == (watch.executor(),)
        seen = []
        stock.call_soon(lambda: seen.append(stock._default_executor))
        stock.run_until_complete(asyncio.sleep(0))
        assert seen == [made]
    assert stock._default_executor is None
    with watched(stock):
        name = stock.run_until_complete(asyncio.to_thread(lambda: threading.current_thread().name))
        used = stock._default_executor
    assert name == "asyncio_0"
    assert stock._default_executor is used
    assert not has_submit(used)
    stock.run_until_complete(stock.shutdown_default_executor())
    with watched(stock) as watch:  # none is made for a loop that would refuse to use it
        assert watch.executor().state().submitted == 0
        with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
            stock.run_until_complete(asyncio.to_thread(int))


def test_a_runner_closes_without_a_thread_for_what_nobody_used(monkeypatch):
    started = []
    start = threading.Thread.start
    with loopwatch.Runner(**quiet()) as runner:
        runner.run(asyncio.sleep(0))
        monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread), start(thread)))
    assert started == []


# --- a full one ---


def test_a_full_pool_is_reported_and_is_no_stall(loop, kind):
    """E5: 12 workers, 40 calls of 0.1 s; the last of them waits for the fourth round."""
    seen = []

    async def main():
        loop.set_default_executor(ThreadPoolExecutor(12))
        watch.add_saturation_callback(seen.append)
        calls = [loop.run_in_executor(None, functools.partial(time.sleep, 0.1)) for _ in range(40)]
        await asyncio.sleep(0)
        states.append(watch.executors[0].state())
        await asyncio.gather(*calls)

    states = []
    with watched(loop, kind, threshold=0.05) as watch:
        loop.run_until_complete(main())
        state = watch.executors[0].state()
        assert wait_until(lambda: seen)
        verdicts = {stall.verdict for stall in watch.stalls}  # a busy machine makes some of its own
    assert (states[0].workers, states[0].busy) == (12, 12)
    assert 28 >= states[0].queued > 0
    assert (state.submitted, state.completed, state.busy, state.queued) == (40, 40, 0, 0)
    assert state.saturated > 0.1
    assert seen[0].executor is watch.executor()
    assert seen[0].waited >= 0.05
    assert seen[0].state.busy == 12
    assert len(seen[0].workers) == 12
    assert not verdicts & {loopwatch.Verdict.BLOCKING_CALL, loopwatch.Verdict.LOCK}


@full_build
def test_the_report_says_what_the_workers_do(stock, gate, caplog):
    seen = []
    with ThreadPoolExecutor(2, "slow") as pool:
        watch = loopwatch.install(stock, threshold=0.02, dump_to=False)
        watch.add_saturation_callback(seen.append)
        with watch:
            executor = watch.executor(pool)
            if watch.capture != "raw":
                pytest.skip("frames are not read raw here")
            for _ in range(5):
                pool.submit(gate.wait_at_gate)
            assert wait_until(lambda: len(seen) == 2)
            assert executor.name == "slow"
        gate.event.set()
    assert seen[0].waited < 0.2 <= seen[1].waited  # again at ten times the threshold
    for saturation in seen:
        assert [worker.name for worker in saturation.workers] == ["slow_0", "slow_1"]
        idents = {worker.native_thread_id for worker in saturation.workers}
        assert len(idents - {0}) == 2
        for worker in saturation.workers:
            assert "Gate.wait_at_gate" in [frame.qualname for frame in worker.frames]
        assert saturation.culprit.qualname == "Gate.wait_at_gate"
        assert "2 of 2 workers busy, most in Gate.wait_at_gate" in saturation.summary
        assert "assert self.event.wait(30)" in saturation.format()
        assert (saturation.state.queued, saturation.state.name) == (3, "slow")
    # Ten times the first, so nothing is held back.
    record, later = [record for record in caplog.records if record.name == "loopwatch"]
    assert later.saturation is seen[1]
    assert record.levelno == logging.WARNING
    assert record.saturation is seen[0]
    assert record.getMessage() == seen[0].summary
    assert record.stack_info == seen[0].format()
    assert record.funcName == "Gate.wait_at_gate"


@pytest.mark.parametrize("capture", ["gil", "off"])
def test_frames_are_read_as_those_of_stalls(stock, gate, capture):
    seen = []
    with ThreadPoolExecutor(1) as pool, watched(stock, threshold=0.02, capture=capture) as watch:
        watch.add_saturation_callback(seen.append)
        watch.executor(pool)
        for _ in range(2):
            pool.submit(gate.wait_at_gate)
        assert wait_until(lambda: seen)
        gate.event.set()
    names = [frame.qualname for frame in seen[0].workers[0].frames]
    assert ("Gate.wait_at_gate" in names) == (capture == "gil")


def test_each_time_it_gets_full(stock):
    """Reported anew, also where the alarm goes off while it is set."""
    seen = []
    with ThreadPoolExecutor(1) as pool, watched(stock, threshold=0.001) as watch:
        executor = watch.executor(pool)
        watch.add_saturation_callback(seen.append)
        for number in range(1, 31):
            gate = Gate()
            calls = [pool.submit(gate.wait_at_gate) for _ in range(2)]
            assert wait_until(lambda wanted=number: len(seen) >= wanted)
            gate.event.set()
            assert all(call.result() is None for call in calls)
    assert len(seen) >= 30
    assert executor.state().submitted == 60


def test_nothing_wakes_while_every_call_has_a_worker(stock, gate):
    with ThreadPoolExecutor(4) as pool, watched(stock, threshold=0.01) as watch:
        executor = watch.executor(pool)
        for _ in range(4):
            pool.submit(gate.wait_at_gate)
        gate.until(4)
        assert counts(executor) == (4, 4, 0)
        assert registry().alarms.wait_ns() is None
        last = pool.submit(int)
        assert registry().alarms.wait_ns() is not None
        gate.event.set()
        last.result()
        assert wait_until(lambda: registry().alarms.wait_ns() is None)
        assert counts(executor)[1:] == (0, 0)


def test_callbacks_may_raise_and_go(stock, gate):
    seen = []

    def fails(_):
        raise ZeroDivisionError

    with ThreadPoolExecutor(1) as pool, watched(stock, threshold=0.01) as watch:
        watch.executor(pool)
        watch.add_saturation_callback(fails)
        watch.add_saturation_callback(seen.append)
        watch.add_saturation_callback(seen.append)
        assert watch.remove_saturation_callback(seen.append) == 2
        assert watch.remove_saturation_callback(seen.append) == 0
        watch.add_saturation_callback(seen.append)
        for _ in range(2):
            pool.submit(gate.wait_at_gate)
        assert wait_until(lambda: seen)
        assert watch.stats()["callback_errors"] >= 1
        gate.event.set()
    with pytest.raises(TypeError, match="callback must be a callable"):
        watch.add_saturation_callback(3)


# --- which there are ---


def test_names(stock):
    with (
        ThreadPoolExecutor(1, "io") as first,
        ThreadPoolExecutor(1, "io") as second,
        ThreadPoolExecutor(1) as third,
        watched(stock) as watch,
    ):
        executors = [watch.executor(pool) for pool in (first, second, third)]
        assert [executor.name for executor in executors][:2] == ["io", "io-2"]
        assert watch.executors == (watch.executor(), *executors)
        assert watch.executor(first) is executors[0]
        assert watch.executor(first, name="disk") is executors[0]
        assert executors[0].name == executors[0].state().name == "disk"
        for taken in ("disk", "default"):
            with pytest.raises(ValueError, match=f"name must be one that no other .* not '{taken}'"):
                watch.executor(second, name=taken)
        with pytest.raises(ValueError, match="name must be"):
            watch.executor(ThreadPoolExecutor(1), name="disk")
        assert "disk" in repr(executors[0])


@pytest.mark.parametrize("name", ["", 3, b"io"])
def test_bad_names(stock, name):
    with (
        watched(stock) as watch,
        ThreadPoolExecutor(1) as pool,
        pytest.raises(TypeError, match=f"name must be a str .*, not {name!r}"),
    ):
        watch.executor(pool, name=name)


@pytest.mark.parametrize("pool", [3, "io", ThreadPoolExecutor, Future()])
def test_what_is_no_thread_pool(stock, pool):
    with watched(stock) as watch, pytest.raises(TypeError) as caught:
        watch.executor(pool)
    expected = f"pool must be a concurrent.futures.ThreadPoolExecutor or None, not {pool!r}"
    assert str(caught.value) == expected


def test_processes_are_refused_and_why(stock):
    with (
        ProcessPoolExecutor(1) as pool,
        watched(stock) as watch,
        pytest.raises(TypeError, match="its workers are other processes"),
    ):
        watch.executor(pool)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="interpreter pools are new in CPython 3.14")
def test_interpreters_are_threads(stock):
    from concurrent.futures import InterpreterPoolExecutor

    seen = []
    with InterpreterPoolExecutor(1) as pool, watched(stock, threshold=0.01) as watch:
        executor = watch.executor(pool)
        watch.add_saturation_callback(seen.append)
        calls = [pool.submit(time.sleep, 0.2) for _ in range(2)]
        assert wait_until(lambda: seen)
        assert [call.result() for call in calls] == [None, None]
        assert (executor.state().submitted, executor.state().completed) == (2, 2)
    assert counts(executor) == (1, 0, 0)
    assert len(seen[0].workers) == 1
