"""The same scenarios with every pulse, and what the exact ones and the heartbeat say of the same work."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kinds import KINDS, kind_fixture
from scenario import BLOCK, THRESHOLD, block, culprits, new_loop, of_the_program, pulse_of, quiet, run_watched

import loopwatch
from loopwatch import _core

ERROR = {"turn": 0.01, "wrapped": 0.01, "uv": 0.01, "heartbeat": 0.02}
"""Seconds. A heartbeat cannot know how much of its tick (12 ms) was gone when the block began."""
BUSY_MACHINE = 0.2
"""The block's own clock and ours may be apart by what runs between them."""


kind = kind_fixture(*KINDS)


Main = Callable[[], Coroutine[Any, Any, Any]]


def watched(kind: str, main: Main, **options: Any) -> loopwatch.Watch:
    watch = run_watched(kind, main, **options)
    assert watch.pulse == pulse_of(kind)
    return watch


def test_duration(kind: str) -> None:
    truth: list[float] = []

    async def main() -> None:
        for _ in range(5):
            await asyncio.sleep(0.03)
            begin = time.monotonic()
            block()
            truth.append(time.monotonic() - begin)
        await asyncio.sleep(0.03)

    watch = watched(kind, main)
    assert culprits(watch.stalls) == ["block"] * 5
    stalls = of_the_program(watch.stalls)
    errors = sorted(abs(stall.duration - true) for stall, true in zip(stalls, truth, strict=True))
    assert errors[2] < ERROR[kind], "the median"
    assert errors[-1] < BUSY_MACHINE


def test_after_a_hundred_thousand_short_turns(kind: str) -> None:
    """The watchdog looks at any moment of a turn, between two stamps too, and never goes to sleep beside a loop
    that is busy. Without a long wait nothing would wake it."""

    async def main() -> None:
        for _ in range(2):
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                await asyncio.sleep(0)
            block()

    stalls = watched(kind, main).stalls
    assert culprits(stalls) == ["block", "block"]
    assert all(stall.samples[0].offset < THRESHOLD for stall in stalls), "seen before they were stalls"


def test_short_of_the_threshold(kind: str) -> None:
    async def main() -> None:
        for _ in range(10):
            block(0.1)
            await asyncio.sleep(0.01)

    assert watched(kind, main, threshold=0.4).stalls == ()


def test_many_short_callbacks_in_one_turn(kind: str) -> None:
    """No callback is long; the turn is."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.02)
        for _ in range(40):
            loop.call_soon(time.sleep, 0.005)
        await asyncio.sleep(0.02)

    (stall,) = watched(kind, main).stalls
    assert stall.duration > 0.19


def test_block_in_each_kind_of_callback(kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Queue[int] = asyncio.Queue()

        def here(n: int) -> None:
            block(0.15)
            done.put_nowait(n)

        loop.call_soon(here, 1)
        await done.get()
        await asyncio.sleep(0.03)
        loop.call_later(0.05, here, 2)
        await done.get()
        await asyncio.sleep(0.03)
        await asyncio.to_thread(loop.call_soon_threadsafe, here, 3)
        await done.get()
        await asyncio.sleep(0.03)
        loop.add_signal_handler(signal.SIGUSR1, here, 4)
        signal.raise_signal(signal.SIGUSR1)
        await done.get()
        await asyncio.sleep(0.03)
        loop.remove_signal_handler(signal.SIGUSR1)

    assert culprits(watched(kind, main).stalls) == ["block"] * 4


def test_block_behind_an_event_that_ends_the_run(kind: str) -> None:
    """The last callback of a run: nothing of the loop runs after it."""

    async def main() -> None:
        await asyncio.sleep(0.02)
        block()

    assert culprits(watched(kind, main).stalls) == ["block"]


def test_exception_out_of_a_run(kind: str) -> None:
    async def main() -> None:
        await asyncio.sleep(0.02)
        block()
        raise LookupError

    async def wait() -> None:
        with pytest.raises(LookupError):
            await main()

    loop = new_loop(kind)
    watch = loopwatch.install(loop, **quiet(pulse=pulse_of(kind)))
    with pytest.raises(LookupError):
        loop.run_until_complete(main())
    time.sleep(BLOCK)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(interrupted())
    time.sleep(BLOCK)
    loop.run_until_complete(wait())
    loop.close()
    assert culprits(watch.stalls) == ["block", "block"]


async def interrupted() -> None:
    await asyncio.sleep(0.02)
    raise KeyboardInterrupt


def test_overdue_wait(kind: str) -> None:
    """A Python signal handler inside the wait is busy time, though the loop looks as if it waited."""

    def handler(*_: object) -> None:
        block(0.3)

    before = signal.signal(signal.SIGALRM, handler)

    async def main() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        await asyncio.sleep(0.1)
        await asyncio.sleep(0.02)

    try:
        watch = watched(kind, main)
    finally:
        signal.signal(signal.SIGALRM, before)
    if kind == "uv":  # uvloop runs Python's signal handlers in a callback of its own
        assert culprits(watch.stalls) == ["block"]
    else:
        assert [name for name in culprits(watch.stalls) if name == "block"] == ["block"]
        assert watch.stalls[0].duration > 0.15


def test_ongoing_and_current(kind: str) -> None:
    seen: list[loopwatch.Stall] = []
    current: list[loopwatch.Stall | None] = []

    async def main() -> None:
        await asyncio.sleep(0.02)
        looking = asyncio.get_running_loop().run_in_executor(None, look)
        block(0.5)
        await looking

    def look() -> None:
        time.sleep(0.25)
        current.append(watch.current)

    loop = new_loop(kind)
    watch = loopwatch.install(loop, **quiet(pulse=pulse_of(kind), hang_after=0.1, on_stall=seen.append))
    loop.run_until_complete(main())
    assert watch.current is None
    loop.close()
    (stall,) = current
    assert stall is not None
    assert stall.ongoing
    assert stall.culprit is not None
    assert stall.culprit.qualname == "block"
    told = [found for found in seen if found.id == stall.id]  # a busy machine makes some of its own
    assert [found.ongoing for found in told] == [True, False]
    assert told[0].duration < stall.duration < told[1].duration


def test_nothing_is_current_after_the_run(kind: str) -> None:
    """Also where the watchdog was taking a sample of the last long turn when it was asked: one run in ten."""

    async def main() -> None:
        looking = asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.02)
        block(0.05)
        await looking

    loop = new_loop(kind)
    watch = loopwatch.install(loop, **quiet(pulse=pulse_of(kind), threshold=0.02, hang_after=0.03))
    current = []
    for _ in range(40):
        loop.run_until_complete(main())
        current.append(watch.current)
    watch.flush()
    ended = len([stall for stall in watch.stalls if stall.culprit and stall.culprit.qualname == "block"])
    loop.close()
    assert current == [None] * 40
    assert ended >= 35, "the machine may take the CPU away in some of them, and then it is to blame"


def test_loop_that_is_busy_but_never_late(kind: str) -> None:
    turns = 0

    async def main() -> None:
        nonlocal turns
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            await asyncio.sleep(0)
            turns += 1

    watch = watched(kind, main, threshold=0.3)
    assert watch.stalls == ()
    assert turns > 1000


# --- they agree ---


def work(seed: int) -> list[tuple[float, float]]:
    """(idle, busy) stretches."""
    draw = random.Random(seed)
    return [(draw.uniform(0.01, 0.02), draw.choice((0.002, 0.02, 0.15, 0.2))) for _ in range(12)]


def stalls_of(kind: str, seed: int) -> list[float]:
    async def main() -> None:
        for idle, busy in work(seed):
            await asyncio.sleep(idle)
            block(busy)
        await asyncio.sleep(0.02)

    return [stall.duration for stall in watched(kind, main).stalls]


@pytest.mark.parametrize("exact", ["turn", "uv"])
def test_exact_pulses_agree_with_the_heartbeat(exact: str) -> None:
    if exact == "uv":
        pytest.importorskip("uvloop")
    expected = sum(busy >= THRESHOLD for _, busy in work(1))
    exactly, by_heart = stalls_of(exact, 1), stalls_of("heartbeat", 1)
    assert len(exactly) == len(by_heart) == expected
    ratio = sum(exactly) / sum(by_heart)
    # A heartbeat's error is half a tick a stall, 6 ms of 150; the rest is for two runs on a busy machine.
    assert 0.85 < ratio < 1.2


def test_lag_agrees_with_the_work(kind: str) -> None:
    """Busy time, by turns; what a pulse cannot tell is None."""

    async def main() -> None:
        for _ in range(20):
            await asyncio.sleep(0.01)
            block(0.01)

    lag = watched(kind, main).lag
    assert lag.max >= 0.0099
    if kind == "heartbeat":
        assert lag.idle is None
        return
    assert lag.turns >= 20
    assert 0.2 <= lag.busy < 0.6
    assert lag.utilization is not None
    if kind != "uv" or lag.idle is not None:
        assert 0.3 < lag.utilization < 0.85
    assert (lag.gil_wait is not None) == (kind == "turn" and not loopwatch._core.PORTABLE)


def test_the_portable_build_wraps_an_epoll_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no TurnSelect: install() on a stock loop was an AttributeError there."""
    monkeypatch.setattr(_core, "PORTABLE", True)
    monkeypatch.delattr(_core, "TurnSelect", raising=False)
    loop = asyncio.new_event_loop()
    with loopwatch.install(loop, log=False, dump_to=False) as watch:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert watch.pulse == "turn"
    assert watch.stats()["turns"] > 0
