"""The directory of a run, below TMPDIR: what its processes write lies there while it runs.

records.jsonl   JSON lines of every process (loopwatch.jsonl), unless they go to the report itself
loops           "PID - STARTED START" for each process, "PID KEY STARTED START" for each loop that was watched, also of
                processes that are killed: as their lines have it, and as their pages have it
failed          one byte, which is not 0 where something could not be written; it is there from the begin on, so
                that a full disk cannot keep it back

A run that is killed leaves it behind, for `loopwatch report`; after a week a later run removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loopwatch._status import KEPT_SECONDS

RECORDS: Final = "records.jsonl"
LOOPS: Final = "loops"
_FAILED: Final = "failed"
_PREFIX: Final = "loopwatch-run-"
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def made() -> Iterator[Path]:
    """A new one, which is gone at the end."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        descriptor = os.open(name, _OPEN)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # says that this run goes on
            Path(name, _FAILED).write_bytes(b"\0")
            yield Path(name)
        finally:
            os.close(descriptor)


def note_failure(directory: Path) -> None:
    """In any of the run's processes."""
    with contextlib.suppress(OSError), (directory / _FAILED).open("r+b") as file:
        file.write(b"1")


def has_failed(directory: Path) -> bool:
    """Also where the program has removed it all."""
    try:
        return (directory / _FAILED).read_bytes() != b"\0"
    except OSError:
        return True


def _sweep(place: Path) -> None:
    """Those of runs that were killed long ago."""
    for directory in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if _is_abandoned(directory):
                shutil.rmtree(directory)


def _is_abandoned(directory: Path) -> bool:
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    changed = max([status.st_mtime, *(path.lstat().st_mtime for path in directory.iterdir())])
    if time.time() - changed <= KEPT_SECONDS:
        return False
    descriptor = os.open(directory, _OPEN)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
