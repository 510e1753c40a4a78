"""watch.profile and watch.slow_turns: what they say of loops whose truth is known."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kinds import kind_fixture
from programs import GIL, full_build, run_program
from scenario import hold_gil, new_loop, quiet, run_watched, wait_until

import loopwatch
from loopwatch import Profile, ProfileRow, Verdict

OFTEN = 400.0
"""Hertz: so that a second tells something."""
LONG = 0.6
"""A threshold that a busy machine seldom makes a turn reach by itself."""
SLOW = 0.35


kind = kind_fixture("turn", "wrapped", "uv", uv_pulse=True)


Main = Callable[[], Coroutine[Any, Any, Any]]


def watched(kind: str, main: Main, **options: Any) -> loopwatch.Watch:
    return run_watched(kind, main, **{"threshold": LONG, **options})


def by_name(profile: Profile) -> dict[str, ProfileRow]:
    return {row.frame.qualname: row for row in profile if row.frame is not None}


truth: dict[str, float] = defaultdict(float)


def first(seconds: float) -> None:
    began = time.monotonic()
    time.sleep(seconds)
    truth["first"] += time.monotonic() - began


def second(seconds: float) -> None:
    began = time.monotonic()
    time.sleep(seconds)
    truth["second"] += time.monotonic() - began


def slow_one() -> None:
    time.sleep(SLOW)


async def third(seconds: float) -> None:
    time.sleep(seconds)


# --- shares ---


@full_build
def test_shares_are_those_of_the_time(kind: str) -> None:
    """Turns of 1 to 9 ms, and no turn is long enough to be looked at for its own sake. Some 500 looks."""
    truth.clear()

    async def main() -> None:
        for n in range(90):
            (first if n % 3 else second)(0.001 + 0.004 * (n % 3))
            await asyncio.sleep(0 if n % 2 else 0.001)

    watch = watched(kind, main, profile_hz=OFTEN)
    profile = watch.profile
    rows = by_name(profile)
    whole = truth["first"] + truth["second"]
    assert rows["first"].share == pytest.approx(truth["first"] / whole, abs=0.15)
    assert rows["second"].share == pytest.approx(truth["second"] / whole, abs=0.15)
    assert profile.causes[Verdict.BLOCKING_CALL] > 0.5 * profile.seconds
    assert max(profile.tasks, key=profile.tasks.__getitem__).endswith("main")
    assert profile.seconds == pytest.approx(profile.samples / OFTEN)
    assert not watch.slow_turns or "slow_one" not in by_name(watch.slow_turns)


def test_seconds_are_the_busy_time_also_between_long_waits(kind: str) -> None:
    """Waits in which the watchdog parks: each busy turn after them has its share all the same."""

    async def main() -> None:
        for _ in range(15):
            await asyncio.sleep(0.06)
            time.sleep(0.02)

    watch = watched(kind, main, profile_hz=OFTEN, threshold=0.08)
    busy = watch.lag.busy
    assert busy is not None
    assert 0.5 * busy < watch.profile.seconds < 1.6 * busy


@full_build
def test_heartbeat_sees_what_outlasts_its_tick() -> None:
    async def main() -> None:
        for _ in range(6):
            await asyncio.sleep(0.02)
            first(0.08)

    watch = watched("heartbeat", main, profile_hz=OFTEN, threshold=LONG)
    assert by_name(watch.profile)["first"].seconds > 0.05


def test_a_read_has_what_was_seen_up_to_now() -> None:
    """On the loop's own thread too."""
    read: list[Profile] = []

    async def main() -> None:
        for _ in range(4):
            await third(0.05)
            await asyncio.sleep(0)
            read.append(watch.profile)

    loop = new_loop()
    with loopwatch.install(loop, **quiet(threshold=LONG, profile_hz=OFTEN)) as watch:
        loop.run_until_complete(main())
        before = watch.profile
    loop.close()
    assert all(older.samples < newer.samples for older, newer in itertools.pairwise(read))
    assert (read[-1] - read[0]).seconds == pytest.approx(read[-1].seconds - read[0].seconds)
    assert watch.profile.samples >= before.samples >= read[-1].samples


def test_more_than_one_record() -> None:
    """What the reporter was sent and what the reader asks for add up."""

    async def main() -> None:
        for _ in range(250):
            time.sleep(0.002)
            await asyncio.sleep(0)

    watch = watched("turn", main, profile_hz=1000.0)
    assert watch.profile.samples > 256 or watch.stats()["watchdog_worst_lateness"] > 0.02
    assert watch.stats()["records_dropped"] == 0


def test_frames_read_with_the_gil() -> None:
    """By the reporter, a moment later: where the loop is then."""

    async def main() -> None:
        for _ in range(30):
            await third(0.02)
            await asyncio.sleep(0)

    profile = watched("turn", main, profile_hz=100.0, capture="gil").profile
    assert by_name(profile)["third"].share > 0.3
    assert max(profile.tasks, key=profile.tasks.__getitem__).endswith("main")


# --- slow turns ---


@full_build
def test_a_slow_turn_that_happens_once_is_found(kind: str) -> None:
    async def main() -> None:
        for n in range(40):
            time.sleep(0.002)
            if n == 20:
                slow_one()
            await asyncio.sleep(0)

    watch = watched(kind, main)
    row = by_name(watch.slow_turns)["slow_one"]
    assert row.frame is not None
    assert row.frame.lineno == slow_one.__code__.co_firstlineno + 1
    assert row.samples == 1
    assert SLOW <= row.worst < LONG
    assert watch.slow_turns.causes[Verdict.BLOCKING_CALL] > 0.5 * SLOW
    assert all(stall.verdict is Verdict.NOT_SCHEDULED for stall in watch.stalls)


@full_build
def test_it_is_found_also_where_all_turns_are_long() -> None:
    """Then the watchdog looks less often at what is no stall; each slow turn has its look all the same."""

    async def main() -> None:
        watch.threshold = 0.016
        for _ in range(200):  # each is looked at, until there is nothing left to be spent
            time.sleep(0.004)
            await asyncio.sleep(0)
        watch.threshold = LONG
        await asyncio.sleep(0)
        slow_one()
        await asyncio.sleep(0)

    loop = new_loop()
    with loopwatch.install(loop, **quiet(profile_hz=0)) as watch:
        loop.run_until_complete(main())
        slow = by_name(watch.slow_turns)
    loop.close()
    assert slow["slow_one"].samples == 1
    assert slow["slow_one"].worst >= SLOW


def test_every_slow_turn_counts() -> None:
    """With its duration, whether or not anybody saw where it was spent."""

    async def main() -> None:
        for _ in range(60):
            time.sleep(0.012)
            await asyncio.sleep(0)

    watch = watched("turn", main, threshold=0.04, hang_after=None)
    slow = watch.slow_turns
    assert slow.samples + watch.stats()["stalls"] >= 60
    assert slow.seconds >= 0.012 * (60 - watch.stats()["stalls"])


@pytest.mark.parametrize("exempt", [False, True])
def test_an_exempt_turn_is_not_slow(exempt: bool) -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        if exempt:
            with watch.exempt("a test"):
                slow_one()
        else:
            slow_one()
        await asyncio.sleep(0)

    loop = new_loop()
    with loopwatch.install(loop, **quiet(threshold=LONG)) as watch:
        loop.run_until_complete(main())
        assert (watch.slow_turns.seconds < SLOW) is exempt
    loop.close()


# --- causes ---


@full_build
@pytest.mark.skipif(not GIL, reason="no GIL to wait for")
def test_a_gil_that_others_hold() -> None:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            hold_gil(0.03)

    async def main() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        began = time.monotonic()
        while time.monotonic() - began < 0.8:
            await asyncio.sleep(0)
        over.set()
        thread.join()

    profile = watched("turn", main, profile_hz=OFTEN).profile
    assert max(profile.causes, key=profile.causes.__getitem__) is Verdict.GIL
    assert by_name(profile)["hold_gil"].share > 0.3


@full_build
def test_python_and_c_are_told_apart() -> None:
    data = bytes(2_000_000)

    def computes() -> None:
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            total = 0
            for number in range(2000):
                total += number ^ 3

    def digests() -> None:
        for _ in range(3):
            hashlib.sha256(data).digest()

    def of(call: Callable[[], None]) -> Profile:
        async def main() -> None:
            end = time.thread_time() + 0.4
            while time.thread_time() < end:
                call()
                await asyncio.sleep(0)

        return watched("turn", main, profile_hz=OFTEN).profile

    python, native = of(computes).causes, of(digests).causes
    assert python[Verdict.PYTHON] > python.get(Verdict.NATIVE, 0.0)
    assert native[Verdict.NATIVE] > native.get(Verdict.PYTHON, 0.0)


# --- off, idle, over, elsewhere ---


def test_off() -> None:
    async def main() -> None:
        time.sleep(0.05)
        await asyncio.sleep(0)

    watch = watched("turn", main, profile_hz=0)
    assert not watch.profile
    assert watch.profile.rows == ()


def test_an_idle_loop_wakes_nobody() -> None:
    async def main() -> tuple[float, float]:
        def look() -> tuple[float, float]:
            time.sleep(0.25)
            before = watch.stats()["watchdog_wakeups"]
            time.sleep(0.4)
            return before, watch.stats()["watchdog_wakeups"]

        return await asyncio.get_running_loop().run_in_executor(None, look)

    loop = new_loop()
    with loopwatch.install(loop, **quiet(profile_hz=1000.0)) as watch:
        before, after = loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert after - before <= 20  # looks at moments would be 400; on a busy machine it came late to its wait


def test_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPWATCH", "0")
    loop = new_loop()
    with loopwatch.install(loop) as watch:
        assert watch.profile == watch.slow_turns == Profile()
    loop.close()


def test_in_a_stall_callback() -> None:
    """On the reporter's thread, which is the one that records come to."""
    seen: list[Profile] = []

    async def main() -> None:
        await asyncio.sleep(0)
        time.sleep(0.25)
        await asyncio.sleep(0)

    def look(_: object) -> None:
        seen.append(watch.profile)

    loop = new_loop()
    with loopwatch.install(loop, **quiet(on_stall=look, profile_hz=OFTEN)) as watch:
        loop.run_until_complete(main())
        assert wait_until(lambda: seen)
    loop.close()
    assert seen[0].seconds > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork() -> None:
    facts = run_program("""
        import os
        from scenario import *

        def slow_one():
            time.sleep(0.08)

        async def main():
            for _ in range(20):
                time.sleep(0.005)
                await asyncio.sleep(0)
            slow_one()
            await asyncio.sleep(0)

        loop = new_loop()
        watch = loopwatch.install(loop, **quiet(threshold=0.3, profile_hz=400))
        loop.run_until_complete(main())
        before = watch.profile
        pid = os.fork()
        if pid == 0:
            loop.run_until_complete(main())
            grown = watch.profile - before
            say(child=grown.seconds > 0.03, slow=watch.slow_turns.samples >= 1)
            loop.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        loop.run_until_complete(main())
        say(parent=(watch.profile - before).seconds > 0.03)
        loop.close()
    """).check()
    assert facts == {"child": True, "slow": True, "parent": True}
