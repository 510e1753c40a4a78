"""A report as JSON lines: what loopwatch.jsonl would have written, of all its sources."""

from __future__ import annotations

from collections.abc import Iterator

from loopwatch._loop_line import CELL_FIELDS
from loopwatch._windows import CELLS_MAX
from loopwatch.jsonl import line_of, stall_line
from loopwatch.report.model import Lane, Report


def text(report: Report) -> str:
    return b"".join(line for lane in report.lanes for line in _of_lane(lane)).decode()


def _of_lane(lane: Lane) -> Iterator[bytes]:
    for stall in lane.stalls:
        yield stall_line(stall, process=lane.process)
    for watch, loop in lane.loops.items():
        cells = loop["cells"]
        for begin in range(0, max(1, len(cells["at"])), CELLS_MAX):  # a line has an hour at most
            part = {name: cells[name][begin : begin + CELLS_MAX] for name in CELL_FIELDS}
            yield line_of("loop", loop | {"cells": part}, process=lane.process, at=lane.at[watch])
