"""What a watch says of the last minutes: windows, cells and stalls by verdict, with real loops."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
import sys
import time
from typing import Any

import pytest
from scenario import new_loop, quiet

import loopwatch
from loopwatch import Verdict, Watch

BLOCK = 0.12


def watched(main: Any, **options: Any) -> Watch:
    with loopwatch.Runner(**quiet(threshold=0.05, **options)) as runner:
        runner.run(main())
        assert runner.watch is not None
        return runner.watch


async def blocks(n: int) -> None:
    for _ in range(n):
        time.sleep(BLOCK)
        await asyncio.sleep(0.01)


def test_cells_and_window_add_up_to_the_lag() -> None:
    async def main() -> None:
        await blocks(10)  # over a second, so that there is more than one cell

    watch = watched(main)
    lag, window, cells = watch.lag, watch.window(300), watch.cells()
    assert window.turns == lag.turns
    assert window.max == lag.max
    assert window.busy == pytest.approx(lag.busy)
    assert sum(cell.busy for cell in cells) == pytest.approx(lag.busy)
    assert sum(cell.idle or 0 for cell in cells) == pytest.approx(lag.idle)
    assert max(cell.worst for cell in cells) == lag.max
    assert window.quantile(0.99) == lag.quantile(0.99)
    assert window.seconds >= lag.busy + lag.idle, "between two runs it is neither"
    assert len(cells) >= 2
    assert all(
        after.at - before.at == pytest.approx(1, abs=0.1) for before, after in itertools.pairwise(cells)
    )


def test_stalls_by_verdict() -> None:
    watch = watched(lambda: blocks(3))
    total = watch.stall_totals[Verdict.BLOCKING_CALL]
    stalls = [stall for stall in watch.stalls if stall.verdict == Verdict.BLOCKING_CALL]
    assert total.count == len(stalls) > 0
    assert total.seconds == pytest.approx(sum(stall.duration for stall in stalls))
    assert total.worst == pytest.approx(max(stall.duration for stall in stalls))
    window = watch.window()
    assert window.stalls[Verdict.BLOCKING_CALL] == total.count
    assert window.stalled[Verdict.BLOCKING_CALL] == pytest.approx(total.seconds)
    assert sum(cell.stalls for cell in watch.cells()) == len(watch.stalls)
    assert set(watch.stall_totals) == set(window.stalls) == set(window.stalled) == set(Verdict)


def test_ignored_stalls_are_not_among_them() -> None:
    watch = watched(lambda: blocks(2), ignore=["*"])
    assert watch.stats()["stalls_ignored"] >= 2
    assert sum(total.count for total in watch.stall_totals.values()) == 0


@pytest.mark.parametrize("pulse", ["turn", "heartbeat", "uv"])
def test_a_stall_shows_while_it_lasts(pulse: str) -> None:
    """To another thread, with the loop stuck in its turn."""
    if pulse == "uv":
        if loopwatch._core.PORTABLE:
            pytest.skip("the portable build has no uv pulse")
        loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    else:
        loop = new_loop()

    async def main() -> tuple[loopwatch.Window, loopwatch.Cell]:
        await asyncio.sleep(0.05)

        def look() -> tuple[loopwatch.Window, loopwatch.Cell]:
            time.sleep(0.4)
            return watch.window(), watch.cells(1)[-1]

        looking = loop.run_in_executor(None, look)
        time.sleep(0.8)  # the loop's thread
        return await looking

    watch = loopwatch.install(loop, **quiet(threshold=3600), pulse=pulse)  # type: ignore[arg-type]
    try:
        window, cell = loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        watch.uninstall()
        loop.close()
    assert window.max is not None
    assert window.max >= 0.2
    assert window.busy is not None
    assert window.busy >= 0.2
    assert cell.worst >= 0.2
    assert (cell.idle is None) == (window.idle is None) == (pulse == "heartbeat")


def test_collections_of_the_loops_thread_are_in_its_cells() -> None:
    async def main() -> None:
        rubbish = [[i] for i in range(100_000)]
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0)
        del rubbish
        cells.extend(loopwatch._registry.registry().watches()[0].cells())

    cells: list[loopwatch.Cell] = []
    watched(main)
    collected = sum(cell.gc or 0 for cell in cells)
    assert 0 < collected <= sum(cell.busy for cell in cells)


def test_before_the_first_run_there_is_nothing() -> None:
    loop = new_loop()
    with loopwatch.install(loop, **quiet()) as watch:
        assert watch.cells() == ()
        assert (watch.window().seconds, watch.window().turns) == (0.0, 0)
    loop.close()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda watch: watch.window(0), ValueError),
        (lambda watch: watch.window(300.1), ValueError),
        (lambda watch: watch.window(float("nan")), ValueError),
        (lambda watch: watch.window("60"), TypeError),
        (lambda watch: watch.window(True), TypeError),
        (lambda watch: watch.cells(0), ValueError),
        (lambda watch: watch.cells(3601), ValueError),
        (lambda watch: watch.cells(1.0), TypeError),
    ],
)
def test_bad_lengths_are_named(call: Any, error: type[Exception]) -> None:
    loop = new_loop()
    with loopwatch.install(loop, **quiet()) as watch, pytest.raises(error, match="seconds must be"):
        call(watch)
    loop.close()


def test_switched_off_everything_is_empty() -> None:
    program = (
        "import asyncio, loopwatch\n"
        "async def main():\n"
        "    watch = loopwatch.install()\n"
        "    print(watch.cells(), watch.window().seconds, sum(watch.window().stalls.values()),\n"
        "          {total.count for total in watch.stall_totals.values()})\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"LOOPWATCH": "0", "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["()", "0.0", "0", "{0}"]
