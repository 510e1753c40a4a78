"""loopwatch.step: the named parts of a stall, nested, repeated, cut off, and while it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kinds import kind_fixture
from scenario import block, run_watched

import loopwatch

NEAR = 0.08
"""A sleep comes back late on a busy machine, never early."""


kind = kind_fixture("turn", "uv")


def stalls_of(
    kind: str, main: Callable[[], Coroutine[Any, Any, None]], **options: Any
) -> tuple[loopwatch.Stall, ...]:
    return run_watched(kind, main, **options).stalls


def test_one_after_the_other_and_twice_the_same(kind: str) -> None:
    async def main() -> None:
        await asyncio.sleep(0.02)
        with loopwatch.step("tls"):
            block(0.1)
        for _ in range(2):
            with loopwatch.step("parse"):
                block(0.1)
        await asyncio.sleep(0.02)

    (stall,) = stalls_of(kind, main)
    assert stall.steps.keys() == {"tls", "parse"}
    assert 0.1 <= stall.steps["tls"] < 0.1 + NEAR
    assert 0.2 <= stall.steps["parse"] < 0.2 + 2 * NEAR
    assert sum(stall.steps.values()) <= stall.duration + 0.001


def test_nested_ones_count_for_both(kind: str) -> None:
    async def main() -> None:
        await asyncio.sleep(0.02)
        with loopwatch.step("outer"):
            block(0.05)
            with loopwatch.step("inner"):
                block(0.1)
        await asyncio.sleep(0.02)

    (stall,) = stalls_of(kind, main)
    assert 0.1 <= stall.steps["inner"] <= stall.steps["outer"] <= stall.duration


def test_exception_ends_a_step(kind: str) -> None:
    async def main() -> None:
        await asyncio.sleep(0.02)
        with contextlib.suppress(LookupError), loopwatch.step("fails"):
            block(0.1)
            raise LookupError
        block(0.1)
        await asyncio.sleep(0.02)

    (stall,) = stalls_of(kind, main)
    assert 0.1 <= stall.steps["fails"] < 0.1 + NEAR


def test_step_of_another_turn_is_not_of_this_one(kind: str) -> None:
    async def main() -> None:
        with loopwatch.step("before"):
            await asyncio.sleep(0.02)
        block()
        await asyncio.sleep(0.02)
        with loopwatch.step("after"):
            await asyncio.sleep(0.02)

    (stall,) = stalls_of(kind, main)
    assert stall.steps.get("after") is None
    assert stall.steps.get("before", 0.0) < NEAR


def test_while_it_goes_on(kind: str) -> None:
    seen: list[loopwatch.Stall] = []

    async def main() -> None:
        await asyncio.sleep(0.02)
        with loopwatch.step("slow"):
            block(0.5)
        await asyncio.sleep(0.02)

    stalls_of(kind, main, hang_after=0.2, on_stall=seen.append)
    ongoing, ended = seen
    assert ongoing.ongoing
    assert 0.15 <= ongoing.steps["slow"] <= ongoing.duration
    assert 0.5 <= ended.steps["slow"] <= ended.duration


def test_on_a_thread_without_a_loop_and_without_a_watch() -> None:
    def use() -> None:
        with loopwatch.step("nowhere"):
            pass

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    use()


def test_step_of_another_thread_is_not_the_loops(kind: str) -> None:
    def elsewhere() -> None:
        with loopwatch.step("theirs"):
            time.sleep(0.3)

    async def main() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.sleep(0.02)
        block(0.15)
        await asyncio.sleep(0.02)
        thread.join()

    assert all("theirs" not in stall.steps for stall in stalls_of(kind, main))


def test_many_names(kind: str) -> None:
    """More than a turn has room for: the rest is there under one name."""

    async def main() -> None:
        await asyncio.sleep(0.02)
        for n in range(40):
            with loopwatch.step(f"step-{n}"):
                time.sleep(0.005)
        await asyncio.sleep(0.02)

    (stall,) = stalls_of(kind, main)
    assert stall.steps["step-0"] >= 0.005
    assert sum(stall.steps.values()) == pytest.approx(0.2, abs=0.1)


@pytest.mark.parametrize("name", [1, None, b"x"])
def test_bad_names(name: Any) -> None:
    with pytest.raises(TypeError):
        loopwatch.step(name)


def test_names_in_any_script(kind: str) -> None:
    async def main() -> None:
        await asyncio.sleep(0.02)
        with loopwatch.step("žluťoučký 🐎 陽"):
            block(0.15)
        await asyncio.sleep(0.02)

    (stall,) = stalls_of(kind, main)
    assert list(stall.steps) == ["žluťoučký 🐎 陽"]
