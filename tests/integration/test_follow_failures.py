"""An exporter that cannot take on a watch is no reason for the program's install() to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from scenario import left_on, no_thread_of_ours, quiet

import loopwatch
from loopwatch._outlets import Outlet, outlets
from loopwatch._registry import registry
from loopwatch._watch import Watch


class Refusing(Outlet):
    name = "refusing"

    def __init__(self, problem: BaseException) -> None:
        self.problem = problem

    def follow(self, watch: Watch) -> None:  # noqa: ARG002
        raise self.problem


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.SelectorEventLoop()
    yield loop
    loop.close()
    outlets.failures.pop(Refusing.name, None)


def test_the_loop_is_watched_all_the_same(loop: asyncio.AbstractEventLoop) -> None:
    refusing = Refusing(FileNotFoundError("gone"))
    outlets.add(refusing)
    try:
        with loopwatch.install(loop, **quiet()) as watch:
            loop.run_until_complete(asyncio.sleep(0))
            assert watch.lag.turns
        assert outlets.failures["refusing"] == 1
    finally:
        outlets.remove(refusing)


def test_an_interruption_leaves_nothing_behind(loop: asyncio.AbstractEventLoop) -> None:
    interrupted = Refusing(KeyboardInterrupt())
    outlets.add(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            loopwatch.install(loop, **quiet())
    finally:
        outlets.remove(interrupted)
    assert left_on(loop) == []
    assert registry().find(loop) is None
    assert no_thread_of_ours()
    loopwatch.install(loop, **quiet()).uninstall()
