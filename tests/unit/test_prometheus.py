"""Prometheus: what is exposed is read back by prometheus_client's own parsers, and is what the watch says."""

from __future__ import annotations

import gc
import math

import pytest
from fakewatch import BUSY, NOTHING_KNOWN, FakeExecutor, FakeWatch, route

prometheus_client = pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest  # noqa: E402
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics  # noqa: E402
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families as parse_text  # noqa: E402

from loopwatch import _reading, prometheus  # noqa: E402
from loopwatch._look import BOUNDS  # noqa: E402
from loopwatch._metrics import METRICS, Metric  # noqa: E402
from loopwatch._outlets import outlets  # noqa: E402
from loopwatch._stall import Verdict  # noqa: E402


@pytest.fixture
def watches(monkeypatch):
    found = [FakeWatch()]
    monkeypatch.setattr(_reading.Reader.__init__, "__defaults__", (lambda: found,))
    return found


@pytest.fixture
def registry(watches):  # noqa: ARG001
    registry = CollectorRegistry()
    collector = prometheus.collector(registry)
    yield registry
    collector.close()


def exposed(registry, openmetrics=False):
    """{(sample, labels): value}, by the parser of this format."""
    if openmetrics:
        families = parse_openmetrics(generate_openmetrics(registry).decode())
    else:
        families = parse_text(generate_latest(registry).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of(samples, name, **labels):
    return samples[name, tuple(sorted({"loop": "MainThread", **labels}.items()))]


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "openmetrics"])
def test_exposed_values_are_the_watchs(registry, watches, openmetrics):
    watch = watches[0]
    samples = exposed(registry, openmetrics)
    assert of(samples, "loopwatch_turns_total") == watch.lag.turns
    assert of(samples, "loopwatch_busy_seconds_total") == watch.lag.busy
    assert of(samples, "loopwatch_gil_wait_seconds_total") == watch.lag.gil_wait
    assert of(samples, "loopwatch_turn_max_seconds", window="300s") == BUSY.max
    assert of(samples, "loopwatch_utilization_ratio", window="60s") == BUSY.utilization
    quantile = of(samples, "loopwatch_waiting_quantile_seconds", window="60s", q="0.99")
    assert quantile == BUSY.waiting(0.99)
    assert of(samples, "loopwatch_turn_seconds_count") == watch.lag.turns
    assert of(samples, "loopwatch_turn_seconds_sum") == watch.lag.busy
    assert of(samples, "loopwatch_turn_seconds_bucket", le="+Inf") == watch.lag.turns
    assert of(samples, "loopwatch_turn_seconds_bucket", le="0.0001") == 900
    assert of(samples, "loopwatch_turn_seconds_bucket", le="0.05") == 990
    assert of(samples, "loopwatch_executor_oldest_wait_seconds", executor="default") == 0.25
    assert of(samples, "loopwatch_route_ceiling_requests_per_second", route="GET /items/{id}") == 200
    assert {f"loopwatch_stalls_total {verdict}" for verdict in Verdict} == {
        f"{name} {dict(labels)['verdict']}" for name, labels in samples if name == "loopwatch_stalls_total"
    }


def test_values_are_read_at_the_scrape(registry, watches):
    before = of(exposed(registry), "loopwatch_executor_busy", executor="default")
    watches[0].executors = (FakeExecutor("default", busy=0),)
    after = of(exposed(registry), "loopwatch_executor_busy", executor="default")
    assert (before, after) == (3, 0)


def test_buckets_rise_and_are_those_of_the_table(registry):
    buckets = {
        float(dict(labels)["le"]): value
        for (name, labels), value in exposed(registry).items()
        if name == "loopwatch_turn_seconds_bucket"
    }
    assert sorted(buckets) == [*BOUNDS, math.inf]
    counts = [buckets[bound] for bound in sorted(buckets)]
    assert counts == sorted(counts)


def test_names_follow_the_conventions():
    for metric in METRICS:
        name = prometheus.sample_name(metric)
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert metric.unit in name
    assert prometheus.sample_name(Metric("busy", "counter", "seconds", "")) == "loopwatch_busy_seconds_total"


def test_several_loops_and_what_they_have_not(registry, watches):
    watches.append(
        FakeWatch(thread="other", lag=NOTHING_KNOWN, windows={60: NOTHING_KNOWN, 300: NOTHING_KNOWN})
    )
    samples = exposed(registry, openmetrics=True)
    assert of(samples, "loopwatch_threshold_seconds", loop="other") == 0.1
    assert ("loopwatch_turns_total", (("loop", "other"),)) not in samples
    assert samples["loopwatch_loops", ()] == 2


def test_strange_label_values_are_parsed_back(registry, watches):
    watches[0].routes = {'GET /"a"\\b\n': route(), "GET /\udcff": route()}
    for openmetrics in (False, True):
        samples = exposed(registry, openmetrics)
        assert of(samples, "loopwatch_route_cpu_seconds_total", route='GET /"a"\\b\n') == 0.25
        assert of(samples, "loopwatch_route_cpu_seconds_total", route="GET /?") == 0.25


def test_infinite_values_are_parsed_back(registry, watches):
    boundless = route()
    boundless.ceiling = math.inf
    watches[0].routes = {"GET /": boundless}
    samples = exposed(registry, openmetrics=True)
    assert of(samples, "loopwatch_route_ceiling_requests_per_second", route="GET /") == math.inf


def test_nothing_is_watched(registry, watches):
    watches.clear()
    samples = exposed(registry)
    assert samples["loopwatch_loops", ()] == 0
    assert not [name for name, labels in samples if "loop" in dict(labels)]


# --- the collector's life ---


def test_one_collector_for_a_registry(watches):  # noqa: ARG001
    registry = CollectorRegistry()
    collector = prometheus.collector(registry)
    assert prometheus.collector(registry) is collector
    collector.close()
    collector.close()
    assert generate_latest(registry) == b""
    again = prometheus.collector(registry)
    assert again is not collector
    again.close()


def test_names_of_another_collector_are_an_error(watches):  # noqa: ARG001
    registry = CollectorRegistry(auto_describe=True)
    prometheus_client.Counter("loopwatch_turns", "Somebody else's.", registry=registry)
    with pytest.raises(ValueError, match="loopwatch_turns"):
        prometheus.collector(registry)
    assert prometheus.collector(CollectorRegistry()).close() is None


def test_a_registry_is_not_kept(watches):  # noqa: ARG001
    import weakref

    registry = CollectorRegistry()
    prometheus.collector(registry)
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("every", "error"), [(0, ValueError), ("5", TypeError), (True, TypeError)])
def test_every_is_checked(every, error):
    with pytest.raises(error, match="every must be"):
        prometheus.collector(CollectorRegistry(), every=every)


def test_a_failure_leaves_the_rest_of_the_page(registry, watches):
    class Broken(FakeWatch):
        def window(self, seconds=60.0):
            raise OSError(f"no window of {seconds} s")

    watches[0] = Broken()
    before = outlets.failures["prometheus"]
    samples = exposed(registry)
    assert of(samples, "loopwatch_turns_total")
    assert outlets.failures["prometheus"] > before
    failures = samples["loopwatch_exporter_failures_total", (("exporter", "prometheus"),)]
    assert failures > before
