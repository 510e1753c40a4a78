"""The JSON lines of loops: every second once, also of loops that end, and what the report is made of."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import time
from pathlib import Path

import pytest
from programs import run_program
from scenario import new_loop, quiet

import loopwatch
from loopwatch import jsonl
from loopwatch._loop_line import CELL_FIELDS, TURN_BOUNDS


async def busy_for(seconds: float) -> None:
    loopwatch.install(**quiet())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)
        await asyncio.sleep(0.01)


def loops(text: io.StringIO) -> list[dict]:
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    return [line for line in lines if line["kind"] == "loop"]


def test_every_second_of_every_loop_once() -> None:
    text = io.StringIO()
    with jsonl.JsonLines(text, every=1.0):
        for _ in range(2):
            asyncio.run(busy_for(2.2))
    lines = loops(text)
    by_watch: dict[int, list[dict]] = {}
    for line in lines:
        by_watch.setdefault(line["watch"], []).append(line)
    assert len(by_watch) == 2
    for of_one in by_watch.values():
        at = [moment for line in of_one for moment in line["cells"]["at"]]
        assert len(at) >= 3
        assert at == sorted(at)
        gaps = [later - earlier for earlier, later in itertools.pairwise(at)]
        assert all(gap > 0.5 for gap in gaps), at  # a second that two lines had would be there twice
        busy = sum(seconds for line in of_one for seconds in line["cells"]["busy"])
        assert busy == pytest.approx(
            of_one[-1]["lag"]["busy"], abs=0.01
        )  # the sums of the cells are the whole


def test_without_ticks_a_loop_has_one_line_and_it_is_valid() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = io.StringIO()
    with jsonl.JsonLines(text, every=None):
        asyncio.run(busy_for(0.3))
    (line,) = loops(text)
    schema = json.loads(jsonl.SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(line)
    assert line["thread"] == "MainThread"
    assert line["pid"] == os.getpid()
    assert tuple(line["cells"]) == CELL_FIELDS
    assert line["histogram"]["bounds"] == list(TURN_BOUNDS)
    assert sum(line["histogram"]["counts"]) == line["lag"]["turns"]


def test_without_regular_lines_a_loop_that_has_ended_is_written_while_others_run() -> None:
    text = io.StringIO()
    other = new_loop()
    with jsonl.JsonLines(text, every=None) as lines, loopwatch.install(other, **quiet()):
        asyncio.run(busy_for(0.2))
        assert loops(text) == []
        lines.tick()  # as it is every minute
        (ended,) = loops(text)
        lines.tick()
        assert len(loops(text)) == 1
    other.close()
    assert ended["lag"]["busy"] > 0.05
    assert len(loops(text)) == 1  # the other never ran


def test_a_forked_child_writes_its_own_seconds_only(tmp_path: Path) -> None:
    path = tmp_path / "forked.jsonl"
    facts = run_program(
        """
        import asyncio, os, sys, time
        import loopwatch
        from loopwatch import jsonl
        from scenario import quiet, say

        async def busy(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(0.01)
                await asyncio.sleep(0.01)

        lines = jsonl.JsonLines(sys.argv[1], every=None)
        loop = asyncio.new_event_loop()
        loopwatch.install(loop, **quiet())
        loop.run_until_complete(busy(2.2))
        child = os.fork()
        loop.run_until_complete(busy(1.1))
        loop.close()
        lines.close()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        say(parent=os.getpid(), child=child)
        """,
        path,
    ).check()
    at: dict[int, list[float]] = {facts["parent"]: [], facts["child"]: []}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if line["kind"] == "loop":
            at[line["pid"]] += line["cells"]["at"]
    assert len(at[facts["parent"]]) >= 3
    assert at[facts["child"]]
    # The second of the fork is of both; the one before it is the parent's.
    assert all(moment > at[facts["parent"]][1] for moment in at[facts["child"]])


def test_closed_while_the_loop_runs_it_has_what_there_was() -> None:
    text = io.StringIO()

    async def main() -> None:
        lines = jsonl.JsonLines(text, every=None)
        await busy_for(0.3)
        lines.close()
        lines.close()

    asyncio.run(main())
    (line,) = loops(text)
    assert line["lag"]["busy"] > 0.05
