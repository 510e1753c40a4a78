"""What a Watch tells and does, while its loop runs."""

import asyncio
import logging
import os
import threading
import time
from pathlib import Path

import pytest
from programs import full_build

import loopwatch

BLOCK = 0.3
QUIET = {"log": False, "threshold": 0.1}


def block():
    time.sleep(BLOCK)


async def blocked():
    await asyncio.sleep(0)
    block()
    await asyncio.sleep(0)


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_threshold_can_be_set_later(loop):
    with loopwatch.install(loop, log=False, threshold=60) as watch:
        assert watch.threshold == 60
        loop.run_until_complete(blocked())
        watch.threshold = 0.1
        loop.run_until_complete(blocked())
        for bad in (0, True, "1", float("nan")):
            with pytest.raises((TypeError, ValueError), match="threshold"):
                watch.threshold = bad
        assert watch.threshold == pytest.approx(0.1)
    assert len(watch.stalls) == 1


def test_current_from_another_thread(loop):
    looked = []

    def look(watch):
        time.sleep(0.4)
        looked.append(watch.current)

    async def main():
        await asyncio.sleep(0)
        time.sleep(0.8)

    with loopwatch.install(loop, **QUIET) as watch:
        thread = threading.Thread(target=look, args=(watch,))
        thread.start()
        loop.run_until_complete(main())
        thread.join()
        assert watch.current is None
    (current,) = looked
    assert current.ongoing
    assert 0.2 < current.duration < 0.8
    assert current.culprit.qualname.endswith(".main")
    assert watch.stalls[0].id == current.id


def test_current_of_the_callers_own_turn(loop):
    async def main():
        block()
        return watch.current

    with loopwatch.install(loop, **QUIET) as watch:
        current = loop.run_until_complete(main())
    assert current.ongoing
    assert current.duration >= BLOCK * 0.9


def test_hang_is_reported_while_it_lasts(loop, caplog):
    seen = []
    with loopwatch.install(loop, on_stall=seen.append, threshold=0.03, hang_after=0.2):
        loop.run_until_complete(asyncio.sleep(0))
        loop.call_soon(time.sleep, 0.6)
        loop.run_until_complete(asyncio.sleep(0.01))
    assert [stall.ongoing for stall in seen] == [True, False]
    assert len({stall.id for stall in seen}) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert [record.stall for record in caplog.records] == seen
    assert caplog.records[1].getMessage() == seen[1].summary


def test_log_goes_where_it_was_told(loop, caplog):
    logger = logging.getLogger("elsewhere")
    with loopwatch.install(loop, threshold=0.1, log=logging.LoggerAdapter(logger, {"service": "x"})):
        loop.run_until_complete(blocked())
    (record,) = caplog.records
    assert (record.name, record.service) == ("elsewhere", "x")
    assert "block" in record.stack_info


def test_flush(loop):
    seen = []
    with loopwatch.install(loop, on_stall=seen.append, **QUIET) as watch:
        loop.run_until_complete(blocked())
        assert watch.flush()
        assert len(seen) == 1

        async def inside():
            with pytest.raises(RuntimeError, match="own thread"):
                watch.flush()

        loop.run_until_complete(inside())
        with pytest.raises(TypeError, match="timeout"):
            watch.flush("1")
    assert watch.flush()


def test_flush_of_a_stuck_sink(loop):
    gate = threading.Event()
    watch = loopwatch.install(loop, on_stall=lambda _: gate.wait(30), **QUIET)
    loop.run_until_complete(blocked())
    assert not watch.flush(0.1)
    gate.set()
    assert watch.flush(5)
    watch.uninstall()


def test_uninstall_does_not_wait_for_a_stuck_sink_for_ever(loop):
    gate = threading.Event()
    watch = loopwatch.install(loop, on_stall=lambda _: gate.wait(30), **QUIET)
    loop.run_until_complete(blocked())
    began = time.monotonic()
    watch.uninstall()
    assert time.monotonic() - began < 10, "2 s, and room for a busy machine"
    seen = []
    with loopwatch.install(loop, on_stall=seen.append, **QUIET):
        loop.run_until_complete(blocked())
    assert len(seen) == 1, "a new reporter serves while the old one is stuck"
    gate.set()


def test_exempt(loop):
    async def main():
        with watch.exempt("start-up"):
            block()
        await asyncio.sleep(0)

    with loopwatch.install(loop, **QUIET) as watch:
        loop.run_until_complete(main())
        loop.run_until_complete(blocked())
    assert len(watch.stalls) == 1
    assert watch.stats()["stalls_exempt"] == 1


def test_exempt_across_an_await_warns(loop):
    async def main():
        with watch.exempt("start-up"):
            await asyncio.sleep(0.01)

    with loopwatch.install(loop, **QUIET) as watch:
        with pytest.warns(RuntimeWarning, match=r"exempt\('start-up'\) was held across an await") as caught:
            loop.run_until_complete(main())
        assert caught[0].filename == __file__
        with watch.exempt("a loop that does not run is never stalled"):
            pass
        with pytest.raises(TypeError, match="reason"):
            watch.exempt(3)


def test_exempt_on_another_thread(loop):
    with loopwatch.install(loop, **QUIET) as watch:

        def enter():
            with watch.exempt("elsewhere"):
                pass

        async def main():
            with pytest.raises(RuntimeError, match="own thread"):
                await asyncio.to_thread(enter)

        loop.run_until_complete(main())


def test_ignore(loop):
    with loopwatch.install(loop, ignore=["*:block"], **QUIET) as watch:
        loop.run_until_complete(blocked())
    assert not watch.stalls
    assert watch.stats()["stalls_ignored"] == 1


def test_callbacks_on_the_reporters_thread(loop):
    threads = []

    def callback(_):
        threads.append(threading.current_thread().name)

    with loopwatch.install(loop, **QUIET) as watch:
        watch.add_stall_callback(callback)
        loop.run_until_complete(blocked())
        assert watch.flush()
        assert watch.remove_stall_callback(callback) == 1
        loop.run_until_complete(blocked())
        with pytest.raises(TypeError, match="callback"):
            watch.add_stall_callback(3)
    assert threads == ["loopwatch-reporter"]


def test_stats_have_the_promised_names(loop):
    with loopwatch.install(loop, **QUIET) as watch:
        loop.run_until_complete(blocked())
        assert watch.flush()
        stats = watch.stats()
    promised = (
        "turns stalls stalls_suppressed stalls_ignored stalls_exempt samples samples_exact samples_moving "
    )
    promised += "records_dropped callback_errors watchdog_wakeups watchdog_cpu_time watchdog_worst_lateness"
    assert set(promised.split()) <= stats.keys()
    assert all(isinstance(value, int | float) for value in stats.values())
    assert stats["stalls"] == 1
    assert stats["samples"] >= 1


def test_lag(loop):
    with loopwatch.install(loop, **QUIET) as watch:
        before = watch.lag
        loop.run_until_complete(blocked())
        lag = watch.lag - before
    assert lag.turns >= 2
    assert lag.max == pytest.approx(BLOCK, rel=0.5)
    assert lag.busy >= BLOCK * 0.9


def test_steps(loop):
    async def main():
        await asyncio.sleep(0)
        with loopwatch.step("tls"):
            block()
        await asyncio.sleep(0)

    with loopwatch.install(loop, **QUIET) as watch:
        loop.run_until_complete(main())
    assert watch.stalls[0].steps["tls"] == pytest.approx(BLOCK, rel=0.5)


@pytest.mark.parametrize("capture", [pytest.param("raw", marks=full_build), "gil", "off"])
def test_capture(loop, capture):
    with loopwatch.install(loop, capture=capture, **QUIET) as watch:
        assert watch.capture == capture
        loop.run_until_complete(blocked())
    (stall,) = watch.stalls
    if capture == "off":
        assert stall.culprit is None
        assert not any(sample.frames for sample in stall.samples)
    else:
        assert stall.culprit.qualname == "block"
        weights = sum(sample.weight for sample in stall.samples)
        assert weights == pytest.approx(stall.duration, abs=0.002)


def test_redact(loop, caplog):
    async def main():
        await asyncio.create_task(blocked(), name="customer 17")

    with loopwatch.install(loop, threshold=0.1, redact=lambda text: "#" * len(text)) as watch:
        loop.run_until_complete(main())
    (stall,) = watch.stalls
    assert set(stall.source.values()) <= {"#" * len(line) for line in stall.source.values()}
    assert "customer" not in caplog.text
    assert "time.sleep(BLOCK)" not in caplog.text


# --- dump_to ---


@full_build
def test_dump_to_a_path(loop, tmp_path):
    path = tmp_path / "dump"
    umask = os.umask(0)
    try:
        watch = loopwatch.install(loop, dump_to=path, **QUIET)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o600
    descriptors = {Path(link).resolve() for link in Path("/proc/self/fd").iterdir()}
    assert path not in descriptors, "the watchdog has its own duplicate"
    watch.uninstall()


def test_dump_to_follows_no_link(loop, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="link"):
        loopwatch.install(loop, dump_to=link)
    assert not (tmp_path / "target").exists()


def test_dump_to_a_pipe_without_a_reader_does_not_wait(loop, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="fifo"):
        loopwatch.install(loop, dump_to=tmp_path / "fifo")


@full_build
def test_a_stuck_log_handler_does_not_keep_the_report(loop, tmp_path):
    """The reporter sits in the handler; the watchdog writes the report of the hang itself."""
    gate = threading.Event()

    class Stuck(logging.Handler):
        def emit(self, _):
            gate.wait(30)

    logger = logging.Logger("stuck")
    logger.addHandler(Stuck())
    path = tmp_path / "dump"
    with loopwatch.install(loop, log=logger, dump_to=path, threshold=0.03, hang_after=0.1):
        loop.run_until_complete(asyncio.sleep(0))
        loop.call_soon(time.sleep, 1.0)
        loop.run_until_complete(asyncio.sleep(0.01))
        written = path.read_text()
        gate.set()
    assert "has not come back" in written
    assert "_run_once" in written


def test_hang_after_follows_a_threshold_that_is_lowered_later(loop):
    reports = []
    with loopwatch.install(loop, log=False, threshold=60, hang_after=0.1, on_stall=reports.append) as watch:
        watch.threshold = 0.05
        loop.run_until_complete(blocked())
    assert [report.ongoing for report in reports] == [True, False]
