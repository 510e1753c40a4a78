"""What can be told from outside of a process that may be a Python."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loopwatch.cli._families import descendants

_NAME: Final = re.compile(r"(?:lib)?python(3\.\d+)")
_INTERPRETER: Final = re.compile(r"python[\d.t]*")
_BELOW_MAX: Final = 64


def version(pid: int) -> tuple[int, int] | None:
    """As the names of its executable and its libraries tell; None where they do not."""
    for name in _names(pid):
        if found := _NAME.match(name):
            major, minor = found[1].split(".")
            return int(major), int(minor)
    return None


def _names(pid: int) -> Iterator[str]:
    """The maps last: to read them, the kernel holds up the process."""
    with contextlib.suppress(OSError):
        yield _executable(pid).name
    with contextlib.suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        yield from (line.rpartition("/")[2] for line in maps.splitlines())


def described(pid: int) -> str:
    known = version(pid)
    if known is None and not _is_open(pid):
        return "cannot be looked at by this user"
    return "does not look like a Python process" if known is None else f"runs Python {known[0]}.{known[1]}"


def interpreter(pid: int) -> str:
    """To be typed. As it was started: of a virtual environment, not what that links to; but many programs give
    themselves another name."""
    command = _command(pid)
    if command and _INTERPRETER.fullmatch(Path(command[0]).name):
        return shlex.quote(command[0])
    with contextlib.suppress(OSError):
        return shlex.quote(str(_executable(pid)))
    return "python3"


def below(pid: int) -> dict[int, str]:
    """The processes below it that are Python, with their commands."""
    found: dict[int, str] = {}
    for child in descendants(pid):
        if len(found) < _BELOW_MAX and version(child) is not None:
            found[child] = shlex.join(_command(child))
    return found


def _is_open(pid: int) -> bool:
    try:
        _executable(pid)
    except PermissionError:
        return False
    except OSError:  # a kernel thread has none
        return True
    return True


def _executable(pid: int) -> Path:
    return Path(f"/proc/{pid}/exe").readlink()


def _command(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [word.decode(errors="replace") for word in words if word]
