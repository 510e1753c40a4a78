"""The frames of a page's stack, and their source lines. The page names the files, and is another process's word: none
is read that is no source of that process."""

from __future__ import annotations

import functools
import io
import os
import re
import stat
import time
import tokenize
from typing import Final

from loopwatch._page import Page
from loopwatch._stall import Frame

_FRAME: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>-?[0-9]{1,9}), in (?P<function>.*)')
_FILES_MAX: Final = 256
_BYTES_MAX: Final = 4 << 20
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SLACK_NS: Final = 100_000_000
"""A process's begin is told in ticks of 10 ms, a file's change in the ticks of the kernel."""


def frame_of(line: str) -> Frame | None:
    """Of a line of the stack; None where it is another kind of line."""
    found = _FRAME.fullmatch(line)
    return Frame(found["file"], int(found["line"]), found["function"]) if found else None


def source_line(page: Page, filename: str, line: int) -> str:
    """Without its indentation; "" where it cannot be had."""
    if not filename.startswith("/"):  # from another directory than ours
        return ""
    lines = _lines(filename, page.owner, _began_ns(page) + _SLACK_NS)
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _began_ns(page: Page) -> int:
    """Unix time: what was changed later is not what the process runs."""
    created: int = page.head["created"]
    start = page.head["start"]
    if start is None:
        return created
    machine_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    # Ticks of an earlier boot come out too late: the page was made after its process began.
    began: int = machine_ns + start * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return min(created, began // _SLACK_NS * _SLACK_NS)  # rounded: the key of a cache


@functools.lru_cache(_FILES_MAX)
def _lines(filename: str, owner: int, before_ns: int) -> list[str]:
    try:
        with open(filename, "rb", opener=lambda name, _: os.open(name, _OPEN)) as file:
            status = os.fstat(file.fileno())
            if not _is_source(status, owner) or status.st_mtime_ns > before_ns:
                return []
            content = file.read(_BYTES_MAX)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding, errors="replace").splitlines()
    except (OSError, SyntaxError, ValueError, LookupError):
        return []


def _is_source(status: os.stat_result, owner: int) -> bool:
    """A file that the page's owner may read himself: root must not show him another's."""
    if not stat.S_ISREG(status.st_mode) or status.st_size > _BYTES_MAX:
        return False
    return owner in (os.geteuid(), status.st_uid) or bool(status.st_mode & stat.S_IROTH)
