"""Where a report is written to: whether that can be, and then whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_NAME_MAX: Final = 60
"""Characters: as bytes, with what is added, no file system's limit."""


def check_place(path: Path) -> None:
    """OSError, in the words of the one who named it, where a file cannot be put there."""
    with _naming(path):
        descriptor, beside = _opened_beside(path)
        os.close(descriptor)
        beside.unlink()


def replace(path: Path, text: str) -> None:
    """With the rights of a new file of this user: what it says of the program is not for everyone. A file that is
    there stays until this one is whole. OSError."""
    with _naming(path):
        descriptor, beside = _opened_beside(path)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _opened_beside(path: Path) -> tuple[int, Path]:
    if path.is_dir() and not path.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    beside = path.with_name(f".{path.name[:_NAME_MAX]}.{os.urandom(4).hex()}")
    return os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), beside


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """The file beside it is nobody's business."""
    try:
        yield
    except OSError as problem:
        raise OSError(problem.errno, f"{path} cannot be written: {problem.strerror or problem}") from problem
