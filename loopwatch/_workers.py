"""Where the threads of a pool stand, for a report: read as the frames of a stall are.

capture="raw": by the watchdog, without the GIL, through guarded reads. capture="gil": by the reporter, with
sys._current_frames(), which on CPython 3.11 can deadlock and on free-threaded builds can crash; so it is used
where the watch uses it anyway, and never in place of raw reads that did not answer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from loopwatch._build import unpack_frame
from loopwatch._capture import walk
from loopwatch._options import Capture
from loopwatch._stall import Frame

if TYPE_CHECKING:
    from loopwatch._core import Slot
    from loopwatch._inert import InertSlot

WORKERS_MAX: Final = 32
"""Threads looked at for one report."""
_WITHIN_NS: Final = 500_000_000


def read_frames(
    threads: Sequence[threading.Thread], capture: Capture, slot: Slot | InertSlot
) -> Mapping[int, tuple[Frame, ...]]:
    """By ident; outermost first. Those that could not be read are missing."""
    idents = [thread.ident for thread in threads[:WORKERS_MAX] if thread.ident is not None]
    if capture == "raw":
        return _read_raw(idents, slot)
    return _read_with_gil(idents) if capture == "gil" else {}


def _read_raw(idents: list[int], slot: Slot | InertSlot) -> dict[int, tuple[Frame, ...]]:
    record = slot.stacks(idents, _WITHIN_NS)
    if record is None:
        return {}
    frames = [unpack_frame(packed) for packed in record["frames"]]
    found = {}
    for _, _, _, _, _, _, stack, holder, _ in record["samples"]:
        if stack >= 0 and holder >= 0:
            _, ident = record["holders"][holder]
            found[ident] = tuple(frames[index] for index in record["stacks"][stack])
    return found


def _read_with_gil(idents: list[int]) -> dict[int, tuple[Frame, ...]]:
    # Not in a variable of this frame, which is among them: the two would keep each other, and the watch.
    return {ident: walk(top)[0] for ident, top in sys._current_frames().items() if ident in idents}
