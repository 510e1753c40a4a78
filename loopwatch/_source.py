"""Source lines for reports: each file is read once, in bounded number and size, and never on a thread that
runs a loop.

A file is read and kept in pieces: to make the lines of a large one at once would hold the GIL for tens of
milliseconds, which the loop that is reported on would wait for.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import io
import linecache
import os
import stat
import tokenize
from collections.abc import Iterable, Iterator

from loopwatch._stall import Frame

FILES_MAX = 256
FILE_BYTES_MAX = 4 << 20
PIECE_BYTES = 64 << 10


class _Source:
    """The lines of one file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: list[bytes] = []
        self._ends = [0]
        for piece in pieces:
            self._pieces.append(piece)
            self._ends.append(self._ends[-1] + len(piece.splitlines()))
        self._encoding = tokenize.detect_encoding(io.BytesIO(b"".join(self._pieces[:1])).readline)[0]

    def line(self, lineno: int) -> str:
        """Empty where there is no such line."""
        if not 0 < lineno <= self._ends[-1]:
            return ""
        index = bisect.bisect_left(self._ends, lineno) - 1
        line = self._pieces[index].splitlines()[lineno - 1 - self._ends[index]]
        return line.decode(self._encoding, errors="replace")


_NO_SOURCE = _Source(())


class SourceCache:
    """Lines by file name, oldest forgotten first. Safe from any thread without a lock, which a fork could
    leave held."""

    def __init__(self, files_max: int = FILES_MAX, bytes_max: int = FILE_BYTES_MAX) -> None:
        self._files_max, self._bytes_max = files_max, bytes_max
        self._files: dict[str, _Source] = {}

    def line(self, filename: str, lineno: int) -> str:
        """The line without its indentation; "" where it cannot be had."""
        return self._line(filename, lineno).strip()

    def expression(self, frame: Frame) -> str:
        """The part of the line that the frame executes; the whole line where that is not known or spans
        several; "" where there is no source."""
        line = self._line(frame.filename, frame.lineno)
        if frame.colno is None or frame.end_colno is None or frame.end_lineno not in (None, frame.lineno):
            return line.strip()
        # Columns count bytes of UTF-8.
        return line.encode()[frame.colno : frame.end_colno].decode(errors="replace").strip()

    def _line(self, filename: str, lineno: int) -> str:
        known = self._files.get(filename)
        if known is not None:
            return known.line(lineno)
        if filename.startswith("<"):
            return _typed_in(filename, lineno)
        if asyncio._get_running_loop() is not None:
            return ""
        source = _read(filename, self._bytes_max)
        self._files[filename] = source
        while len(self._files) > self._files_max:
            with contextlib.suppress(StopIteration, RuntimeError):  # another thread changes it
                self._files.pop(next(iter(self._files)), None)
        return source.line(lineno)


def _typed_in(filename: str, lineno: int) -> str:
    """What a prompt or a notebook has left in linecache; nothing is read."""
    entry = linecache.cache.get(filename)
    lines = entry[2] if entry is not None and len(entry) == 4 else []
    return lines[lineno - 1] if 0 < lineno <= len(lines) else ""


def _read(filename: str, bytes_max: int) -> _Source:
    try:
        # A code object may name anything as its file: a pipe or a device must neither block nor be read.
        descriptor = os.open(filename, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > bytes_max:
                return _NO_SOURCE
            return _Source(_pieces(descriptor, status.st_size))
        finally:
            os.close(descriptor)
    except (OSError, SyntaxError, ValueError, LookupError):
        return _NO_SOURCE


def _pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """Whole lines, about so many bytes at a time. Each read lets go of the GIL."""
    rest = b""
    while size > 0 and (read := os.read(descriptor, min(size, PIECE_BYTES))):
        size -= len(read)
        whole, newline, rest = (rest + read).rpartition(b"\n")
        if newline:
            yield whole + newline
    if rest:
        yield rest
