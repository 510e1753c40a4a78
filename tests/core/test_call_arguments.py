"""What a call would wait for, by number and arguments alone: whatever they are, and memory that is gone."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build names no system calls"
)

NUMBERS = range(-2, 600)
NAMES: dict[str, int] = {}
if hasattr(_testcore, "map_hole"):
    NAMES = {name: number for number in NUMBERS if (name := _testcore.syscall_name(number))}


def target(name: str, *arguments: int) -> str:
    text = _testcore.call_target(NAMES[name], (*arguments, *[0] * (6 - len(arguments))))
    assert isinstance(text, str)
    return text


def address_of(data: bytes) -> tuple[int, object]:
    buffer = ctypes.create_string_buffer(data, len(data))
    return ctypes.addressof(buffer), buffer


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_names() -> None:
    known = {
        "x86_64": {
            0: "read",
            7: "poll",
            23: "select",
            42: "connect",
            202: "futex",
            257: "openat",
            281: "epoll_pwait",
        },
        "aarch64": {63: "read", 73: "ppoll", 72: "pselect6", 203: "connect", 98: "futex", 56: "openat"},
    }.get(platform.machine())
    if known is None:
        pytest.skip("the numbers of this architecture are not known here")
    assert {number: _testcore.syscall_name(number) for number in known} == known
    assert {_testcore.syscall_name(number) for number in (-1, 599, 2**31 - 1)} == {None}
    assert len(NAMES) > 100


def test_either_of_two_descriptors(pipe: tuple[int, int], tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert target("splice", file.fileno(), 0, pipe[1]) == f"{file.name}, pipe"
        assert target("sendfile", pipe[1], file.fileno()) == "pipe"
        assert target("fsync", file.fileno()) == file.name


def test_registers_are_wider_than_descriptors(pipe: tuple[int, int]) -> None:
    assert target("read", pipe[0] | 0xDEAD << 32) == "pipe"


def test_descriptors_that_are_not_open() -> None:
    for fd in (1 << 20, 2**31 - 1, 2**32 - 1, 2**64 - 1):
        assert target("read", fd) == ""


def test_where_a_datagram_goes() -> None:
    address, keep = address_of(
        struct.pack("=HH4s8x", socket.AF_INET, socket.htons(53), bytes((192, 0, 2, 1)))
    )
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        assert target("sendto", sock.fileno(), 0, 0, 0, address, 16) == "udp 192.0.2.1:53"
        for bad in ((8, 16), (address, 0), (address, 2**31), (address, 8)):
            assert target("sendto", sock.fileno(), 0, 0, 0, *bad) == "udp 0.0.0.0:0", bad
    with socket.socket() as sock:
        assert target("connect", sock.fileno(), address, 16) == "tcp 192.0.2.1:53"
        assert target("connect", sock.fileno(), 8, 16) == "tcp"
    del keep


def test_paths() -> None:
    for path, expected in (
        (b"name\0", "name"),
        (b"/" * 300 + b"\0", "/" * 255),
        ("\xe4".encode() + b"\0", "\xe4"),
    ):
        address, keep = address_of(path)
        assert target("openat", 0, address) == expected
        del keep
    assert target("openat", 2**32 - 100, 8) == ""


def test_an_empty_path_means_the_descriptor(tmp_path: Path) -> None:
    address, keep = address_of(b"\0")
    with (tmp_path / "file").open("w") as file:
        assert target("fchownat", file.fileno(), address) == file.name
    del keep


def test_sets_of_descriptors(pipe: tuple[int, int]) -> None:
    address, keep = address_of(struct.pack("=ihhihh", -1, 1, 0, pipe[0], 1, 0))
    assert target("ppoll", address, 2) == "pipe"
    assert target("ppoll", address, 1) == ""
    assert target("ppoll", 8, 2) == ""
    address, keep = address_of((1 << pipe[0]).to_bytes(128, "little"))
    assert target("pselect6", pipe[0] + 1, 0, address) == "pipe"
    assert target("pselect6", pipe[0], 0, address) == ""
    assert target("pselect6", 2**31 - 1, address, 8, address) == "pipe"
    assert target("pselect6", 2**32 - 1, address) == ""
    del keep


def test_children() -> None:
    assert target("wait4", 42) == "child 42"
    assert {target("wait4", pid) for pid in (0, 2**32 - 1, 2**32 - 42)} == {"any child"}
    assert target("waitid", 1, 42) == "child 42"
    assert target("waitid", 0, 42) == "any child"


def test_any_call_with_any_arguments() -> None:
    """The thread may be back, its registers another call's: nothing crashes, the text is short and plain."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory[:] = random.randbytes(mmap.PAGESIZE)
    inside = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    pools = [
        lambda: random.getrandbits(64),
        lambda: random.randrange(64),
        lambda: inside + random.randrange(mmap.PAGESIZE),
        lambda: inside + mmap.PAGESIZE - random.randrange(32),
    ]
    for number in NUMBERS:
        for _ in range(20):
            text = _testcore.call_target(number, tuple(random.choice(pools)() for _ in range(6)))
            assert len(text) < 256
            assert all(char >= " " and char != "\x7f" for char in text)
