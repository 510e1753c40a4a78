"""OpenTelemetry: what the SDK collects is what the watch says, and stalls are log records in their traces."""

from __future__ import annotations

import json
import logging
import time

import pytest
from asgi_client import ask
from fakewatch import BUSY, FakeExecutor, FakeWatch
from records import APP, stall

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs import export as logs_export
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import loopwatch
from loopwatch import _reading, otel
from loopwatch._metrics import METRICS
from loopwatch._outlets import outlets
from loopwatch._stall import Verdict
from loopwatch.asgi import LoopwatchMiddleware

InMemoryLogs = getattr(logs_export, "InMemoryLogRecordExporter", None) or logs_export.InMemoryLogExporter


@pytest.fixture
def watches(monkeypatch):
    found = [FakeWatch()]
    monkeypatch.setattr(_reading.Reader.__init__, "__defaults__", (lambda: found,))
    return found


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def meter_provider(reader):
    provider = MeterProvider([reader])
    yield provider
    provider.shutdown()


@pytest.fixture
def logs():
    return InMemoryLogs()


@pytest.fixture
def logger_provider(logs):
    provider = LoggerProvider()
    provider.add_log_record_processor(logs_export.SimpleLogRecordProcessor(logs))
    yield provider
    provider.shutdown()


@pytest.fixture
def exporter(meter_provider, logger_provider, watches):  # noqa: ARG001
    exporter = otel.instrument(meter_provider, logger_provider)
    yield exporter
    exporter.close()


def collected(reader):
    """{instrument: {attributes: value}}; units and kinds aside."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    json.loads(data.to_json())
    return {
        metric.name: {
            tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points
        }
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def of_loop(found, name, **labels):
    attributes = {f"loopwatch.{label}": value for label, value in {"loop": "MainThread", **labels}.items()}
    return found[name][tuple(sorted(attributes.items()))]


# --- metrics ---


def test_collected_values_are_the_watchs(exporter, reader, watches):  # noqa: ARG001
    found = collected(reader)
    assert of_loop(found, "loopwatch.turns") == watches[0].lag.turns
    assert of_loop(found, "loopwatch.busy") == watches[0].lag.busy
    assert of_loop(found, "loopwatch.turn_max", window="60s") == BUSY.max
    assert of_loop(found, "loopwatch.executor.busy", executor="default") == 3
    assert of_loop(found, "loopwatch.route.cpu", route="GET /items/{id}") == 0.25
    assert len(found["loopwatch.stalls"]) == len(Verdict)
    watches[0].executors = (FakeExecutor("default", busy=0),)
    assert of_loop(collected(reader), "loopwatch.executor.busy", executor="default") == 0


def test_every_row_but_the_histogram_has_an_instrument(exporter, reader):  # noqa: ARG001
    rows = {f"loopwatch.{metric.name}" for metric in METRICS if metric.kind != "histogram"}
    gc_rows = {name for name in rows if name.startswith("loopwatch.gc.")}  # the fake is a loop, not a process
    assert rows - gc_rows <= collected(reader).keys() <= rows


def test_kinds_and_units(exporter, reader):  # noqa: ARG001
    data = reader.get_metrics_data()
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics["loopwatch.busy"].unit == metrics["loopwatch.turn_max"].unit == "s"
    assert metrics["loopwatch.utilization"].unit == metrics["loopwatch.turns"].unit == "1"
    assert metrics["loopwatch.route.ceiling"].unit == "{request}/s"
    assert metrics["loopwatch.busy"].data.is_monotonic
    assert not hasattr(metrics["loopwatch.turn_max"].data, "is_monotonic")


def test_one_collection_looks_once(exporter, reader, watches):  # noqa: ARG001
    looks = []

    class Watch(FakeWatch):
        def window(self, seconds=60.0):
            looks.append(seconds)
            return super().window(seconds)

    watches[0] = Watch()
    for _ in range(3):
        collected(reader)
    assert looks == [60, 300] * 3


@pytest.mark.usefixtures("watches")
def test_after_close_nothing_is_observed_and_again_it_is(meter_provider, logger_provider, reader, caplog):
    first = otel.instrument(meter_provider, logger_provider)
    assert collected(reader)
    first.close()
    first.close()
    assert collected(reader) == {}
    second = otel.instrument(meter_provider, logger_provider)
    assert of_loop(collected(reader), "loopwatch.turns")
    second.close()
    assert not caplog.records, "no instrument was made twice"


# --- stalls ---


def test_a_stall_is_a_log_record(exporter, logs):
    assert exporter.logs
    told = stall(labels={"route": "GET /"}, source={(APP, 20): "load(everything)"})
    outlets.tell(told)
    (finished,) = logs.get_finished_logs()
    record = finished.log_record
    assert record.body == told.summary
    assert record.severity_number == _logs.SeverityNumber.WARN
    assert record.event_name == "loopwatch.stall"
    assert record.timestamp == round(told.started_at.timestamp() * 1e9)
    attributes = dict(record.attributes)
    assert attributes["code.function.name"] == "load"
    assert attributes["code.line.number"] == 20
    assert attributes["loopwatch.verdict"] == "unknown"
    assert attributes["loopwatch.breakdown.unknown"] == 0.3
    assert attributes["loopwatch.label.route"] == "GET /"
    assert f'File "{APP}", line 20, in load' in attributes["code.stacktrace"]
    assert "load(everything)" not in json.dumps(attributes)
    assert record.trace_id == 0


def test_a_hang_is_an_error(exporter, logs):  # noqa: ARG001
    outlets.tell(stall(ongoing=True))
    assert logs.get_finished_logs()[0].log_record.severity_number == _logs.SeverityNumber.ERROR


def test_the_record_is_in_the_trace_that_the_labels_name(exporter, logs):  # noqa: ARG001
    with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
        labels = otel.trace_labels()
    assert otel.trace_labels() == {}
    outlets.tell(stall(labels=labels))
    record = logs.get_finished_logs()[0].log_record
    assert record.trace_id == span.get_span_context().trace_id
    assert record.span_id == span.get_span_context().span_id
    assert trace.format_trace_id(record.trace_id) == labels["trace_id"]


@pytest.mark.parametrize("trace_id", ["", "not hex", "0" * 32])
def test_a_trace_that_makes_no_sense_is_none(exporter, logs, trace_id):  # noqa: ARG001
    outlets.tell(stall(labels={"trace_id": trace_id}))
    assert logs.get_finished_logs()[0].log_record.trace_id == 0


@pytest.mark.usefixtures("watches")
def test_without_a_logs_api_that_fits_metrics_are_exported_alone(meter_provider, reader, monkeypatch, caplog):
    monkeypatch.setattr(_logs.Logger, "emit", lambda self, record: None)  # noqa: ARG005
    with caplog.at_level(logging.WARNING, "loopwatch"):
        exporter = otel.instrument(meter_provider)
    try:
        assert not exporter.logs
        assert "stalls are not" in caplog.text
        outlets.tell(stall())
        assert of_loop(collected(reader), "loopwatch.turns")
    finally:
        exporter.close()


def test_a_logger_that_fails_is_counted(exporter, logger_provider):  # noqa: ARG001
    before = outlets.failures["otel"]

    class Broken:
        def emit(self, **_):
            raise ConnectionError("no collector")

    exporter._logger = Broken()
    outlets.tell(stall())
    assert outlets.failures["otel"] == before + 1


def test_a_stall_is_in_the_trace_of_the_request_that_made_it(exporter, logs):  # noqa: ARG001
    async def app(_scope, _receive, send):
        time.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def main():
        with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
            await ask(LoopwatchMiddleware(app), "/")
        return span.get_span_context().trace_id

    trace_id = loopwatch.run(main(), threshold=0.1, log=False, dump_to=False)
    assert trace_id in [log.log_record.trace_id for log in logs.get_finished_logs()]
