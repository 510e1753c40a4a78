"""What the tests of the rules share: what C makes of a turn, the clocks of a look, and when turns begin."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from reference.evidence import Look
from reference.interval import Parts
from reference.verdict import Turn

from loopwatch import _testcore as core

MS = 1_000_000
BEGIN = 10_000 * MS
CLOCKS = ("at", "cpu", "run_queue", "throttled", "stopped", "gc")


def judge(turn: Turn, samples: Sequence[Look]) -> list[Parts]:
    def packed(look: Look | None) -> tuple[int, ...] | None:
        return look and tuple(getattr(look, item.name) for item in dataclasses.fields(look))

    return core.verdict_judge(
        turn.begin,
        turn.end,
        turn.gil_begin,
        packed(turn.first),
        packed(turn.last),
        [packed(look) for look in samples],
    )
