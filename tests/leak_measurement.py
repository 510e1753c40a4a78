"""What a call leaves behind in memory.

Blocks of Python's allocator and bytes of the C library's are counted exactly, so one block a call shows.
What caches do once looks like a leak in one measurement; only what grows in each of several is one.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

from programs import GIL
from scenario import no_thread_of_ours

WARM_UP = 10
CALLS = 40
MEASUREMENTS = 6
COLLECTIONS = 1 if GIL else 3
"""Without a GIL what one collection frees may leave more for the next."""


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    ]


LIBC = ctypes.CDLL(None)
if TELLS := hasattr(LIBC, "mallinfo2"):
    LIBC.mallinfo2.restype = _Mallinfo2


def allocated_bytes() -> int:
    """malloc's, all arenas; 0 where the C library does not tell."""
    if not TELLS:
        return 0
    info = LIBC.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def settle() -> None:
    """Empty what only looks like a leak: the cache of method names, which keeps up to 4096 strings that
    C code made for a look-up (CPython 3.11 finds them by address), then garbage; it empties free lists."""
    clear_caches()
    for _ in range(COLLECTIONS):
        gc.collect()


clear_caches = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache


def measure(call: Callable[[], object], calls: int) -> tuple[int, int, int]:
    """(blocks, bytes, references) more after so many calls."""
    total = getattr(sys, "gettotalrefcount", lambda: 0)
    settle()
    before = sys.getallocatedblocks(), allocated_bytes(), total()
    for _ in range(calls):
        call()
    no_thread_of_ours()
    settle()
    after = sys.getallocatedblocks(), allocated_bytes(), total()
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


def leaks(call: Callable[[], object], calls: int = CALLS) -> list[tuple[int, int, int]]:
    """The measurements, if all of them grew."""
    for _ in range(min(WARM_UP, calls)):
        call()
    measured = []
    few, few_bytes = (
        calls * 3 // 4,
        calls * 16,
    )  # less than one block a call, or than the smallest of malloc's
    for _ in range(MEASUREMENTS):
        blocks, size, references = measure(call, calls)
        measured.append((blocks, size, references))
        if blocks <= few and size <= few_bytes and references <= few:
            return []
    return measured
