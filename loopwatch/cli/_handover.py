"""A directory through which another process gets a script and gives an answer. That process may be another user's,
and this one root's: nothing that the other one can put there makes us write, or read, anything else.

All that is written is written before the directory is the other's. From then on it is reached by its descriptor only,
and the answer is read only where it is a regular file of the other's, of a bounded size.

A script that was not run in time stays for when it is. Where its process ends without that, the next call of anybody
who may takes the directory away: its name says for which process it is, and who waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any, Final

from loopwatch._page import process_start, process_status

_PREFIX: Final = "loopwatch-attach-"
_NAME: Final = re.compile(rf"{_PREFIX}(?P<pid>\d+)-(?P<start>\d+)-(?P<asker>\d+)-.*")
_SCRIPT: Final = "script.py"
_ANSWER: Final = "answer"
_NEW: Final = "new"
"""The answer, while it is written."""
_ANSWER_MAX: Final = 1 << 16
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Handover:
    """Ours, until give() makes it another user's."""

    def __init__(self, pid: int) -> None:
        prefix = f"{_PREFIX}{pid}-{process_start(pid) or 0}-{os.getpid()}-"
        self.directory = Path(tempfile.mkdtemp(prefix=prefix))
        self.script = self.directory / _SCRIPT
        self._descriptor = os.open(self.directory, _OPEN)
        self._user = os.geteuid()
        self.closed = False

    def write(self, text: str) -> None:
        descriptor = os.open(_SCRIPT, _WRITE, 0o600, dir_fd=self._descriptor)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(descriptor, 0o644)

    def give(self, user: int, group: int) -> None:
        """The last that is done to it."""
        if user != os.geteuid():
            with contextlib.suppress(PermissionError):  # then we may not reach into the process either
                os.fchown(self._descriptor, user, group)
                self._user = user

    def seen_by(self, pid: int) -> bool:
        """Whether the process finds the script by the same name. True where it cannot be told."""
        try:
            there = Path(f"/proc/{pid}/root{self.script}").stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return os.path.samestat(there, os.stat(_SCRIPT, dir_fd=self._descriptor))

    def answer(self) -> dict[str, Any] | None:
        """None: there is none yet. ValueError where it is none."""
        try:
            descriptor = os.open(_ANSWER, _READ, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise ValueError(f"its answer cannot be read ({problem.strerror})") from problem
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != self._user:
                raise ValueError("its answer is not a file of its own")
            data = os.read(descriptor, _ANSWER_MAX + 1)
        finally:
            os.close(descriptor)
        if len(data) > _ANSWER_MAX:
            raise ValueError("its answer is too long")
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ValueError("its answer is not one of loopwatch")
        return answer

    def close(self, *, keep: bool) -> None:
        """`keep` it for a script that may run yet."""
        if not keep:
            _remove(self.directory, self._descriptor)
        os.close(self._descriptor)
        self.closed = True


def _remove(directory: Path, descriptor: int) -> None:
    for name in (_SCRIPT, _NEW, _ANSWER):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=descriptor)
    with contextlib.suppress(OSError):  # what else the other one has put there is his
        directory.rmdir()


def remove_leftovers(answered: int | None = None) -> None:
    """Of processes that have ended, and of one that has just `answered`: an older script of it will not be run any
    more. Not where somebody waits."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if not (found := _NAME.fullmatch(directory.name)):
            continue
        pid, start, asker = map(int, found.groups())
        ended = process_start(pid) != start
        if ended or (pid == answered and process_start(asker) is None):
            with contextlib.suppress(OSError):
                descriptor = os.open(directory, _OPEN)
                try:
                    _remove(directory, descriptor)
                finally:
                    os.close(descriptor)


def user_of(pid: int) -> tuple[int, int]:
    """User and group by which it opens files. Not the owner of /proc/PID, which is root for a process that was root."""
    fields = process_status(pid)
    return int(fields["Uid"][3]), int(fields["Gid"][3])
