"""Where what cannot wait is told: standard error, past what the program does to it later."""

from __future__ import annotations

import contextlib
import os
import sys

from loopwatch._files import identity, is_still


class Terminal:
    """Standard error as it is now, whatever becomes of descriptor 2: a duplicate."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._identity = identity(os.fstat(descriptor))

    @classmethod
    def of_this_process(cls) -> Terminal | None:
        """None where it has none."""
        if sys.__stderr__ is None:
            return None
        try:
            return cls(os.dup(sys.__stderr__.fileno()))
        except (OSError, ValueError):  # closed
            return None

    def write(self, text: str) -> None:
        left = text.encode(errors="backslashreplace")
        with contextlib.suppress(OSError):
            while left and is_still(self.descriptor, self._identity):
                left = left[os.write(self.descriptor, left) :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if is_still(self.descriptor, self._identity):
                os.close(self.descriptor)
