"""A report for https://www.speedscope.app: one sampled profile for each loop, of the samples of its stalls.

The format is https://www.speedscope.app/file-format-schema.json. Idle time and turns that were no stall are not in
it: the time axis is stalled time, in the order in which it was.
"""

from __future__ import annotations

import json
from typing import Any, Final

from loopwatch._stall import Frame
from loopwatch.report.flame import weighted_stacks
from loopwatch.report.model import Lane, Report

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


class _Frames:
    """Each function and line once."""

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, str, int], int] = {}

    def index(self, frame: Frame) -> int:
        return self._indexes.setdefault((frame.qualname, frame.filename, frame.lineno), len(self._indexes))

    def table(self) -> list[dict[str, Any]]:
        return [{"name": name, "file": file, "line": line} for name, file, line in self._indexes]


def text(report: Report) -> str:
    from loopwatch import __version__

    frames = _Frames()
    profiles = [_profile(lane, frames) for lane in report.lanes if lane.stalls]
    return json.dumps(
        {
            "$schema": SCHEMA,
            "name": f"{len(report.stalls)} stalls",
            "exporter": f"loopwatch {__version__}",
            "activeProfileIndex": 0 if profiles else None,
            "shared": {"frames": frames.table()},
            "profiles": profiles,
        },
        allow_nan=False,
    )


def _profile(lane: Lane, frames: _Frames) -> dict[str, Any]:
    samples, weights = [], []
    for stall in lane.stalls:
        for stack, seconds, _ in weighted_stacks(stall):
            samples.append([frames.index(frame) for frame in stack])
            weights.append(seconds)
    return {
        "type": "sampled",
        "name": lane.name,
        "unit": "seconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
