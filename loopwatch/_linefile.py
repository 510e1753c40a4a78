"""A file to which several processes append lines, each in one write, and which may be moved away at any time."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import Final

from loopwatch._files import identity, is_still

# O_NONBLOCK for the opening only: a FIFO without a reader is an error, not a wait.
_FLAGS: Final = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY | os.O_NONBLOCK
)


class LineFile:
    """Opened to append with mode 0600, not through a symbolic link, not for child processes. Any thread.

    A line is written by one call, so lines of other processes cannot come between its parts. Before each, the
    file is opened again where the path does not lead to it any more (logrotate needs no signal), or the program has
    closed a descriptor that it does not own. With `max_bytes` a file that would grow beyond is renamed to `path.1`,
    in place of the one before.
    """

    def __init__(self, path: str | os.PathLike[str], max_bytes: int | None = None) -> None:
        self._path, self._max_bytes = Path(path), max_bytes
        self._process, self._lock = os.getpid(), threading.Lock()
        self._torn = False
        self._descriptor: int | None = self._opened()

    def write(self, line: bytes) -> None:
        """One line, with its end. OSError where it could not be written whole; ValueError: it is closed."""
        with self._locked():
            if self._descriptor is None:
                raise ValueError(f"{self._path} is closed")
            self._follow_path(len(line))
            # What a full disk cut off must not spoil the next line as well.
            data = b"\n" + line if self._torn else line
            written = os.write(self._descriptor, data)
            self._torn = written < len(data)
            if self._torn:
                raise OSError(f"{self._path}: {written} of {len(data)} bytes were written")

    def close(self) -> None:
        """Idempotent."""
        with self._locked():
            if self._descriptor is not None and self._is_ours():
                os.close(self._descriptor)
            self._descriptor = None

    def _locked(self) -> threading.Lock:
        if self._process != os.getpid():  # forked: somebody may have held the lock
            self._process, self._lock = os.getpid(), threading.Lock()
        return self._lock

    # --- with the lock ---

    def _opened(self) -> int:
        descriptor = os.open(self._path, _FLAGS, 0o600)
        os.set_blocking(descriptor, True)
        self._identity = identity(os.fstat(descriptor))
        return descriptor

    def _follow_path(self, coming: int) -> None:
        if not self._is_ours() or self._moved():
            self._reopen()
        elif self._max_bytes is not None:
            assert self._descriptor is not None
            status = os.fstat(self._descriptor)
            if stat.S_ISREG(status.st_mode) and 0 < status.st_size > self._max_bytes - coming:
                self._rotate(self._descriptor)

    def _is_ours(self) -> bool:
        return self._descriptor is not None and is_still(self._descriptor, self._identity)

    def _moved(self) -> bool:
        try:
            return identity(self._path.lstat()) != self._identity
        except FileNotFoundError:
            return True
        except PermissionError:
            # A server that has dropped its rights keeps the file that it opened with them.
            return False

    def _reopen(self) -> None:
        old = self._descriptor if self._is_ours() else None
        self._descriptor = self._opened()  # first: where that fails the old one serves on
        self._torn = False
        if old is not None:
            os.close(old)

    def _rotate(self, descriptor: int) -> None:
        """Under a lock on the file itself: another process may be about to do the same."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if not self._moved():
                self._path.replace(f"{self._path}.1")
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        self._reopen()
