"""Heartbeat: beats as long as the loop runs, stops when told, from wherever."""

import asyncio
import gc
import heapq
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hooking import watched

from loopwatch import _testcore as core

MS = 1_000_000
TICK = 0.005


class ToyLoop(asyncio.AbstractEventLoop):
    """As little of a loop as has timers: a heap, and sleeping."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.n = 0
        self.runs = False
        self.closed = False

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        return time.monotonic()

    def is_running(self) -> bool:
        return self.runs

    def is_closed(self) -> bool:
        return self.closed

    def _timer_handle_cancelled(self, handle: object) -> None:
        pass

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self.n += 1
        heapq.heappush(self.timers, (handle.when(), self.n, handle))
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, **_: Any) -> Any:
        if self.closed:
            raise RuntimeError("Event loop is closed")
        self.soon.append((callback, args))

    def run_for(self, seconds: float) -> None:
        self.runs = True
        end = self.time() + seconds
        while self.time() < end:
            while self.soon:
                callback, args = self.soon.pop(0)
                callback(*args)
            if self.timers and self.timers[0][0] <= self.time():
                handle = heapq.heappop(self.timers)[2]
                if not handle.cancelled():
                    handle._run()
            time.sleep(0.0005)
        self.runs = False


@contextmanager
def beating(loop: asyncio.AbstractEventLoop, tick: float = TICK) -> Iterator[tuple[Any, Any]]:
    with watched(loop, pulse="heartbeat") as slot:
        yield core.Heartbeat(slot, loop, tick), slot


@contextmanager
def stock_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def turn(slot: object) -> int:
    return core.beat(slot)[0]  # type: ignore[no-any-return]


def armed(loop: Any) -> int:
    return sum(not handle.cancelled() for handle in loop._scheduled)


def test_beats_on_a_stock_loop() -> None:
    with stock_loop() as loop, beating(loop) as (heart, slot):
        heart.start()
        begin = turn(slot)
        loop.run_until_complete(asyncio.sleep(40 * TICK))
        assert turn(slot) - begin >= 3  # a loaded machine may beat less than the 40 times that fit
        assert core.bound_thread(slot) == threading.get_ident()
        _, phase, since, due = core.beat(slot)
        assert phase == "wait"
        assert due - since == 5 * MS
        heart.stop()
        assert armed(loop) == 0
        turns = turn(slot)
        loop.run_until_complete(asyncio.sleep(5 * TICK))
        assert turn(slot) == turns


def test_beats_on_a_toy_loop() -> None:
    loop = ToyLoop()
    with beating(loop) as (heart, slot):
        heart.start()
        loop.run_for(20 * TICK)
        assert turn(slot) >= 3
        heart.stop()
        turns = turn(slot)
        loop.run_for(5 * TICK)
        assert turn(slot) == turns


def test_beats_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    try:
        with beating(loop) as (heart, slot):
            heart.start()
            loop.run_until_complete(asyncio.sleep(20 * TICK))
            assert turn(slot) >= 3
            heart.stop()
            turns = turn(slot)
            loop.run_until_complete(asyncio.sleep(5 * TICK))
            assert turn(slot) == turns
    finally:
        loop.close()


def test_a_blocked_loop_is_overdue() -> None:
    async def main() -> tuple[int, Any]:
        await asyncio.sleep(4 * TICK)
        time.sleep(0.1)
        return time.monotonic_ns(), core.beat(slot)

    with stock_loop() as loop, beating(loop) as (heart, slot):
        heart.start()
        now, (_, phase, _, due) = loop.run_until_complete(main())
        assert phase == "wait"
        assert now - due >= 90 * MS - TICK * 1e9
        heart.stop()


def test_start_and_stop_again_and_again() -> None:
    with stock_loop() as loop, beating(loop) as (heart, slot):
        heart.stop()
        for _ in range(3):
            heart.start()
            heart.start()
            assert armed(loop) == 1
            before = turn(slot)
            loop.run_until_complete(asyncio.sleep(4 * TICK))
            assert turn(slot) > before
            heart.stop()
            heart.stop()
            assert armed(loop) == 0


def test_stop_on_the_loops_thread_is_at_once() -> None:
    async def main() -> None:
        heart.start()
        await asyncio.sleep(3 * TICK)
        heart.stop()
        assert armed(loop) == 0

    with stock_loop() as loop, beating(loop) as (heart, _):
        loop.run_until_complete(main())


def test_stop_from_another_thread() -> None:
    async def main() -> None:
        heart.start()
        await asyncio.sleep(3 * TICK)
        await asyncio.to_thread(heart.stop)
        await asyncio.sleep(0)
        assert armed(loop) == 0
        turns = turn(slot)
        await asyncio.sleep(4 * TICK)
        assert turn(slot) == turns
        await loop.shutdown_default_executor()

    with stock_loop() as loop, beating(loop) as (heart, slot):
        loop.run_until_complete(main())


def test_stop_from_another_thread_at_any_moment() -> None:
    """Also while a beat is under way: whoever loses the race, nothing stays armed."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for n in range(60):
            heart.start()
            await asyncio.sleep(0.0002 * (n % 8))
            await loop.run_in_executor(None, heart.stop)
            await asyncio.sleep(0)
            assert armed(loop) == 0
        await loop.shutdown_default_executor()

    with stock_loop() as loop, beating(loop, 0.0003) as (heart, _):
        loop.run_until_complete(main())


def test_stop_of_a_toy_loop_from_another_thread() -> None:
    loop = ToyLoop()
    with beating(loop) as (heart, slot):
        heart.start()
        thread = threading.Thread(target=loop.run_for, args=(20 * TICK,))
        thread.start()
        while turn(slot) < 2:
            time.sleep(0.001)
        heart.stop()
        thread.join()
        assert all(handle.cancelled() for *_, handle in loop.timers)


def test_a_closed_loop() -> None:
    loop = asyncio.new_event_loop()
    with beating(loop) as (heart, _):
        heart.start()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        heart.stop()
        with pytest.raises(RuntimeError, match="closed"):
            heart.start()
        heart.stop()


def test_a_beat_that_finds_the_loop_closed_is_silent() -> None:
    loop = asyncio.new_event_loop()
    with beating(loop) as (heart, slot):
        loop.close()
        heart()
        assert turn(slot) == 1


def test_a_loop_that_closes_while_another_thread_stops_the_heartbeat() -> None:
    loop = ToyLoop()
    with beating(loop) as (heart, _):
        heart.start()
        loop.runs = loop.closed = True  # closed between the question and the call
        heart.stop()


def test_errors_of_the_loop_are_unraisable_in_a_beat_and_raised_by_start_and_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(ToyLoop):
        def call_later(self, *_: Any, **__: Any) -> asyncio.TimerHandle:
            raise ZeroDivisionError

        def call_soon_threadsafe(self, *_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

    seen: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda args: seen.append(args.exc_type))
    loop = Broken()
    with beating(loop) as (heart, _):
        with pytest.raises(ZeroDivisionError):
            heart.start()
        heart()
        assert seen == [ZeroDivisionError]
        monkeypatch.setattr(Broken, "call_later", ToyLoop.call_later)
        heart.start()
        loop.runs = True
        with pytest.raises(ZeroDivisionError):
            heart.stop()


def test_it_does_not_keep_a_loop_from_ending() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        with beating(loop) as (heart, _):
            heart.start()
        return "done"

    assert asyncio.run(main()) == "done"


def test_a_dropped_loop_is_collected_with_its_heartbeat() -> None:
    class Loop(ToyLoop):
        pass

    loop = Loop()
    with watched(pulse="heartbeat") as slot:
        heart = core.Heartbeat(slot, loop, 1)
        heart.start()
        gone = weakref.ref(loop)
        del loop, heart
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("tick", [0, -1, float("nan"), float("inf"), 3601])
def test_bad_ticks(tick: float) -> None:
    with watched() as slot, pytest.raises(ValueError, match="tick"):
        core.Heartbeat(slot, ToyLoop(), tick)


def test_bad_arguments() -> None:
    with watched() as slot:
        with pytest.raises(TypeError):
            core.Heartbeat(slot, ToyLoop(), "1")
        with pytest.raises(TypeError):
            core.Heartbeat(1, ToyLoop(), 1)
        with pytest.raises(TypeError):
            core.Heartbeat(slot, ToyLoop())
        with pytest.raises(TypeError, match="no arguments"):
            core.Heartbeat(slot, ToyLoop(), 1)(1)
