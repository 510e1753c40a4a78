"""Reading the table of metrics of every watch of the process, with names for the loops and bounded labels."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopwatch._look import Look, Point
from loopwatch._metrics import (
    LOOP_METRICS,
    MOST,
    PROCESS_METRICS,
    LoopMetric,
    Metric,
    ProcessMetric,
)
from loopwatch._names import unused_name
from loopwatch._outlets import outlets
from loopwatch._registry import registry

if TYPE_CHECKING:
    from loopwatch._watch import Watch

LABEL_MAX = 120
"""Characters of a label's value."""


def active_watches() -> list[Watch]:
    """Of loops that run, or ran, in this process."""
    return [watch for watch in registry().watches() if not watch.inherited and watch.thread is not None]


@functools.lru_cache(maxsize=1024)
def clean(text: str) -> str:
    """As a label's value may be: every exposition is UTF-8."""
    return text[:LABEL_MAX].encode(errors="replace").decode()


@dataclass(frozen=True, slots=True)
class NamedLook:
    """A loop, under the name that it has in the label `loop`."""

    loop: str
    look: Look


class Reader:
    """One exporter's view. A loop is named by its thread, with a number where that is taken; the name of one
    that is gone is free again, so that there are never more names than loops at a time. Any thread."""

    def __init__(self, exporter: str, watches: Callable[[], list[Watch]] = active_watches) -> None:
        self._exporter, self._watches = exporter, watches
        self._admitted: dict[str, set[str]] = {label: set() for label in MOST}
        self.left_out = 0
        """Points that were not exported because their label had too many values."""
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}

    def looks(self) -> list[NamedLook]:
        """A look at each watch, taken now."""
        if self._process != os.getpid():  # forked: somebody may have held the lock
            self._forget()
        watches = self._watches()
        with self._lock:
            keys = {watch.key for watch in watches}
            self._names = {key: name for key, name in self._names.items() if key in keys}
            for watch in watches:
                if watch.key not in self._names and len(self._names) < MOST["loop"]:
                    thread = clean(watch.thread or "?")
                    self._names[watch.key] = unused_name(thread, self._names.values())
            names = self._names
        return [NamedLook(names[watch.key], Look(watch)) for watch in watches if watch.key in names]

    def of_loops(self, metric: LoopMetric, looks: Iterable[NamedLook]) -> list[Point]:
        """The row's points, the loop's name first among their labels."""
        return [
            ((named.loop, *labels), value)
            for named in looks
            for labels, value in self._read(metric, lambda named=named: metric.read(named.look))  # type: ignore[misc]
        ]

    def of_process(self, metric: ProcessMetric) -> list[Point]:
        return self._read(metric, lambda: metric.read(self._watches()))

    def read(self, looks: list[NamedLook] | None = None) -> Iterator[tuple[Metric, list[Point]]]:
        """The whole table, each row with its points now."""
        looks = self.looks() if looks is None else looks
        for loop_metric in LOOP_METRICS:
            yield loop_metric, self.of_loops(loop_metric, looks)
        for process_metric in PROCESS_METRICS:
            yield process_metric, self.of_process(process_metric)

    def _read(self, metric: Metric, read: Callable[[], Iterable[Point]]) -> list[Point]:
        """Nothing where it fails: one row must not take the others with it."""
        points: dict[tuple[str, ...], Point] = {}
        bounded = not MOST.keys().isdisjoint(metric.labels)

        def collect() -> None:
            for labels, value in read():
                cleaned = tuple(map(clean, labels))
                if cleaned not in points and (not bounded or self._admits(metric.labels, cleaned)):
                    points[cleaned] = cleaned, value

        return list(points.values()) if outlets.attempt(self._exporter, collect) else []

    def _admits(self, names: tuple[str, ...], values: tuple[str, ...]) -> bool:
        for name, value in zip(names, values, strict=True):
            admitted = self._admitted.get(name)
            if admitted is None or value in admitted:
                continue
            if len(admitted) >= MOST[name]:
                self.left_out += 1
                return False
            admitted.add(value)
        return True
