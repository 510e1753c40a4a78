"""Which file it is, whatever its name or its descriptor; and which option named one that cannot be opened."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


def identity(status: os.stat_result) -> tuple[int, int]:
    """The same as before: the same file, and not another one that has its name or number by now."""
    return status.st_dev, status.st_ino


def is_still(descriptor: int, file: tuple[int, int] | None) -> bool:
    """Whether it is that file, by its identity(). The program may have closed a descriptor that it does not own, as
    daemons do with all: then its number is nothing's, or another file's."""
    try:
        return identity(os.fstat(descriptor)) == file
    except OSError:
        return False


@contextlib.contextmanager
def named_by(option: str) -> Iterator[None]:
    """What the system says of a path in here names the option; class, errno and filename stay as they are."""
    try:
        yield
    except OSError as problem:
        if problem.errno is None or str(problem.strerror).startswith(option):
            raise
        reason = f"{option} cannot be opened: {problem.strerror}"
        raise OSError(problem.errno, reason, problem.filename) from None
