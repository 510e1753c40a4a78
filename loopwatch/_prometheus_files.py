"""Prometheus in multiprocess mode: ordinary metrics of prometheus_client, which it keeps in files by process.

Whichever worker is scraped reads the files of all. A counter of all workers is one series, their sum, which goes
on rising when a worker is replaced; a gauge has a series for each worker, with the label `pid`, until the server
says that the worker is dead (`prometheus_client.multiprocess.mark_process_dead`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import prometheus_client
from prometheus_client import CollectorRegistry

from loopwatch._look import BOUNDS, Histogram, Look, Point, Value
from loopwatch._metrics import LOOP_METRICS, PROCESS_METRICS, Metric, labels_of
from loopwatch._outlets import Outlet, outlets
from loopwatch._reading import NamedLook, Reader

Series = tuple[str, tuple[str, ...]]
"""A metric's name, and the values of its labels."""

_KINDS: Final[dict[str, Any]] = {
    "counter": prometheus_client.Counter,
    "gauge": prometheus_client.Gauge,
    "histogram": prometheus_client.Histogram,
}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "counter": {},
    "gauge": {"multiprocess_mode": "liveall"},
    "histogram": {"buckets": BOUNDS},
}


class FileExporter(Outlet):
    """Written by the reporter, every few seconds while a loop of this process is watched, and once at the end."""

    name = "prometheus"

    def __init__(self, registry: CollectorRegistry, every: float, forget: Callable[[], object]) -> None:
        self.every = every
        self._registry, self._forget = registry, forget
        self._reader = Reader(self.name)
        self._metrics: dict[str, Any] = {}
        self._looked: dict[int, NamedLook] = {}  # by the key of the watch, as of the last tick
        self._written: dict[int, dict[Series, Value]] = {0: {}}  # by the same; 0: of the process
        for metric in (*LOOP_METRICS, *PROCESS_METRICS):
            self._register(metric)
        outlets.add(self)

    def close(self) -> None:
        """Take the metrics out of the registry. What is in the files stays there, as prometheus_client keeps it.
        Idempotent."""
        if outlets.remove(self):
            self._forget()
            for made in self._metrics.values():
                self._registry.unregister(made)

    # --- the reporter's thread ---

    def tick(self) -> None:
        looks = {named.look.watch.key: named for named in self._reader.looks()}
        for key in self._looked.keys() - looks.keys():
            self._end(key)
        self._looked = looks
        for key, named in looks.items():
            self._write_loop(key, named)
        for metric in PROCESS_METRICS:
            self._write(0, metric, self._reader.of_process(metric))

    def wind_up(self) -> None:
        for key in list(self._looked):
            self._end(key)
        self._looked.clear()
        for metric in PROCESS_METRICS:
            self._write(0, metric, self._reader.of_process(metric))

    # --- one watch ---

    def _end(self, key: int) -> None:
        """What it counted since it was looked at; a gauge of a loop that is not watched any more is 0, since
        prometheus_client cannot take a series out of its files."""
        named = self._looked[key]
        self._write_loop(key, NamedLook(named.loop, Look(named.look.watch)))
        gauges = {metric.name for metric in LOOP_METRICS if metric.kind == "gauge"}
        for name, values in self._written.pop(key, {}):
            if name in gauges:
                self._metrics[name].labels(*values).set(0)

    def _write_loop(self, key: int, named: NamedLook) -> None:
        for metric in LOOP_METRICS:
            self._write(key, metric, self._reader.of_loops(metric, [named]))

    def _write(self, key: int, metric: Metric, points: list[Point]) -> None:
        written = self._written.setdefault(key, {})
        for values, value in points:
            child = self._metrics[metric.name]
            child = child.labels(*values) if values else child
            before = written.get((metric.name, values))
            if isinstance(value, Histogram):
                _grow_histogram(child, value, before if isinstance(before, Histogram) else None)
            elif metric.kind == "counter":
                child.inc(_growth(value, before if isinstance(before, (int, float)) else 0))
            else:
                child.set(value)
            written[metric.name, values] = value

    def _register(self, metric: Metric) -> None:
        from loopwatch.prometheus import base_name

        self._metrics[metric.name] = _KINDS[metric.kind](
            base_name(metric),
            metric.help,
            labels_of(metric),
            registry=self._registry,
            **_OPTIONS[metric.kind],
        )


def _growth(value: float, before: float) -> float:
    """Of a counter; one that fell began anew."""
    return value - before if value >= before else value


def _grow_histogram(child: Any, value: Histogram, before: Histogram | None) -> None:
    """prometheus_client has no public way to count many at once, so these are its private parts: a list of values
    by bucket, not cumulative, and the sum. A test holds them against what is exported."""
    counts = before.counts if before is not None else (0,) * len(value.counts)
    for bucket, count, count_before in zip(child._buckets, value.counts, counts, strict=True):
        bucket.inc(_growth(count, count_before))
    child._sum.inc(_growth(value.seconds, before.seconds if before is not None else 0.0))
