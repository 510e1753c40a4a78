"""The table of metrics, and reading it: held against a watch that is filled by hand."""

from __future__ import annotations

import json
import random
import re
from bisect import bisect_left
from collections import Counter
from pathlib import Path

import pytest
from fakewatch import BUSY, NOTHING_KNOWN, FakeExecutor, FakeProfile, FakeWatch, lag_of, route

from loopwatch._look import BOUNDS, Histogram, turn_histogram
from loopwatch._metrics import LOOP_METRICS, METRICS, MOST, labels_of
from loopwatch._outlets import outlets
from loopwatch._reading import LABEL_MAX, Reader

TOP = Path(__file__).parents[2]
VERDICTS = 10


def points_of(watches, reader=None):
    """{row: {labels: value}}"""
    reader = reader or Reader("test", lambda: watches)
    return {metric.name: dict(points) for metric, points in reader.read()}


# --- the table ---


def test_names_are_unique_and_of_one_form():
    assert max(Counter(metric.name for metric in METRICS).values()) == 1
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z_]*(\.[a-z][a-z_]*)?", metric.name), metric
        assert metric.help.endswith("."), metric
        assert not set(labels_of(metric)) & {"le", "quantile", "pid", "job", "instance"}, metric


def test_every_row_is_read():
    """The fake has all that is exported, so that a row which reads nothing reads it wrongly."""
    found = points_of([FakeWatch()])
    of_the_process = {"gc.collections", "gc.pause", "gc.pause_max", "exporter_failures"}
    assert {name for name, points in found.items() if not points} <= of_the_process
    assert not outlets.failures["test"]


def test_values_are_the_watchs():
    watch = FakeWatch()
    found = points_of([watch])
    assert found["turns"] == {("MainThread",): watch.lag.turns}
    assert found["busy"] == {("MainThread",): watch.lag.busy}
    assert found["turn_max"] == {("MainThread", "60s"): BUSY.max, ("MainThread", "300s"): BUSY.max}
    assert found["waiting_quantile"]["MainThread", "60s", "0.999"] == BUSY.waiting(0.999)
    assert len(found["stalls"]) == VERDICTS
    assert found["executor.busy"] == {("MainThread", "default"): 3}
    assert found["route.ceiling"] == {("MainThread", "GET /items/{id}"): 200.0}
    assert found["profile.site"] == {("MainThread", "shop.py:price"): 2.0}
    assert found["watchdog.wakeups"] == {(): 7}
    assert found["loops"] == {(): 1}


def test_what_a_pulse_cannot_tell_is_left_out():
    watch = FakeWatch(lag=NOTHING_KNOWN, windows={60: NOTHING_KNOWN, 300: NOTHING_KNOWN})
    found = points_of([watch])
    for name in ("turns", "busy", "idle", "gil_wait", "turn", "utilization", "turn_max", "waiting_quantile"):
        assert not found[name], name
    assert found["threshold"]


def test_each_part_is_asked_for_once():
    asked = Counter()

    class Watch(FakeWatch):
        def window(self, seconds=60.0):
            asked[seconds] += 1
            return super().window(seconds)

    points_of([Watch()])
    assert asked == {60: 1, 300: 1}


# --- the histogram ---


def test_histogram_counts_every_turn_in_its_bucket():
    busy_times = [random.Random(5).lognormvariate(-6, 2) for _ in range(5000)]
    lag = lag_of(Counter(round(seconds * 1e9) for seconds in busy_times))
    histogram = turn_histogram(lag)
    assert sum(histogram.counts) == histogram.cumulative[-1] == lag.turns == 5000
    assert histogram.seconds == lag.busy
    for bound, counted in zip(BOUNDS, histogram.cumulative, strict=False):
        # A bucket of Lag is at most 1/128 of its value wide, and counts as its middle.
        least = sum(seconds <= bound * (1 - 1 / 128) for seconds in busy_times)
        most = sum(seconds <= bound * (1 + 1 / 128) for seconds in busy_times)
        assert least <= counted <= most


@pytest.mark.parametrize("seconds", [0, 0.00009, 0.03, 0.7, 29, 31, 5000])
def test_histogram_of_one_turn(seconds):
    histogram = turn_histogram(lag_of({round(seconds * 1e9): 1}))
    assert histogram.counts.index(1) == bisect_left(BOUNDS, seconds)
    assert len(histogram.counts) == len(BOUNDS) + 1


def test_histogram_of_nothing():
    assert turn_histogram(lag_of({})) == Histogram((0,) * (len(BOUNDS) + 1), 0.0)


# --- names of loops ---


def test_loops_are_named_by_their_threads_and_names_are_used_again():
    one, two, three = (FakeWatch(thread="worker") for _ in range(3))
    watches = [one, two]
    reader = Reader("test", lambda: watches)
    assert set(points_of(watches, reader)["turns"]) == {("worker",), ("worker-2",)}
    watches[:] = [two, three]
    named = {named.loop: named.look.watch for named in reader.looks()}
    assert named == {"worker-2": two, "worker": three}


def test_ten_thousand_loops_one_after_the_other_have_one_name():
    watches = []
    reader = Reader("test", lambda: watches)
    for _ in range(10_000):
        watches[:] = [FakeWatch()]
        assert [named.loop for named in reader.looks()] == ["MainThread"]


def test_more_loops_than_names():
    watches = [FakeWatch() for _ in range(MOST["loop"] + 5)]
    assert len(points_of(watches)["turns"]) == MOST["loop"]


# --- bounded labels ---


def test_label_values_are_bounded_over_time_and_the_rest_is_counted():
    watch = FakeWatch(slow_turns=FakeProfile({}))
    reader = Reader("test", lambda: [watch])
    seen = {"route": set(), "site": set(), "executor": set()}
    rows = {"route": "route.cpu", "site": "profile.site", "executor": "executor.busy"}
    for number in range(400):
        watch.routes = {f"GET /{number}": route()}
        watch.profile = FakeProfile({f"f{number}": 1.0})
        watch.executors = (FakeExecutor(f"pool {number}"),)
        found = points_of([watch], reader)
        for label, values in seen.items():
            values |= {labels[1] for labels in found[rows[label]]}
    assert {label: len(values) for label, values in seen.items()} == {label: MOST[label] for label in seen}
    assert reader.left_out > 0
    watch.routes = {"GET /0": route()}
    assert points_of([watch], reader)["route.cpu"], "what was admitted stays so"


def test_label_values_are_text_that_can_be_sent():
    watch = FakeWatch(thread="\udcff" + "x" * 500, routes={'GET /\ud800\n"': route()})
    (loop, path), _ = next(iter(points_of([watch])["route.cpu"].items()))
    assert loop == "?" + "x" * (LABEL_MAX - 1)
    assert path == 'GET /?\n"'


def test_executors_of_one_name_are_told_apart():
    watch = FakeWatch(executors=(FakeExecutor("pool", busy=1), FakeExecutor("pool", busy=2)))
    assert points_of([watch])["executor.busy"] == {("MainThread", "pool"): 1, ("MainThread", "pool-2"): 2}


def test_functions_of_one_name_are_one_site():
    class Profile(FakeProfile):
        def top(self, n=10):
            return super().top(n) * 2

    assert points_of([FakeWatch(profile=Profile({"price": 2.0}))])["profile.site"] == {
        ("MainThread", "shop.py:price"): 4.0
    }


# --- failures ---


def test_a_row_that_fails_takes_no_other_with_it(caplog):
    class Watch(FakeWatch):
        @property
        def routes(self):
            raise ZeroDivisionError("no routes today")

        @routes.setter
        def routes(self, value):
            pass

    before = outlets.failures["of a row"]
    reader = Reader("of a row", lambda: [watch])
    watch = Watch()
    found = points_of([watch], reader)
    assert found["turns"]
    assert not found["route.cpu"]
    points_of([watch], reader)
    rows = sum(metric.name.startswith("route.") for metric in LOOP_METRICS)
    assert outlets.failures["of a row"] - before == 2 * rows
    assert [record.getMessage() for record in caplog.records] == ["loopwatch: the exporter of a row failed"]


# --- what is written about it ---


def prometheus_names():
    prometheus = pytest.importorskip("loopwatch.prometheus")
    names = {}
    for metric in METRICS:
        name = prometheus.sample_name(metric)
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names |= {name + part: metric for part in parts}
    return names


def queried(text):
    """Metrics that a text names, and the labels that are selected or grouped by."""
    names = set(re.findall(r"\bloopwatch_[a-z_]+", text))
    labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!=|=)\s*\"", text))
    for group in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", text):
        labels |= {name.strip() for name in group.split(",")}
    return names, labels


KNOWN_TO_PROMETHEUS = {"job", "instance", "pid", "le"}


def test_dashboard_queries_what_is_exported():
    names = prometheus_names()
    dashboard = json.loads((TOP / "dashboards/loopwatch.json").read_text(encoding="utf-8"))
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    expressions += [
        entry["definition"] for entry in dashboard["templating"]["list"] if entry["type"] == "query"
    ]
    assert len(expressions) > 30
    every = {label for metric in METRICS for label in labels_of(metric)} | KNOWN_TO_PROMETHEUS
    for expression in expressions:
        asked, labels = queried(expression)
        assert asked, expression
        assert asked <= names.keys(), expression
        assert labels <= every, expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        assert panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


@pytest.mark.parametrize("file", ["alerts.yml", "alerts_test.yml"])
def test_alert_rules_query_what_is_exported(file):
    text = (TOP / "dashboards" / file).read_text(encoding="utf-8")
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    asked, labels = queried(text)
    assert len(asked) >= 6
    assert asked <= prometheus_names().keys()
    every = {label for metric in METRICS for label in labels_of(metric)} | KNOWN_TO_PROMETHEUS
    assert labels <= every


def test_documentation_has_the_table():
    prometheus = pytest.importorskip("loopwatch.prometheus")
    text = (TOP / "docs/exporters.md").read_text(encoding="utf-8")
    rows = [
        f"| `{prometheus.sample_name(metric)}` | {metric.kind} "
        f"| {', '.join(f'`{label}`' for label in labels_of(metric))} | {metric.help} |"
        for metric in METRICS
    ]
    assert "\n".join(rows) in text, "the table of docs/exporters.md should be:\n" + "\n".join(rows)
