"""A stall is in a report once, however often it was asked for while it went on."""

from __future__ import annotations

import asyncio
import threading
import time

from scenario import block, quiet

import loopwatch
from loopwatch import report
from loopwatch._stall import Stall


def test_a_stall_has_one_begin() -> None:
    """In each of its reports: it is taken once, from clocks that drift apart while it goes on."""
    asked: list[Stall] = []
    told: list[Stall] = []

    async def main() -> None:
        with loopwatch.install(**quiet(on_stall=told.append, hang_after=0.3)) as watch:

            def ask() -> None:
                deadline = time.monotonic() + 1.0
                while time.monotonic() < deadline:
                    if (stall := watch.current) is not None:
                        asked.append(stall)
                    time.sleep(0.005)

            asking = threading.Thread(target=ask)
            asking.start()
            block(1.2)
            await asyncio.sleep(0)
            asking.join()

    asyncio.run(main())
    longest = max(told, key=lambda stall: stall.duration)
    reports = [stall for stall in (*asked, *told) if stall.id == longest.id]
    assert len(reports) >= 10
    assert {stall.started_at for stall in reports} == {longest.started_at}
    assert [stall for stall in report.load(reports).stalls if stall.id == longest.id] == [longest]
