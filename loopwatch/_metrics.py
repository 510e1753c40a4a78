"""What is exported as metrics: one table, from which every exporter draws, and how each row is read of a watch.

Names are neutral: dotted, without unit. Prometheus makes `loopwatch_busy_seconds_total` of ("busy", counter,
"seconds"), OpenTelemetry `loopwatch.busy` with the unit "s". What a pulse cannot tell is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from loopwatch import _look as read
from loopwatch._look import TOP, Look, Point

if TYPE_CHECKING:
    from loopwatch._watch import Watch

Kind = Literal["counter", "gauge", "histogram"]
Unit = Literal["", "seconds", "ratio", "requests_per_second"]

MOST: Final[Mapping[str, int]] = {"loop": 64, "executor": 64, "route": 256, "site": 100}
"""Values that a label has at most, in the life of an exporter; further ones are left out, and counted."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of the table."""

    name: str
    kind: Kind
    unit: Unit
    help: str
    labels: tuple[str, ...] = ()
    """In a row of LOOP_METRICS `loop` comes first, and is not among what is read."""


@dataclass(frozen=True, slots=True)
class LoopMetric(Metric):
    read: Callable[[Look], Iterable[Point]] = lambda _: ()


@dataclass(frozen=True, slots=True)
class ProcessMetric(Metric):
    read: Callable[[list[Watch]], Iterable[Point]] = lambda _: ()


# --- the table ---

_WINDOW: Final = ("window",)
_QUANTILE: Final = ("window", "q")  # "quantile" is reserved for summaries

LOOP_METRICS: Final[tuple[LoopMetric, ...]] = (
    LoopMetric("watch.info", "gauge", "", "1 for each watched loop.", ("pulse", "capture"), read.watch_info),
    LoopMetric("threshold", "gauge", "seconds", "A turn of this length is a stall.",
        (), read.one(lambda look: look.watch.threshold)),
    LoopMetric("turns", "counter", "", "Turns of the loop.", (), read.one(lambda look: look.lag.turns)),
    LoopMetric("busy", "counter", "seconds", "Time in which an event that became ready had to wait.",
        (), read.one(lambda look: look.lag.busy)),
    LoopMetric("idle", "counter", "seconds", "Time in which the loop waited for an event.",
        (), read.one(lambda look: look.lag.idle)),
    LoopMetric("gil_wait", "counter", "seconds",
        "The part of busy in which the loop's thread waited for the GIL.",
        (), read.one(lambda look: look.lag.gil_wait)),
    LoopMetric("turn", "histogram", "seconds", "Busy time of each turn.", (), read.turns),
    LoopMetric("utilization", "gauge", "ratio", "busy / (busy + idle), over the window.",
        _WINDOW, read.by_window(lambda lag: lag.utilization)),
    LoopMetric("turn_max", "gauge", "seconds", "The longest turn of the window.",
        _WINDOW, read.by_window(lambda lag: lag.max)),
    LoopMetric("turn_quantile", "gauge", "seconds", "Quantiles of the turns of the window (the last minute).",
        _QUANTILE, read.by_quantile(lambda lag, q: lag.quantile(q))),
    LoopMetric("waiting_quantile", "gauge", "seconds",
        "Quantiles of how long an event waits that becomes ready at a random moment of the last minute.",
        _QUANTILE, read.by_quantile(lambda lag, q: lag.waiting(q))),
    LoopMetric("stalls", "counter", "", "Stalls that ended, by cause.",
        ("verdict",), read.by_key("stall_totals", "count")),
    LoopMetric("stalled", "counter", "seconds", "Time in stalls that ended, by cause.",
        ("verdict",), read.by_key("stall_totals", "seconds")),
    LoopMetric("profile.cause", "counter", "seconds", "Busy time by cause, from samples.",
        ("cause",), read.profile_causes),
    LoopMetric("profile.site", "counter", "seconds",
        f"Busy time by function, from samples; the {TOP} largest.",
        ("site",), read.by_site("profile")),
    LoopMetric("slow_turns.site", "counter", "seconds",
        f"Time in turns longer than a quarter of the threshold, by function; the {TOP} largest.",
        ("site",), read.by_site("slow_turns")),
    LoopMetric("executor.workers", "gauge", "", "Threads that the executor has.",
        ("executor",), read.by_key("executors", "workers")),
    LoopMetric("executor.workers_max", "gauge", "", "Threads that the executor may have.",
        ("executor",), read.by_key("executors", "max_workers")),
    LoopMetric("executor.busy", "gauge", "", "Threads that run a call.",
        ("executor",), read.by_key("executors", "busy")),
    LoopMetric("executor.queued", "gauge", "", "Calls that wait for a thread.",
        ("executor",), read.by_key("executors", "queued")),
    LoopMetric("executor.oldest_wait", "gauge", "seconds", "How long the first of them has waited.",
        ("executor",), read.by_key("executors", "oldest_wait")),
    LoopMetric("executor.saturated", "counter", "seconds",
        "Time in which calls waited while every thread was busy.",
        ("executor",), read.by_key("executors", "saturated")),
    LoopMetric("executor.submitted", "counter", "", "Calls submitted.",
        ("executor",), read.by_key("executors", "submitted")),
    LoopMetric("executor.completed", "counter", "", "Calls completed.",
        ("executor",), read.by_key("executors", "completed")),
    LoopMetric("route.requests", "counter", "", "Requests answered.", ("route",), read.by_key("routes", "count")),
    LoopMetric("route.cpu", "counter", "seconds", "CPU time of the loop's thread in requests.",
        ("route",), read.by_key("routes", "cpu")),
    LoopMetric("route.busy", "counter", "seconds", "Time of the loop in requests.",
        ("route",), read.by_key("routes", "busy")),
    LoopMetric("route.worst_caused", "gauge", "seconds", "The longest stall that a request caused.",
        ("route",), read.by_key("routes", "worst_caused")),
    LoopMetric("route.worst_suffered", "gauge", "seconds", "The longest stall that a request waited in.",
        ("route",), read.by_key("routes", "worst_suffered")),
    LoopMetric("route.ceiling", "gauge", "requests_per_second",
        "What one process can answer at most: 1 / CPU time of a request.",
        ("route",), read.by_key("routes", "ceiling")),
    LoopMetric("callback_errors", "counter", "", "What stall callbacks raised.",
        (), read.one(lambda look: look.stats["callback_errors"])),
    LoopMetric("records_dropped", "counter", "", "Reports for which there was no room.",
        (), read.one(lambda look: look.stats["records_dropped"])),
)  # fmt: skip

PROCESS_METRICS: Final[tuple[ProcessMetric, ...]] = (
    ProcessMetric("loops", "gauge", "", "Loops that are watched.", (), read.loops),
    ProcessMetric("gc.collections", "counter", "", "Garbage collections.", ("generation",), read.gc("count")),
    ProcessMetric("gc.pause", "counter", "seconds", "Time in garbage collections.",
        ("generation",), read.gc("seconds")),
    ProcessMetric("gc.pause_max", "gauge", "seconds", "The longest garbage collection so far.",
        ("generation",), read.gc("worst")),
    ProcessMetric("watchdog.cpu", "counter", "seconds", "CPU time of the watchdog.",
        (), read.watchdog("watchdog_cpu_time")),
    ProcessMetric("watchdog.wakeups", "counter", "", "How often the watchdog woke.",
        (), read.watchdog("watchdog_wakeups")),
    ProcessMetric("exporter_failures", "counter", "", "What an exporter raised, by exporter.",
        ("exporter",), read.exporter_failures),
)  # fmt: skip

METRICS: Final[tuple[Metric, ...]] = LOOP_METRICS + PROCESS_METRICS


def labels_of(metric: Metric) -> tuple[str, ...]:
    """All of them: the loop first, where the row is one of a loop."""
    return ("loop", *metric.labels) if isinstance(metric, LoopMetric) else metric.labels
