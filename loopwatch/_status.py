"""The status page of this process: where its file is, and how long it is there. The watchdog writes it
(src/status/); others read it (_page.py).

A process has one page, for all its loops. It is there as long as somebody holds it: a watch with status=, until it
is uninstalled; the command line, until the process ends. A process that is killed leaves it behind.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import stat
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loopwatch import _core, _page
from loopwatch._clock import monotonic_ns, wall, wall_ns
from loopwatch._files import identity, named_by
from loopwatch._outlets import Outlet, outlets

if TYPE_CHECKING:
    from loopwatch._options import Status

KEPT_SECONDS: Final = 7 * 86400.0
"""How long the page of a killed process stays in the default place."""
_EXECUTORS_MAX: Final = 8
_NAME_MAX: Final = 60
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class ExecutorNotes(Outlet):
    """Puts on the page which executors were full, and when: what was reported of each last."""

    name = "status page"

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Any]] = {}

    def saturation(self, saturation: Any) -> None:
        state = saturation.state
        self._last.pop(state.name, None)
        self._last[state.name] = {
            "name": state.name[:_NAME_MAX],
            "at": monotonic_ns(),
            "waited": saturation.waited,
            "busy": state.busy,
            "workers": state.max_workers,
            "queued": state.queued,
        }
        latest = list(self._last.values())[-_EXECUTORS_MAX:]
        _core.status_note(json.dumps(latest[::-1]).encode())


class StatusPage:
    """With the registry's lock, all of it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._forked = False
        self._holders: set[Hashable] = set()
        self._asked: str = ""
        self._path: Path | None = None
        self._identity: tuple[int, int] | None = None
        self._notes: ExecutorNotes | None = None

    @property
    def path(self) -> Path | None:
        """Where it is; None: there is none."""
        return self._path if self._pid == os.getpid() else None

    def join(self, holder: Hashable, where: Status) -> None:
        """Hold the page; the first makes it. OSError where that is not possible, or it is elsewhere already."""
        self._renew()
        if where is False:
            return
        asked = "" if where is True else str(Path(os.fsdecode(where)).absolute())
        if not self._holders:
            with named_by("status"):
                self._make(Path(asked) if asked else _default_place(), own_name=bool(asked))
            self._asked = asked
            self._notes = ExecutorNotes()
            outlets.add(self._notes)
        elif asked and asked != self._asked:
            raise OSError(
                errno.EBUSY, f"status must be one place for the whole process, {self._path}, not {where!r}"
            )
        self._holders.add(holder)

    def serve(self) -> bool:
        """Hand it to the watchdog, which has just started, or may have. Harmless where it has it already. False: it
        did not take it, and is to be asked again."""
        if not self._holders or self.path is None or _core.status_written():
            return True
        with contextlib.suppress(OSError):  # somebody has removed it
            descriptor = os.open(self.path, _OPEN)
            try:
                return identity(os.fstat(descriptor)) != self._identity or _core.status_page(descriptor)
            finally:
                os.close(descriptor)
        return True

    def leave(self, holder: Hashable) -> None:
        """Idempotent. The last one takes the page away."""
        self._renew()
        if holder not in self._holders:
            return
        self._holders.discard(holder)
        if not self._holders:
            if self._notes is not None:
                outlets.remove(self._notes)
            _core.status_note(b"")
            _core.status_page(-1)
            self._remove()

    def _renew(self) -> None:
        """In a forked child the page is the parent's: a new one is made, where one is asked for."""
        if self._pid != os.getpid():
            self._pid, self._forked = os.getpid(), True
            self._holders, self._path = set(), None
            if self._notes is not None:
                outlets.remove(self._notes)

    # --- the file ---

    def _make(self, path: Path, *, own_name: bool) -> None:
        if own_name and self._forked:  # the path is the parent's, which may still be there
            path = path.with_name(f"{path.name}.{os.getpid()}")
        _check_replaceable(path)
        new = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        descriptor = os.open(new, _CREATE, 0o600)
        try:
            # All of it now: what finds no room on the disk is an error here, and not in the watchdog.
            whole = _page.make_head(_facts()).ljust(_page.SIZE, b"\0")
            if os.write(descriptor, whole) < len(whole):
                raise OSError(errno.ENOSPC, f"status: no room for a page at {path}")
            new.rename(path)
            self._identity = identity(os.fstat(descriptor))
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        finally:
            os.close(descriptor)
        self._path = path

    def _remove(self) -> None:
        path, self._path = self._path, None
        if path is not None:
            with contextlib.suppress(OSError):
                if identity(path.lstat()) == self._identity:
                    path.unlink()


def _facts() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "start": _page.process_start(os.getpid()),
        "ancestors": _page.ancestors(os.getpid()),  # `loopwatch run`, a master: the numbers that people know
        "created": wall_ns(),
        "argv": [argument[:500] for argument in sys.orig_argv],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loopwatch": _core.VERSION,
    }


def _check_replaceable(path: Path) -> None:
    """A page that a killed process has left is replaced, and one that this process itself did, by an exec; anything
    else is not touched."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and _is_page(path):
        pid = _living_owner(path)
        if pid is None or pid == os.getpid():
            return
        raise OSError(
            errno.EEXIST, f"status must be a path for each process, and {path} is that of process {pid}"
        )
    raise OSError(errno.EEXIST, f"status must be a path for a new file, and {path} is there already")


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return _page.is_page(file.read(len(_page.MAGIC)))


def _living_owner(path: Path) -> int | None:
    """The process whose page it is, while it runs. None also for a page of which that cannot be read."""
    try:
        page = _page.read(path)
        return page.pid if page.alive else None
    except (ValueError, KeyError, TypeError):
        return None


def _default_place() -> Path:
    """In the user's runtime directory, else below /tmp: a directory that is this user's alone."""
    uid = os.geteuid()
    *runtimes, fallback = _page.directories(uid)
    directory = next((place for place in runtimes if _is_private(place.parent, uid)), fallback)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not _is_private(directory, uid):
        raise OSError(
            errno.EACCES, f"status: {directory} is not a directory of this user's alone (mode 0700)"
        )
    _sweep(directory)
    return directory / _page.page_name(os.getpid())


def _sweep(directory: Path) -> None:
    """Pages of processes that were killed long ago."""
    for path in directory.glob("*.page"):
        with contextlib.suppress(OSError, ValueError):
            if wall() - path.lstat().st_mtime > KEPT_SECONDS and not _page.read(path).alive:
                path.unlink()


def _is_private(directory: Path, uid: int) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == uid and not status.st_mode & 0o077


status_page: Final = StatusPage()
"""This process's."""
