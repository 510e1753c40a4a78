"""Metrics for Prometheus, by prometheus_client: `pip install 'loopwatch[prometheus]'`.

`collector()` once in the process, anywhere and at any time: every watch is exported, also later ones. Values are
read when Prometheus scrapes, so nothing is paid in between. In the multiprocess mode of prometheus_client
(PROMETHEUS_MULTIPROC_DIR, for pre-fork servers) a scrape is answered from files that any worker reads; there
each worker's reporter writes the values every few seconds while it watches a loop.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from loopwatch import _look, _metrics
from loopwatch._look import Histogram, Point
from loopwatch._metrics import Metric, labels_of
from loopwatch._options import check_every
from loopwatch._reading import Reader

try:
    import prometheus_client
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client import core as families
    from prometheus_client.utils import floatToGoString
except ImportError as problem:
    raise ImportError(
        "loopwatch.prometheus needs prometheus_client: pip install 'loopwatch[prometheus]'"
    ) from problem

if TYPE_CHECKING:
    from loopwatch._prometheus_files import FileExporter

__all__ = ["Collector", "collector"]

EVERY: Final = 5.0
_LE: Final = (*map(floatToGoString, _look.BOUNDS), "+Inf")


def base_name(metric: Metric) -> str:
    """The name of the family: of a counter without `_total`."""
    parts = ["loopwatch", metric.name.replace(".", "_"), metric.unit]
    return "_".join(part for part in parts if part)


def sample_name(metric: Metric) -> str:
    """What a query says; of a histogram the part before `_bucket`, `_sum` and `_count`."""
    return base_name(metric) + ("_total" if metric.kind == "counter" else "")


class Collector(prometheus_client.registry.Collector):
    """Registered with a registry until close()."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = weakref.ref(registry)
        self._reader = Reader("prometheus")
        registry.register(self)

    def describe(self) -> Iterator[prometheus_client.Metric]:
        """The names alone, so that two collectors of one registry are an error at once."""
        return (_family(metric, []) for metric in _metrics.METRICS)

    def collect(self) -> Iterator[prometheus_client.Metric]:
        """On the thread of the scrape. Rows of which nothing is known are left out."""
        for metric, points in self._reader.read():
            if points:
                yield _family(metric, points)

    def close(self) -> None:
        """Take it out of the registry. Idempotent."""
        registry = self._registry()
        if registry is not None and _collectors.get(registry) is self:
            del _collectors[registry]
            registry.unregister(self)


def _family(metric: Metric, points: list[Point]) -> prometheus_client.Metric:
    name, labels = base_name(metric), labels_of(metric)
    if metric.kind == "histogram":
        histogram = families.HistogramMetricFamily(name, metric.help, labels=labels, unit=metric.unit)
        for values, value in points:
            if isinstance(value, Histogram):
                histogram.add_metric(values, list(zip(_LE, value.cumulative, strict=True)), value.seconds)
        return histogram
    kind = families.CounterMetricFamily if metric.kind == "counter" else families.GaugeMetricFamily
    family = kind(name, metric.help, labels=labels, unit=metric.unit)
    for values, value in points:
        if not isinstance(value, Histogram):
            family.add_metric(values, value)
    return family


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, Collector | FileExporter] = (
    weakref.WeakKeyDictionary()
)


def collector(registry: CollectorRegistry = REGISTRY, *, every: float = EVERY) -> Collector | FileExporter:
    """Export every watch of this process; called again for one registry, it returns the same.

    `every`: seconds between two writes in multiprocess mode; elsewhere without effect. `close()` of what is
    returned ends it. ValueError where another collector has these names already.
    """
    every = check_every(every)
    if (known := _collectors.get(registry)) is not None:
        return known
    made: Collector | FileExporter
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        from loopwatch._prometheus_files import FileExporter

        made = FileExporter(registry, every, forget=lambda: _collectors.pop(registry, None))
    else:
        made = Collector(registry)
    _collectors[registry] = made
    return made
