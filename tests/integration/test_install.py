"""What install() accepts, what it puts on a loop, and that nothing of it stays. When: test_install_moments.py."""

import asyncio
import gc
import selectors
import threading
import time
import weakref

import pytest
from scenario import in_threads

import loopwatch
from loopwatch._install import put
from loopwatch._options import make_settings

BLOCK = 0.3
QUIET = {"log": False, "threshold": 0.1}


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def block():
    await asyncio.sleep(0)
    time.sleep(BLOCK)
    await asyncio.sleep(0)


# --- arguments ---


def test_none_without_a_running_loop():
    with pytest.raises(RuntimeError, match="no event loop runs in this thread"):
        loopwatch.install()
    loopwatch.uninstall()


@pytest.mark.parametrize("thing", [3, "loop", asyncio, object()])
def test_not_a_loop(thing):
    with pytest.raises(TypeError, match="AbstractEventLoop"):
        loopwatch.install(thing)
    with pytest.raises(TypeError, match="AbstractEventLoop"):
        loopwatch.uninstall(thing)


def test_a_bad_option_leaves_the_loop_as_it_was(loop, tmp_path):
    before = dict(vars(loop))
    for options, error in [
        ({"threshold": 0}, ValueError),
        ({"pulse": "uv"}, ValueError),
        ({"dump_to": tmp_path / "no" / "such"}, OSError),
    ]:
        with pytest.raises(error):
            loopwatch.install(loop, **options)
    assert vars(loop) == before


def test_second_explicit_install_names_uninstall(loop):
    with loopwatch.install(loop, **QUIET):
        with pytest.raises(RuntimeError, match=r"uninstall"):
            loopwatch.install(loop)
        assert {"select", "close"} <= vars(loop._selector).keys()
    loopwatch.install(loop, **QUIET).uninstall()


def test_explicit_takes_over_automatic(loop):
    settings = make_settings("install", QUIET)
    automatic = put(loop, settings, automatic=True)
    assert put(loop, settings, automatic=True) is automatic
    explicit = loopwatch.install(loop, **QUIET)
    assert not automatic.installed
    assert explicit.installed
    assert put(loop, settings, automatic=True) is explicit
    explicit.uninstall()


# --- what is put on and taken off ---


def attributes(loop):
    return dict(vars(loop)), dict(vars(loop._selector))


def test_nothing_remains(loop):
    loop_before, selector_before = attributes(loop)
    threads = set(threading.enumerate())
    watch = loopwatch.install(loop, **QUIET)
    assert "select" in vars(loop._selector)
    watch.uninstall()
    assert attributes(loop) == (loop_before, selector_before)
    assert set(threading.enumerate()) == threads
    watch.uninstall()
    loopwatch.uninstall(loop)
    assert not watch.installed


def test_closing_uninstalls(loop):
    watch = loopwatch.install(loop, **QUIET)
    loop.close()
    assert not watch.installed
    assert "close" not in vars(loop)
    loop.close()
    watch.uninstall()


def test_a_running_loop_refuses_to_close_and_stays_watched(loop):
    watch = loopwatch.install(loop, **QUIET)

    async def close():
        with pytest.raises(RuntimeError, match="running"):
            loop.close()

    loop.run_until_complete(close())
    assert watch.installed
    loop.run_until_complete(block())
    watch.uninstall()
    assert len(watch.stalls) == 1


def test_what_others_put_on_top_stays(loop):
    watch = loopwatch.install(loop, **QUIET)
    ours, ours_close = loop.run_forever, loop.close
    calls = []
    loop.run_forever = lambda: (calls.append("run"), ours())
    loop.close = lambda: (calls.append("close"), ours_close())
    theirs = loop.run_forever
    watch.uninstall()
    assert loop.run_forever is theirs
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert calls == ["run", "close"]
    assert loop.is_closed()
    del loop.run_forever, loop.close


def test_a_select_of_others_is_kept_and_called(loop):
    selector, calls = loop._selector, []
    stock = selector.select

    def theirs(timeout=None):
        calls.append(timeout)
        return stock(timeout)

    selector.select = theirs
    with loopwatch.install(loop, **QUIET) as watch:
        assert watch.pulse == "turn"
        loop.run_until_complete(block())
    assert calls
    assert len(watch.stalls) == 1
    assert selector.select is theirs
    del selector.select


@pytest.mark.parametrize("pulse", ["auto", "turn", "heartbeat"])
def test_pulses_on_a_stock_loop(loop, pulse):
    with loopwatch.install(loop, pulse=pulse, **QUIET) as watch:
        loop.run_until_complete(block())
    assert watch.pulse == ("heartbeat" if pulse == "heartbeat" else "turn")
    (stall,) = watch.stalls
    assert stall.duration == pytest.approx(BLOCK, rel=0.5)
    assert stall.culprit.qualname == "block"


def test_another_selector():
    loop = asyncio.SelectorEventLoop(selectors.PollSelector())
    with loopwatch.install(loop, **QUIET) as watch:
        loop.run_until_complete(block())
    assert watch.pulse == "turn"
    assert watch.lag.gil_wait is None
    assert len(watch.stalls) == 1
    loop.close()


class Stubborn(asyncio.SelectorEventLoop):
    """Takes no attributes from others."""

    def __setattr__(self, name, value):
        if name in ("close", "run_forever", "_loopwatch"):
            raise AttributeError(name)
        super().__setattr__(name, value)


def test_a_loop_that_refuses_attributes_gets_a_heartbeat():
    async def main():
        await asyncio.sleep(0.05)  # without a hook on run_forever, only what lies between two beats is seen
        await block()
        await asyncio.sleep(0.1)

    loop = Stubborn()
    with loopwatch.install(loop, **QUIET) as watch:
        loop.run_until_complete(main())
    assert watch.pulse == "heartbeat"
    assert len(watch.stalls) == 1
    with pytest.raises(ValueError, match="turn"):
        loopwatch.install(loop, pulse="turn")
    loop.close()


# --- life ---


def test_dropping_the_watch_changes_nothing(loop):
    seen = []
    loopwatch.install(loop, on_stall=seen.append, **QUIET)
    gc.collect()
    loop.run_until_complete(block())
    loopwatch.uninstall(loop)
    assert len(seen) == 1


def test_a_watch_does_not_keep_its_loop_alive():
    loop = asyncio.new_event_loop()
    watch = loopwatch.install(loop, **QUIET)
    loop.run_until_complete(asyncio.sleep(0))
    reference = weakref.ref(loop)
    del loop
    with pytest.warns(ResourceWarning):
        gc.collect()
    assert reference() is None
    assert watch.loop is None
    deadline = time.monotonic() + 5
    while watch.installed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not watch.installed
    watch.uninstall()


def test_installed_inside_a_callback_the_rest_is_watched():
    async def main():
        watch = loopwatch.install(**QUIET)
        time.sleep(BLOCK)
        await asyncio.sleep(0)
        return watch

    watch = asyncio.run(main())
    (stall,) = watch.stalls
    assert stall.duration == pytest.approx(BLOCK, rel=0.5)


def test_install_last_and_return():
    async def main():
        watch = loopwatch.install(**QUIET)
        time.sleep(BLOCK)
        return watch

    assert len(asyncio.run(main()).stalls) == 1


def test_from_another_thread_on_a_loop_that_runs_and_waits():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="service")
    thread.start()
    while not loop.is_running():
        time.sleep(0.001)
    watch = loopwatch.install(loop, **QUIET)
    asyncio.run_coroutine_threadsafe(block(), loop).result(10)
    assert watch.flush()
    (stall,) = watch.stalls
    assert stall.thread == "service"
    watch.uninstall()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.mark.parametrize("pulse", ["turn", "heartbeat"])
def test_uninstall_in_a_stall_callback(loop, pulse):
    seen = []

    def once(stall):
        seen.append(stall)
        loopwatch.uninstall(loop)

    watch = loopwatch.install(loop, on_stall=once, pulse=pulse, **QUIET)
    loop.run_until_complete(block())
    deadline = time.monotonic() + 5
    while watch.installed and time.monotonic() < deadline:
        time.sleep(0.01)
    loop.run_until_complete(block())
    time.sleep(0.1)
    assert len(seen) == 1
    assert not watch.installed


def test_uninstall_in_a_callback_of_the_loop(loop):
    watch = loopwatch.install(loop, **QUIET)

    async def main():
        time.sleep(BLOCK)
        loopwatch.uninstall()
        await asyncio.sleep(0)
        time.sleep(BLOCK)

    loop.run_until_complete(main())
    (stall,) = watch.stalls
    assert stall.duration < 1.9 * BLOCK, "the stall ended with the uninstall"


def test_many_threads_install_and_uninstall():
    def work():
        for _ in range(10):
            loop = asyncio.new_event_loop()
            watch = loopwatch.install(loop, **QUIET)
            loop.run_until_complete(asyncio.sleep(0))
            watch.uninstall()
            loop.close()

    assert not in_threads(4, work)


def test_two_threads_race_for_one_loop(loop):
    outcomes = []
    barrier = threading.Barrier(4)

    def work():
        barrier.wait(10)
        try:
            outcomes.append(loopwatch.install(loop, **QUIET))
        except RuntimeError as problem:
            outcomes.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    watches = [outcome for outcome in outcomes if isinstance(outcome, loopwatch.Watch)]
    assert len(watches) == 1
    assert len(outcomes) == 4
    watches[0].uninstall()
