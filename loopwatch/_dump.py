"""The file that dump_to names: opened for the watchdog to duplicate, and in a forked child once more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from loopwatch._files import identity, is_still, named_by

if TYPE_CHECKING:
    from loopwatch._options import DumpTo

OFF: Final = -1
STDERR: Final = -2

# O_NONBLOCK for the opening only: a FIFO without a reader is an error, not a wait.
_FLAGS: Final = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
)


class DumpFile:
    """Where dumps go, from when it was named: a number may be another file's later, which is none of ours."""

    def __init__(self, dump_to: DumpTo = None) -> None:
        self._dump_to = dump_to
        self._identity: tuple[int, int] | None = None
        if isinstance(dump_to, int) and not isinstance(dump_to, bool):
            self._identity = identity(os.fstat(dump_to))

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor to take a duplicate of, OFF or STDERR."""
        to = self._dump_to
        if to is None or to is False:
            yield STDERR if to is None else OFF
        elif isinstance(to, int):
            yield to if is_still(to, self._identity) else OFF
        else:
            with named_by("dump_to"):
                descriptor = os.open(to, _FLAGS, 0o600)
            try:
                os.set_blocking(descriptor, True)
                yield descriptor
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def opened_again(self) -> Iterator[int]:
        """In a forked child. OFF where that fails."""
        with contextlib.ExitStack() as stack:
            try:
                descriptor = stack.enter_context(self.opened())
            except OSError:
                descriptor = OFF
            yield descriptor
