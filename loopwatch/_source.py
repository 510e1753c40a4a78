"""Source lines for reports: each file is read once, in bounded number and size, and never on a thread that
runs a loop."""

from __future__ import annotations

import asyncio
import contextlib
import io
import linecache
import os
import stat
import tokenize

from loopwatch._stall import Frame

FILES_MAX = 256
FILE_BYTES_MAX = 4 << 20


class SourceCache:
    """Lines by file name, oldest forgotten first. Safe from any thread without a lock, which a fork could
    leave held."""

    def __init__(self, files_max: int = FILES_MAX, bytes_max: int = FILE_BYTES_MAX) -> None:
        self._files_max, self._bytes_max = files_max, bytes_max
        self._files: dict[str, list[str]] = {}

    def line(self, filename: str, lineno: int) -> str:
        """The line without its indentation; "" where it cannot be had."""
        lines = self._lines(filename)
        return lines[lineno - 1].strip() if 0 < lineno <= len(lines) else ""

    def expression(self, frame: Frame) -> str:
        """The part of the line that the frame executes; the whole line where that is not known or spans
        several; "" where there is no source."""
        lines = self._lines(frame.filename)
        if not 0 < frame.lineno <= len(lines):
            return ""
        line = lines[frame.lineno - 1]
        if frame.colno is None or frame.end_colno is None or frame.end_lineno not in (None, frame.lineno):
            return line.strip()
        # Columns count bytes of UTF-8.
        return line.encode()[frame.colno : frame.end_colno].decode(errors="replace").strip()

    def _lines(self, filename: str) -> list[str]:
        known = self._files.get(filename)
        if known is not None:
            return known
        if filename.startswith("<"):
            return _typed_in(filename)
        if asyncio._get_running_loop() is not None:
            return []
        lines = _read(filename, self._bytes_max)
        self._files[filename] = lines
        while len(self._files) > self._files_max:
            with contextlib.suppress(StopIteration, RuntimeError):  # another thread changes it
                self._files.pop(next(iter(self._files)), None)
        return lines


def _typed_in(filename: str) -> list[str]:
    """What a prompt or a notebook has left in linecache; nothing is read."""
    entry = linecache.cache.get(filename)
    return entry[2] if entry is not None and len(entry) == 4 else []


def _read(filename: str, bytes_max: int) -> list[str]:
    try:
        # A code object may name anything as its file: a pipe or a device must neither block nor be read.
        descriptor = os.open(filename, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > bytes_max:
                return []
            content = file.read(bytes_max)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding, errors="replace").splitlines()
    except (OSError, SyntaxError, ValueError, LookupError):
        return []
