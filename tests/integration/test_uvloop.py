"""The same promises on uvloop."""

import asyncio
import threading
import time

import pytest

import loopwatch

uvloop = pytest.importorskip("uvloop")

BLOCK = 0.3
QUIET = {"log": False, "threshold": 0.1}


async def block():
    await asyncio.sleep(0.01)
    time.sleep(BLOCK)
    await asyncio.sleep(0.1)


@pytest.mark.parametrize("pulse", ["auto", "uv", "heartbeat"])
def test_pulses(pulse):
    loop = uvloop.new_event_loop()
    with loopwatch.install(loop, pulse=pulse, **QUIET) as watch:
        loop.run_until_complete(block())
    assert watch.pulse == ("heartbeat" if pulse == "heartbeat" else "uv")
    (stall,) = watch.stalls
    assert stall.duration == pytest.approx(BLOCK, rel=0.5)
    assert stall.culprit.qualname == "block"
    assert not {"close", "run_forever", "_loopwatch"} & vars(loop).keys()
    loop.close()


def test_turn_is_not_for_uvloop():
    loop = uvloop.new_event_loop()
    with pytest.raises(ValueError, match="turn"):
        loopwatch.install(loop, pulse="turn")
    loop.close()


def test_closed_while_watched():
    loop = uvloop.new_event_loop()
    watch = loopwatch.install(loop, **QUIET)
    loop.run_until_complete(block())
    loop.close()
    assert not watch.installed
    assert len(watch.stalls) == 1
    watch.uninstall()


def test_run():
    seen = []
    loopwatch.run(block(), loop_factory=uvloop.new_event_loop, on_stall=seen.append, **QUIET)
    assert len(seen) == 1


def test_installed_and_uninstalled_from_another_thread():
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="service")
    thread.start()
    while not loop.is_running():
        time.sleep(0.001)
    watch = loopwatch.install(loop, **QUIET)
    asyncio.run_coroutine_threadsafe(block(), loop).result(10)
    assert watch.flush()
    watch.uninstall()
    assert len(watch.stalls) == 1
    assert not {"close", "run_forever", "_loopwatch"} & vars(loop).keys()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_uninstalled_from_another_thread_while_it_is_stuck():
    """The pulse cannot be stopped then; it is when the loop comes back, and before the loop closes."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    watch = loopwatch.install(loop, **QUIET)
    loop.call_soon_threadsafe(time.sleep, 3)
    time.sleep(0.1)
    began = time.monotonic()
    watch.uninstall()
    assert time.monotonic() - began < 10, "2 s, and room for a busy machine"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_closed_while_another_thread_uninstalls(caplog):
    """The handle is closed before libuv's loop is, whoever comes first."""
    loop = uvloop.new_event_loop()
    watch = loopwatch.install(loop, **QUIET)
    loop.run_until_complete(asyncio.sleep(0.01))
    hooks = loop.close.__self__
    began, goes_on = threading.Event(), threading.Event()

    class Slow:
        """A pulse at whose end the other thread has the GIL for long."""

        def __init__(self, beat):
            self.beat = beat

        def stop(self):
            if threading.current_thread() is not threading.main_thread():
                began.set()
                assert goes_on.wait(20)
            return self.beat.stop()

    hooks._beat = Slow(hooks._beat)
    thread = threading.Thread(target=watch.uninstall)
    thread.start()
    assert began.wait(20)
    loop.close()
    goes_on.set()
    thread.join(20)
    assert not caplog.records, "uvloop tells of a handle that is not its own"


def test_a_run_that_ends_amid_hurried_turns_ends_after_it_began():
    """Turns of a microsecond have no stamps of their own; how long they took together is a guess, which put
    the begin of the last one behind the end of the run in a quarter of such runs."""
    for length in range(80):
        loop, turns = uvloop.new_event_loop(), 60 + length % 7

        def turn(count=0, loop=loop, turns=turns):
            if count < 60:
                until = time.perf_counter() + 4e-6
                while time.perf_counter() < until:
                    pass
            if count == turns:
                loop.stop()
            else:
                loop.call_soon(turn, count + 1)

        with loopwatch.install(loop, **QUIET) as watch:
            loop.call_soon(turn)
            loop.run_forever()
        loop.close()
        assert all(stall.duration > 0 for stall in watch.stalls)
        assert watch.lag.max < 3600
        assert 0 <= watch.lag.idle < 3600
