"""The garbage collector: freeze_startup(), which takes what is there at start out of its sight, and gc_pauses()."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass

from loopwatch import _core
from loopwatch._registry import registry


@dataclass(frozen=True, slots=True)
class FreezeResult:
    """What freeze_startup() did. Times in seconds."""

    frozen: int
    """Objects that the collector looked at before and does not look at any more."""
    collected: int
    """Objects that were garbage."""
    pause_before: float
    """How long a full collection took before it: what each one would have cost, without garbage to free."""
    pause_after: float
    """How long one took afterwards."""


@dataclass(frozen=True, slots=True)
class GcPauses:
    """Collections of one generation, since this process first watched a loop. Times in seconds."""

    generation: int
    count: int
    seconds: float
    worst: float
    """The longest of them."""


def gc_pauses() -> tuple[GcPauses, ...]:
    """The pauses that the collector made in this process while loops were watched, by generation: always
    three rows, which only ever grow. Those of freeze_startup() do not count. From any thread."""
    return tuple(
        GcPauses(generation, count, ns / 1e9, worst_ns / 1e9)
        for generation, (count, ns, worst_ns) in enumerate(_core.gc_pauses())
    )


def freeze_startup() -> FreezeResult:
    """Collect garbage, then take what is left out of the collector's sight (gc.freeze): call it once the program has
    loaded what it keeps, and before it serves. Full collections are shorter from then on.

    It takes three full collections, and stops every thread that long. Inside a callback of a watched loop the turn is
    exempt from reports. A collector that is switched off stays off. What it returns says how many objects are frozen,
    and how many seconds a full collection took before and after."""
    with _exempt(), _left_out():
        collected = gc.collect()
        pause_before = _full_collection()
        known = gc.get_freeze_count()
        gc.freeze()
        frozen = gc.get_freeze_count() - known
        pause_after = _full_collection()
    return FreezeResult(max(frozen, 0), collected, pause_before, pause_after)


def _full_collection() -> float:
    began = time.perf_counter()
    gc.collect()
    return time.perf_counter() - began


def _exempt() -> contextlib.AbstractContextManager[None]:
    """What freeze_startup() does to the loop that runs here was asked for."""
    loop = asyncio._get_running_loop()
    watch = registry().find(loop) if loop is not None else None
    return contextlib.nullcontext() if watch is None else watch.exempt("freeze_startup")


@contextlib.contextmanager
def _left_out() -> Iterator[None]:
    _core.gc_leave_out(True)
    try:
        yield
    finally:
        _core.gc_leave_out(False)
