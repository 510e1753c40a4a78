"""A status page as other processes read it: src/status/page.h has the layout, src/status/content.h what is in it.

    0           head: MAGIC, version, bytes of the head, of a half, of the JSON, and its CRC; JSON
    head        one half: sequence, bytes of the JSON, CRC; JSON
    head+half   the other half

The page's process writes the halves in turn. The one with the larger number whose check is right counts, so a page
is read without a lock, while it is written to, and after its process was killed in the middle of that.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import struct
import time
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loopwatch import _core

MAGIC: Final = b"LOOPWTCH"
VERSION, HEAD_BYTES, HALF_BYTES = _core.PAGE
SIZE: Final = HEAD_BYTES + 2 * HALF_BYTES

_HEAD: Final = struct.Struct("=8sIIIII")
_HALF: Final = struct.Struct("=QII")
_HALF_MAX: Final = 1 << 24
_TRIES: Final = 20  # a half is written at most four times a second
_NAP_SECONDS: Final = 0.01
_ANCESTORS_MAX: Final = 8


class PageError(ValueError):
    """The file is not a status page that this version can read."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page said at one moment."""

    path: Path
    head: dict[str, Any]
    """Of the process: pid, start, ancestors, created, argv, python, loopwatch."""
    body: dict[str, Any]
    """What its watchdog said last; empty where it has not said anything yet."""
    owner: int
    """Of the file: whose word all of it is."""

    @property
    def pid(self) -> int:
        return int(self.head["pid"])

    @property
    def alive(self) -> bool:
        """Whether its process runs; another one with the same number does not count."""
        start = process_start(self.pid)
        return start is not None and start == self.head.get("start")

    @property
    def stopped(self) -> bool:
        """Whether its process is stopped (SIGSTOP, a debugger), and so writes nothing."""
        fields = _stat_fields(self.pid)
        return fields is not None and fields[0] in "Tt"

    @property
    def written_ns(self) -> int:
        """When it was written last, by the time of day."""
        return int(self.body["wall"] if self.body else self.head["created"])

    @property
    def wall_offset_ns(self) -> int:
        """What to add to its times, to have the time of day."""
        return int(self.body["wall"]) - int(self.body["at"])


# --- the head ---


def make_head(facts: dict[str, Any]) -> bytes:
    """Of a new page; what does not fit is left out, from `argv`."""
    while len(text := json.dumps(facts).encode()) > HEAD_BYTES - _HEAD.size:
        facts = facts | {"argv": facts["argv"][:-1]}
    head = _HEAD.pack(MAGIC, VERSION, HEAD_BYTES, HALF_BYTES, len(text), zlib.crc32(text))
    return (head + text).ljust(HEAD_BYTES, b"\0")


def is_page(data: bytes) -> bool:
    return data.startswith(MAGIC)


# --- reading ---


def read(path: str | os.PathLike[str]) -> Page:
    """OSError where it cannot be read, PageError where it is no page of this version."""
    path = Path(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PageError(f"{path} is not a status page: it is not a regular file")
        start = os.pread(descriptor, HEAD_BYTES, 0)
        head, head_bytes, half_bytes = _read_head(path, start)
        for _ in range(_TRIES):
            halves = [os.pread(descriptor, half_bytes, head_bytes + n * half_bytes) for n in range(2)]
            found = [said for half in halves if (said := _read_half(half)) is not None]
            if found:
                return Page(path, head, max(found, key=lambda said: said[0])[1], status.st_uid)
            if not any(any(half[: _HALF.size]) for half in halves):
                return Page(path, head, {}, status.st_uid)
            time.sleep(_NAP_SECONDS)
    finally:
        os.close(descriptor)
    raise PageError(f"{path} is not a status page that can be read: neither of its halves is whole")


def _read_head(path: Path, start: bytes) -> tuple[dict[str, Any], int, int]:
    if len(start) < _HEAD.size or not is_page(start):
        raise PageError(f"{path} is not a status page of loopwatch")
    _, version, head_bytes, half_bytes, length, check = _HEAD.unpack_from(start)
    if version != VERSION:
        raise PageError(
            f"{path} is a status page of version {version}; this loopwatch ({_core.VERSION}) reads version {VERSION}"
        )
    text = start[_HEAD.size : _HEAD.size + length]
    if not 0 < half_bytes <= _HALF_MAX or zlib.crc32(text) != check:
        raise PageError(f"{path} is a status page with a broken head")
    head = _parsed(text)
    if not isinstance(head, dict):
        raise PageError(f"{path} is a status page with a broken head")
    return head, head_bytes, half_bytes


def _parsed(text: bytes | str) -> Any:
    """None where it is no JSON: its check says only that it is what somebody wrote."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_half(half: bytes) -> tuple[int, dict[str, Any]] | None:
    if len(half) < _HALF.size:
        return None
    sequence, length, check = _HALF.unpack_from(half)
    text = half[_HALF.size : _HALF.size + length]
    if not sequence or len(text) < length or zlib.crc32(text, zlib.crc32(half[:12])) != check:
        return None
    body = _parsed(text.decode(errors="replace"))
    return (sequence, body) if isinstance(body, dict) else None


# --- where they are ---


def directories(uid: int) -> Iterator[Path]:
    """Where the pages of a user's processes may be; a process takes the first that there is."""
    if uid == os.geteuid() and (runtime := os.environ.get("XDG_RUNTIME_DIR", "")).startswith("/"):
        yield Path(runtime) / "loopwatch"
    yield Path(f"/run/user/{uid}/loopwatch")
    yield Path(f"/tmp/loopwatch-{uid}")


def page_name(pid: int) -> str:
    return f"{pid}.page"


def left_in_default_places() -> list[Path]:
    """The pages of this user's processes, and for root those of every user's."""
    uid = os.geteuid()
    places = list(directories(uid))
    if uid == 0:
        places += [*Path("/run/user").glob("*/loopwatch"), *Path("/tmp").glob("loopwatch-*")]
    found = []
    for place in dict.fromkeys(places):
        with contextlib.suppress(OSError):
            owners = {place.lstat().st_uid if uid == 0 else uid}
            found += [path for path in place.glob("*.page") if _is_file_of(owners, path)]
    return found


def find(pid: int) -> Path:
    """The page of a process that runs or ran; FileNotFoundError says where there is none. Of a file that somebody else
    put there, who is not the process's user, nothing is believed."""
    directories_of = [Path(place) / "loopwatch" for place in _runtime_directories(pid)]
    owners = _owners(pid)
    for uid in sorted(owners):
        directories_of += directories(uid)
    places = list(dict.fromkeys(place / page_name(pid) for place in directories_of))
    found = [place for place in places if _is_file_of(owners, place)]
    if not found:
        raise FileNotFoundError(
            f"process {pid} has no status page (looked for {', '.join(map(str, places))}): "
            "it is not watched with a page, or has ended and taken the page with it"
        )
    return max(found, key=lambda place: place.lstat().st_mtime)


def _owners(pid: int) -> frozenset[int]:
    """Who it runs as, really and effectively, and the reader, who may have started it."""
    owners = {os.geteuid()}
    with contextlib.suppress(OSError):
        owners.update(map(int, process_status(pid).get("Uid", ())[:2]))
    return frozenset(owners)


def _runtime_directories(pid: int) -> list[str]:
    """XDG_RUNTIME_DIR as the process was started with it, which may be another one than ours."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
    prefix = b"XDG_RUNTIME_DIR=/"
    return [os.fsdecode(it[len(prefix) - 1 :]) for it in variables if it.startswith(prefix)]


def _is_file_of(owners: Collection[int], path: Path) -> bool:
    """A file of theirs, in a directory in which nobody else can put another one in its place."""
    try:
        status, above = path.lstat(), path.parent.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(status.st_mode)
        and stat.S_ISDIR(above.st_mode)
        and {status.st_uid, above.st_uid} <= set(owners)
        and not above.st_mode & 0o022
    )


def process_status(pid: int) -> dict[str, list[str]]:
    """What /proc/PID/status says: the words behind each name. OSError where there is no such process."""
    fields: dict[str, list[str]] = {}
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, words = line.partition(":")
        fields.setdefault(name, words.split())
    return fields


def process_start(pid: int) -> int | None:
    """When it was started, in clock ticks since the machine was; None: no such process, or a zombie."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


def ancestors(pid: int) -> list[tuple[int, int]]:
    """Its parent, the parent's and so on, each with when it was started."""
    found: list[tuple[int, int]] = []
    fields = _stat_fields(pid)
    while fields is not None and len(found) < _ANCESTORS_MAX:
        parent = int(fields[1])
        fields = _stat_fields(parent)
        if fields is not None:
            found.append((parent, int(fields[19])))
    return found


def _stat_fields(pid: int) -> list[str] | None:
    """What /proc/PID/stat says from the state on; None: no such process, or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in "ZX" or not (fields[1].isdecimal() and fields[19].isdecimal()):
        return None
    return fields
