"""Uninstalling: from anywhere, at any time, and nothing stays."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import KINDS, kind_fixture
from scenario import (
    BLOCK,
    block,
    blocked_once,
    culprits,
    left_on,
    new_loop,
    no_thread_of_ours,
    of_the_program,
    pulse_of,
    quiet,
)

import loopwatch
from loopwatch import _core

kind = kind_fixture(*KINDS)


@pytest.fixture
def loop(kind: str) -> Iterator[asyncio.AbstractEventLoop]:
    loop = new_loop(kind)
    yield loop
    if not loop.is_closed():
        loop.close()


@pytest.fixture
def watch(kind: str, loop: asyncio.AbstractEventLoop) -> loopwatch.Watch:
    return loopwatch.install(loop, **quiet(pulse=pulse_of(kind)))


def gone(loop: asyncio.AbstractEventLoop) -> bool:
    return left_on(loop) == [] and no_thread_of_ours()


def still_works(loop: asyncio.AbstractEventLoop) -> bool:
    return loop.run_until_complete(asyncio.sleep(0.01, True))


# --- where from ---


def test_before_the_loop_ever_ran(loop: Any, watch: loopwatch.Watch) -> None:
    watch.uninstall()
    assert gone(loop)
    assert still_works(loop)


def test_between_two_runs(loop: Any, watch: loopwatch.Watch) -> None:
    loop.run_until_complete(blocked_once())
    watch.uninstall()
    assert gone(loop)
    assert still_works(loop)
    assert culprits(watch.stalls) == ["block"], "waited for"


def test_from_a_callback_of_the_loop(loop: Any, watch: loopwatch.Watch) -> None:
    async def main() -> bool:
        await asyncio.sleep(0.02)
        watch.uninstall()
        here = gone(loop)
        await asyncio.sleep(0.05)
        return here

    assert loop.run_until_complete(main())
    assert gone(loop)
    assert still_works(loop)


def test_from_the_blocked_callback_itself(loop: Any, watch: loopwatch.Watch) -> None:
    """The stall so far has ended as far as the watch is concerned, and is delivered."""

    async def main() -> None:
        await asyncio.sleep(0.02)
        block()
        watch.uninstall()
        block()

    loop.run_until_complete(main())
    assert culprits(watch.stalls) == ["block"]
    # A heartbeat sees the time since it was due, up to one tick less.
    assert 0.9 * BLOCK <= watch.stalls[0].duration < 2 * BLOCK
    assert gone(loop)


def elsewhere(call: Callable[[], object], after: float) -> threading.Thread:
    def run() -> None:
        time.sleep(after)
        call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_from_another_thread_while_it_runs(loop: Any, watch: loopwatch.Watch, busy: bool) -> None:
    async def main() -> None:
        thread = elsewhere(watch.uninstall, 0.05)
        while thread.is_alive():
            await asyncio.sleep(0 if busy else 10 if not thread.is_alive() else 0.3)

    loop.run_until_complete(main())
    assert gone(loop)
    assert still_works(loop)
    verdicts = {stall.verdict for stall in of_the_program(watch.stalls)}
    assert verdicts <= {loopwatch.Verdict.LOCK}, "the start of a thread, for which a busy machine has no CPU"


def test_from_another_thread_while_it_is_stalled(loop: Any, watch: loopwatch.Watch) -> None:
    seconds: list[float] = []

    def uninstall() -> None:
        begin = time.monotonic()
        watch.uninstall()
        seconds.append(time.monotonic() - begin)

    async def main() -> None:
        await asyncio.sleep(0.02)
        thread = elsewhere(uninstall, 0.2)
        block(0.5)
        await asyncio.sleep(0.05)
        thread.join()

    loop.run_until_complete(main())
    assert culprits(watch.stalls) == ["block"]
    assert 0.1 <= watch.stalls[0].duration < 0.5
    assert seconds[0] < 3
    assert gone(loop)
    assert still_works(loop)


def test_from_on_stall(kind: str, loop: Any) -> None:
    watches: list[loopwatch.Watch] = []

    def on_stall(stall: loopwatch.Stall) -> None:
        if culprits([stall]) == ["block"]:  # not before it, for what a busy machine did
            watches[0].uninstall()

    watches.append(loopwatch.install(loop, **quiet(pulse=pulse_of(kind), on_stall=on_stall)))
    loop.run_until_complete(blocked_once())
    loop.run_until_complete(asyncio.sleep(0.1))
    assert gone(loop)
    assert culprits(watches[0].stalls) == ["block"]
    assert watches[0].stats()["callback_errors"] == 0


def test_after_the_loop_closed(loop: Any, watch: loopwatch.Watch) -> None:
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert gone(loop)
    watch.uninstall()
    loopwatch.uninstall(loop)
    assert gone(loop)


def test_twice_and_by_both_names(loop: Any, watch: loopwatch.Watch) -> None:
    watch.uninstall()
    watch.uninstall()
    loopwatch.uninstall(loop)
    assert gone(loop)


def test_by_many_threads_at_once(loop: Any, watch: loopwatch.Watch) -> None:
    async def main() -> None:
        await asyncio.sleep(0.02)
        threads = [elsewhere(watch.uninstall, 0.02) for _ in range(8)]
        while any(thread.is_alive() for thread in threads):
            await asyncio.sleep(0.01)

    loop.run_until_complete(main())
    assert gone(loop)


# --- what was never installed ---


def test_loop_that_is_not_watched() -> None:
    loop = asyncio.SelectorEventLoop()
    loopwatch.uninstall(loop)
    loop.close()
    loopwatch.uninstall(loop)


def test_none_without_a_running_loop() -> None:
    loopwatch.uninstall()
    loopwatch.uninstall(None)


@pytest.mark.parametrize("value", ["loop", 1, object()])
def test_not_a_loop(value: Any) -> None:
    with pytest.raises(TypeError, match="AbstractEventLoop"):
        loopwatch.uninstall(value)


# --- ends that are not an uninstall ---


def test_watch_is_a_context_manager(kind: str, loop: Any) -> None:
    with loopwatch.install(loop, **quiet(pulse=pulse_of(kind))) as watch:
        loop.run_until_complete(blocked_once())
    assert gone(loop)
    assert culprits(watch.stalls) == ["block"]


def test_context_manager_lets_exceptions_through(kind: str, loop: Any) -> None:
    with pytest.raises(LookupError), loopwatch.install(loop, **quiet(pulse=pulse_of(kind))):
        raise LookupError
    assert gone(loop)


def test_loop_closed_without_uninstall(loop: Any, watch: loopwatch.Watch) -> None:
    loop.run_until_complete(blocked_once())
    loop.close()
    assert gone(loop)
    assert culprits(watch.stalls) == ["block"]
    assert watch.current is None
    assert watch.flush()


def test_close_is_refused_while_it_runs_and_it_stays_watched(loop: Any, watch: loopwatch.Watch) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError):
            loop.close()
        await asyncio.sleep(0.02)
        block()

    loop.run_until_complete(main())
    watch.uninstall()
    assert culprits(watch.stalls) == ["block"]


@pytest.mark.parametrize("kind", ["turn", "wrapped", "heartbeat"], indirect=True)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_loop_dropped_without_close(kind: str) -> None:
    """It is collected as ever: the watch does not keep it, nor anything of it."""
    loop = new_loop(kind)
    watch = loopwatch.install(loop, **quiet(pulse=pulse_of(kind)))
    loop.run_until_complete(asyncio.sleep(0.01))
    find = weakref.ref(loop)
    del loop
    gc.collect()
    assert find() is None
    assert watch.loop is None
    assert no_thread_of_ours()
    watch.uninstall()


def test_dropped_watch_changes_nothing(kind: str, loop: Any) -> None:
    seen: list[loopwatch.Stall] = []
    loopwatch.install(loop, **quiet(pulse=pulse_of(kind), on_stall=seen.append))
    gc.collect()
    loop.run_until_complete(blocked_once())
    loopwatch.uninstall(loop)
    assert culprits(seen) == ["block"]
    assert gone(loop)


# --- and again ---


def test_second_install_names_uninstall(loop: Any, watch: loopwatch.Watch) -> None:
    with pytest.raises(RuntimeError, match="uninstall"):
        loopwatch.install(loop)
    loop.run_until_complete(blocked_once())
    watch.uninstall()
    assert culprits(watch.stalls) == ["block"], "the first is as it was"


def test_install_again_after_uninstall(kind: str, loop: Any, watch: loopwatch.Watch) -> None:
    loop.run_until_complete(blocked_once())
    watch.uninstall()
    with loopwatch.install(loop, **quiet(pulse=pulse_of(kind))) as again:
        loop.run_until_complete(blocked_once())
    assert culprits(again.stalls) == ["block"]
    assert len(watch.stalls) == 1, "the first has its own"
    assert gone(loop)


def test_what_others_put_there_stays(loop: Any, kind: str) -> None:
    """Somebody wraps our run_forever: an uninstall does not tear theirs off."""
    watch = loopwatch.install(loop, **quiet(pulse=pulse_of(kind)))
    ours = loop.run_forever
    loop.run_forever = theirs = lambda: ours()
    watch.uninstall()
    assert loop.run_forever is theirs
    assert still_works(loop)
    del loop.run_forever
    assert gone(loop)


@pytest.mark.skipif(_core.PORTABLE or not Path("/proc/self/task").exists(), reason="Linux only")
def test_the_kernel_counts_no_thread_of_ours_any_more() -> None:
    """A joined thread is in /proc for some milliseconds: its descriptors are being closed. And the reporter may
    stop itself just before uninstall() would. Either was seen in a third of the uninstalls and more."""
    loop = new_loop("turn")
    tasks = Path("/proc/self/task")
    try:
        before = set(tasks.iterdir())
        for _ in range(50):
            loopwatch.install(loop, **quiet()).uninstall()
            assert set(tasks.iterdir()) <= before
    finally:
        loop.close()
