"""What one look finds: the twin of src/evidence.h, as far as the rules read it. Times in nanoseconds."""

from __future__ import annotations

import enum
from dataclasses import dataclass

PAIRS = 3
"""How many pairs of quick looks one look has."""


class Known(enum.IntFlag):
    CPU = 1
    RUN_QUEUE = 2
    THROTTLED = 4
    FAULTS = 8
    STAND = 16
    GC = 32
    GIL = 64
    MOVED = 128


class Stand(enum.IntEnum):
    UNKNOWN = 0
    RUNNING = 1
    GIL = 2
    FUTEX = 3
    CALL = 4
    PAGE = 5


ALL = Known(255)


@dataclass(frozen=True)
class Look:
    """What one look found: an lw_evidence, as far as the rules read it."""

    at: int
    cpu: int = 0
    run_queue: int = 0
    throttled: int = 0
    stopped: int = 0
    gc: int = 0
    stand: Stand = Stand.UNKNOWN
    known: Known = ALL
    moved: int = 0
    gil_others: bool = False
    in_gc: bool = False
    in_finalizer: bool = False
    turn_callbacks: int = -1
    turn_callback: int = -1
