"""Metrics and stalls for OpenTelemetry, by its API: `pip install 'loopwatch[otel]'`.

`instrument()` once in the process. Metrics are observable instruments named `loopwatch.*`, read when the SDK collects;
stalls are log records. The histogram of turns is left out, since OpenTelemetry has no observable histogram: the
quantiles are there. OpenTelemetry calls its logs API unstable; where a version has none that fits, metrics are
exported alone, and the log says so.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from loopwatch import _core
from loopwatch._look import Histogram, Point
from loopwatch._metrics import METRICS, LoopMetric, Metric, ProcessMetric, labels_of
from loopwatch._outlets import Outlet, outlets
from loopwatch._reading import NamedLook, Reader
from loopwatch._requests import tracing
from loopwatch._stall import Stall
from loopwatch._text import stack_lines

try:
    from opentelemetry import metrics, trace
except ImportError as problem:
    raise ImportError("loopwatch.otel needs opentelemetry-api: pip install 'loopwatch[otel]'") from problem

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["OtelExporter", "instrument", "trace_labels"]

UNITS: Final[Mapping[str, str]] = {
    "": "1",
    "ratio": "1",
    "requests_per_second": "{request}/s",
    "seconds": "s",
}
EXPORTED: Final = tuple(metric for metric in METRICS if metric.kind != "histogram")


def instrument_name(metric: Metric) -> str:
    return f"loopwatch.{metric.name}"


def trace_labels() -> dict[str, str]:
    """`trace_id` and `span_id` of the span that is current here, as labels for a stall; {} where there is none.

    LoopwatchMiddleware asks for them when a request begins, while an exporter is open: in `Stall.labels` they put
    the log record of a stall that the request made into its trace.
    """
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }


class OtelExporter(Outlet):
    """Exports until close()."""

    name = "otel"

    def __init__(self, instruments: _Instruments, logger: Logger | None) -> None:
        self._instruments, self._logger = instruments, logger
        instruments.on = True
        tracing.labels = trace_labels
        outlets.add(self)

    @property
    def logs(self) -> bool:
        """Whether stalls become log records."""
        return self._logger is not None

    def close(self) -> None:
        """The instruments stay, as OpenTelemetry keeps them, and observe nothing any more. Idempotent."""
        if outlets.remove(self):
            self._instruments.on = False
            tracing.labels = None

    def stall(self, stall: Stall) -> None:
        if self._logger is None:
            return
        from opentelemetry._logs import SeverityNumber

        severity = SeverityNumber.ERROR if stall.ongoing else SeverityNumber.WARN
        self._logger.emit(
            timestamp=round(stall.started_at.timestamp() * 1e9),
            context=_context(stall),
            severity_number=severity,
            severity_text=severity.name,
            body=stall.summary,
            attributes=_attributes(stall),
            event_name="loopwatch.stall",
        )


# --- stalls ---


def _context(stall: Stall) -> Context | None:
    """That of the span which the labels name."""
    try:
        trace_id, span_id = int(stall.labels["trace_id"], 16), int(stall.labels.get("span_id", "0"), 16)
    except (KeyError, ValueError):
        return None
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    span = trace.NonRecordingSpan(trace.SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags))
    return trace.set_span_in_context(span)


def _attributes(stall: Stall) -> dict[str, str | int | float | bool]:
    """Under the names of the semantic conventions where they have one."""
    without_source = dataclasses.replace(stall, source={})  # it stays on this host
    said: dict[str, Any] = {
        "thread.name": stall.thread,
        "thread.id": stall.native_thread_id,
        "code.stacktrace": "\n".join(stack_lines(stall.frames, without_source, stall.truncated)),
        "loopwatch.id": stall.id,
        "loopwatch.duration": stall.duration,
        "loopwatch.ongoing": stall.ongoing,
        "loopwatch.verdict": str(stall.verdict),
        "loopwatch.fingerprint": stall.fingerprint,
        "loopwatch.hint": stall.hint,
    }
    if stall.culprit is not None:
        said["code.file.path"] = stall.culprit.filename
        said["code.line.number"] = stall.culprit.lineno
        said["code.function.name"] = stall.culprit.qualname
    if stall.task is not None:
        said["loopwatch.task.name"] = stall.task.name
        said["loopwatch.task.coroutine"] = stall.task.coroutine
    said |= {f"loopwatch.breakdown.{verdict}": seconds for verdict, seconds in stall.breakdown.items()}
    said |= {f"loopwatch.label.{name}": text for name, text in stall.labels.items()}
    return said


def _logger(provider: LoggerProvider | None) -> Logger | None:
    try:
        from opentelemetry._logs import Logger, get_logger_provider

        if "event_name" not in inspect.signature(Logger.emit).parameters:
            raise TypeError("Logger.emit takes no event_name")
        return (provider or get_logger_provider()).get_logger("loopwatch", _core.VERSION)
    except (ImportError, TypeError, AttributeError) as problem:
        logging.getLogger("loopwatch").warning(
            "loopwatch: this version of OpenTelemetry has no logs API that fits (%s): metrics are exported, "
            "stalls are not. opentelemetry-api 1.39 has one.",
            problem,
        )
        return None


# --- metrics ---


class _Instruments:
    """Of one meter provider. The SDK calls back for one instrument after the other, on a thread of its own: those of
    one collection share a look at each watch. A new collection has begun when an instrument asks again."""

    def __init__(self, provider: MeterProvider) -> None:
        self.on = False
        self._reader = Reader("otel")
        self._looks: list[NamedLook] = []
        self._asked: set[str] = set()
        meter = provider.get_meter("loopwatch", _core.VERSION)
        for metric in EXPORTED:
            create = (
                meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
            )
            create(
                instrument_name(metric),
                callbacks=[self._callback(metric)],
                unit=UNITS[metric.unit],
                description=metric.help,
            )

    def _callback(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        attributes = [f"loopwatch.{label}" for label in labels_of(metric)]

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [
                metrics.Observation(value, dict(zip(attributes, values, strict=True)))
                for values, value in self._points(metric)
                if not isinstance(value, Histogram)
            ]

        return observe

    def _points(self, metric: Metric) -> list[Point]:
        if not self.on:
            return []
        if isinstance(metric, ProcessMetric):
            return self._reader.of_process(metric)
        assert isinstance(metric, LoopMetric)
        return self._reader.of_loops(metric, self._looks_for(metric.name))

    def _looks_for(self, name: str) -> list[NamedLook]:
        if name in self._asked or not self._looks:
            self._looks, self._asked = self._reader.looks(), set()
        self._asked.add(name)
        return self._looks


_instruments: weakref.WeakKeyDictionary[Any, _Instruments] = weakref.WeakKeyDictionary()


def instrument(
    meter_provider: MeterProvider | None = None, logger_provider: LoggerProvider | None = None
) -> OtelExporter:
    """Export the metrics and the stalls of every watch of this process, until close() of what is returned.

    The providers: None: the global ones, also where these are set later.
    """
    provider = meter_provider if meter_provider is not None else metrics.get_meter_provider()
    if provider not in _instruments:
        _instruments[provider] = _Instruments(provider)
    return OtelExporter(_instruments[provider], _logger(logger_provider))
