"""A watched loop as JSON: its lag so far, and the seconds that an earlier line did not have yet."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from loopwatch._clock import monotonic_ns
from loopwatch._freeze import gc_pauses
from loopwatch._look import turn_histogram
from loopwatch._windows import CELLS_MAX, Cell

if TYPE_CHECKING:
    from loopwatch._watch import Watch

TURN_BOUNDS: Final = tuple(float(f"{digit}e{exponent}") for exponent in range(-6, 2) for digit in (1, 2, 5))
"""Upper bounds of the histogram: 1 µs to 50 s."""
_SECOND_NS: Final = 1_000_000_000
CELL_FIELDS: Final = ("at", "busy", "idle", "worst", "gc", "gil_wait", "stalls")


class LoopLines:
    """What is written of the loops of a process, each second once. Any thread."""

    def __init__(self) -> None:
        self._process, self._lock = os.getpid(), threading.Lock()
        self._followed: dict[int, tuple[Watch, int]] = {}  # by key, with the second up to which it is written

    def follow(self, watch: Watch) -> None:
        """Again: no difference. It is kept until its last line."""
        with self._locked():
            self._followed.setdefault(watch.key, (watch, -1))

    def ended(self) -> list[dict[str, Any]]:
        """The last line's fields of each loop that is not watched any more."""
        return self._data(lambda watch: not watch.installed)

    def all(self, *, final: bool) -> list[dict[str, Any]]:
        """A line's fields for each loop; `final`: with the second that goes on, and it is followed no more."""
        return self._data(lambda _: True, final=final)

    def _data(self, wanted: Callable[[Watch], bool], *, final: bool = False) -> list[dict[str, Any]]:
        found = []
        with self._locked():
            for key, (watch, written) in list(self._followed.items()):
                if not wanted(watch):
                    continue
                last = final or not watch.installed
                if last:
                    del self._followed[key]
                if watch.inherited or watch.thread is None:
                    continue
                data, until = loop_data(watch, after=written, whole=not last)
                if not last:
                    self._followed[key] = watch, until
                found.append(data)
        return found

    def renew(self) -> None:
        """In a forked child: somebody may have held the lock, and what was before the fork is the parent's to write."""
        self._process, self._lock = os.getpid(), threading.Lock()
        now = monotonic_ns() // _SECOND_NS
        self._followed = {key: (watch, now - 1) for key, (watch, _) in self._followed.items()}

    def _locked(self) -> threading.Lock:
        if self._process != os.getpid():
            self.renew()
        return self._lock


def loop_data(watch: Watch, *, after: int = -1, whole: bool = False) -> tuple[dict[str, Any], int]:
    """The fields, with the seconds after the one numbered `after`, and the number of the last. `whole`: without
    the one that goes on."""
    missing = min(CELLS_MAX, monotonic_ns() // _SECOND_NS - after + 1)
    cells = [(number, cell) for number, cell in watch.history.numbered(missing) if number > after]
    if whole:
        cells = cells[:-1]
    lag = watch.lag
    histogram = turn_histogram(lag, TURN_BOUNDS)
    data = {
        "thread": watch.thread,
        "watch": watch.key,
        "pulse": watch.pulse,
        "capture": watch.capture,
        "threshold": watch.threshold,
        "lag": lag.to_dict(),
        "histogram": histogram and {"bounds": TURN_BOUNDS, "counts": histogram.counts},
        "gc": [
            {"generation": row.generation, "count": row.count, "seconds": row.seconds, "worst": row.worst}
            for row in gc_pauses()
        ],
        "cells": _columns(cell for _, cell in cells),
    }
    return data, cells[-1][0] if cells else after


def _columns(cells: Iterable[Cell]) -> dict[str, list[float | None]]:
    rows = list(cells)
    return {
        name: [None if value is None else round(value, 6) for value in (getattr(row, name) for row in rows)]
        for name in CELL_FIELDS
    }
