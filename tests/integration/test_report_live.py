"""A report of watches that are there: of a loop that runs, of one that has ended, and the same from its files."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from scenario import BLOCK, blocked_once, new_loop, quiet

import loopwatch
from loopwatch import jsonl, report


@pytest.fixture
def loop():
    made = new_loop()
    yield made
    made.close()


def test_of_a_watch_whose_loop_has_ended(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    with loopwatch.install(loop, **quiet()) as watch:
        loop.run_until_complete(blocked_once())
        watch.flush()
    path = tmp_path / "run.jsonl"
    made = report.write(path, watch, watch.stalls)
    assert made.stalls == list(watch.stalls)
    (lane,) = made.lanes
    assert (lane.process.pid, lane.thread) == (os.getpid(), "MainThread")
    assert lane.busy == pytest.approx(watch.lag.busy)
    assert lane.watched >= BLOCK
    assert report.load(path).stalls == made.stalls
    data = json.loads(report.render(made, ".speedscope.json"))
    assert any(frame["name"] == "block" for frame in data["shared"]["frames"])


def test_of_a_loop_that_runs(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    async def main() -> report.Report:
        await blocked_once()
        return await asyncio.to_thread(report.write, tmp_path / "now.jsonl", watch)

    with loopwatch.install(loop, **quiet()) as watch:
        made = loop.run_until_complete(main())
    assert made.lanes[0].busy >= BLOCK


def test_files_say_what_the_watch_said(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> None:
    path = tmp_path / "app.jsonl"
    with jsonl.JsonLines(path, every=1.0), loopwatch.install(loop, **quiet()) as watch:
        for _ in range(3):
            loop.run_until_complete(blocked_once())
        watch.flush()
    live, read = report.load(watch), report.load(path)
    assert read.problem_count == 0
    assert read.stalls == live.stalls
    assert read.lanes[0].busy == pytest.approx(live.lanes[0].busy)
    assert sum(row[1] for row in read.lanes[0].cells()) == pytest.approx(
        sum(row[1] for row in live.lanes[0].cells())
    )
