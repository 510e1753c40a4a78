"""LOOPWATCH=0: a slot that watches nothing, so that a Watch is real and inert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from loopwatch._core import CellTuple, Columns, Record


class InertSlot:
    """As _core.Slot, without a native half."""

    key = 0
    turn = 0
    running = False
    thread = None

    def __init__(self, threshold_ns: int, hang_after_ns: int | None) -> None:
        self.threshold_ns = threshold_ns
        self.hang_after_ns = hang_after_ns

    @property
    def state(self) -> Literal["retired"]:
        return "retired"

    def retire(self, timeout_ns: int | None) -> bool:  # noqa: ARG002
        return True

    def exempt(self) -> int:
        return 0

    def current(self, timeout_ns: int) -> Record | None:  # noqa: ARG002
        return None

    def stacks(self, idents: list[int], timeout_ns: int) -> Record | None:  # noqa: ARG002
        return None

    def profile(self, slow: bool, timeout_ns: int) -> Record | None:  # noqa: ARG002
        return None

    def counters(self) -> dict[str, int | float]:
        return {}

    def histogram(self) -> tuple[Columns, dict[str, int]]:
        return (b"", b""), {"turns": 0, "busy_ns": 0, "idle_ns": 0, "gil_wait_ns": 0, "max_ns": 0}

    def cells(self, seconds: int) -> list[CellTuple]:  # noqa: ARG002
        return []

    def window(self, length_ns: int) -> tuple[Columns, dict[str, int], int, int]:  # noqa: ARG002
        return *self.histogram(), 0, 0
