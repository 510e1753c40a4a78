"""A watch with everything that is exported, filled by hand: exporters are tested against it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from reference import histogram as reference

from loopwatch._lag import Lag
from loopwatch._stall import Frame, Verdict

MS = 1_000_000
_keys = itertools.count(1_000_000)


def lag_of(turns_ns: Mapping[int, int], **changes: Any) -> Lag:
    """Of {busy time: turns}."""
    buckets: dict[int, int] = {}
    for busy_ns, count in turns_ns.items():
        bucket = reference.bucket(busy_ns)
        buckets[bucket] = buckets.get(bucket, 0) + count
    totals: dict[str, Any] = {
        "turns": sum(turns_ns.values()),
        "busy_ns": sum(busy_ns * count for busy_ns, count in turns_ns.items()),
        "idle_ns": 10**10,
        "gil_wait_ns": 5 * MS,
        "max_ns": max(turns_ns, default=0),
    }
    return Lag(sorted(buckets.items()), **totals | changes, edge=reference.edge)


BUSY = lag_of({MS // 20: 900, 2 * MS: 60, 30 * MS: 30, 400 * MS: 1})
NOTHING_KNOWN = Lag((), turns=None, busy_ns=None, idle_ns=None, gil_wait_ns=None, max_ns=None)


class FakeProfile:
    def __init__(self, seconds: Mapping[str, float], causes: Mapping[Verdict, float] | None = None) -> None:
        self.causes = causes or {}
        self._rows = [
            SimpleNamespace(frame=Frame("/srv/app/shop.py", 3, qualname), seconds=value)
            for qualname, value in seconds.items()
        ]

    def top(self, n: int = 10) -> tuple[Any, ...]:
        return tuple(sorted(self._rows, key=lambda row: -row.seconds)[:n])


@dataclass
class FakeExecutor:
    name: str
    busy: int = 3

    def state(self) -> Any:
        return SimpleNamespace(
            name=self.name,
            max_workers=4,
            workers=4,
            busy=self.busy,
            queued=2,
            oldest_wait=0.25,
            saturated=1.5,
            submitted=100,
            completed=95,
        )


def route(count: int = 50, cpu: float = 0.25) -> Any:
    return SimpleNamespace(
        count=count, cpu=cpu, busy=0.5, worst_caused=0.4, worst_suffered=0.3, ceiling=count / cpu
    )


def no_totals() -> dict[Verdict, Any]:
    return {verdict: SimpleNamespace(count=0, seconds=0.0, worst=0.0) for verdict in Verdict}


@dataclass
class FakeWatch:
    """Every attribute that loopwatch._look asks for."""

    thread: str | None = "MainThread"
    lag: Lag = BUSY
    threshold: float = 0.1
    pulse: str = "turn"
    capture: str = "raw"
    inherited: bool = False
    windows: Mapping[float, Lag] = field(default_factory=lambda: {60: BUSY, 300: BUSY})
    stall_totals: Mapping[Verdict, Any] = field(default_factory=no_totals)
    executors: tuple[FakeExecutor, ...] = (FakeExecutor("default"),)
    routes: Mapping[str, Any] = field(default_factory=lambda: {"GET /items/{id}": route()})
    profile: Any = field(default_factory=lambda: FakeProfile({"price": 2.0}, {Verdict.PYTHON: 2.0}))
    slow_turns: Any = field(default_factory=lambda: FakeProfile({"price": 0.5}))
    counters: Mapping[str, float] = field(
        default_factory=lambda: {
            "callback_errors": 1,
            "records_dropped": 0,
            "watchdog_cpu_time": 0.125,
            "watchdog_wakeups": 7,
        }
    )
    key: int = field(default_factory=lambda: next(_keys))

    def window(self, seconds: float = 60.0) -> Lag:
        return self.windows[seconds]

    def stats(self) -> dict[str, int | float]:
        return dict(self.counters)
