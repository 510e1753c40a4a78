"""Guarded reads: every backend brings what is there, stops at holes, and says why it does not work."""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build has no guarded reads"
)

MEMFD, PROCESS_VM, PIPE, PROC_MEM = range(1, 5)
BACKENDS = {MEMFD: "memfd", PROCESS_VM: "process_vm_readv", PIPE: "pipe", PROC_MEM: "/proc/self/mem"}
READ_MAX = 256 * 1024
BATCH_MAX = 512
AREA = 1 << 20

# /proc/self/mem reads through page protections, so an unreadable page is no hole for it.
HOLES = ("unmapped", "unreadable", "beyond the end of a file")
BACKENDS_AND_HOLES = [(b, h) for b in BACKENDS for h in HOLES if (b, h) != (PROC_MEM, "unreadable")]

# Where nothing is ever mapped: the first page, below and above the end of user space, and the last page.
TOP = 1 << 64
BAD = [0, 8, 4095, 1 << 46, (1 << 47) - 8, 1 << 47, 1 << 56, (1 << 63) - 4, 1 << 63, TOP - 4096, TOP - 1]

Pairs = list[tuple[int, int]]


@pytest.fixture(scope="module")
def mem_fd() -> Iterator[int]:
    fd = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    yield fd
    os.close(fd)


class Area:
    """Memory of known content."""

    def __init__(self) -> None:
        self.content = bytes(range(251)) * (AREA // 251) + bytes(AREA % 251)
        self.buffer = ctypes.create_string_buffer(self.content, AREA)
        self.address = ctypes.addressof(self.buffer)

    def expected(self, pairs: Pairs) -> list[bytes]:
        return [self.content[address - self.address :][:length] for address, length in pairs]


AREA_OF_TEST = Area()


@st.composite
def batches(draw: st.DrawFn) -> Pairs:
    """Segments of the area, in any order, overlapping, empty ones too; READ_MAX bytes at most altogether."""
    # Mostly many small ones, as a walk over objects has them; now and then a few large ones.
    limit = draw(st.sampled_from([16, 80, 500, 4096, 40_000]))
    pairs = []
    room = READ_MAX
    for length in draw(st.lists(st.integers(0, limit), max_size=200)):
        if length > room:
            break
        offset = draw(st.integers(0, AREA - limit))
        pairs.append((AREA_OF_TEST.address + offset, length))
        room -= length
    return pairs


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(pairs=batches())
def test_brings_what_is_there(backend: int, mem_fd: int, pairs: Pairs) -> None:
    assert _testcore.read_batch(backend, mem_fd, pairs) == AREA_OF_TEST.expected(pairs)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pairs=batches(),
    where=st.integers(0, 200),
    bad=st.sampled_from(BAD),
    length=st.sampled_from([1, 8, 4096, 100_000]),
)
def test_stops_at_a_bad_address_wherever_it_stands(
    backend: int, mem_fd: int, pairs: Pairs, where: int, bad: int, length: int
) -> None:
    """Also where it is not a user's address, for which kernels refuse a whole list."""
    where = min(where, len(pairs))
    mixed = [*pairs[:where], (bad, length), *pairs[where:]]
    assert _testcore.read_batch(backend, mem_fd, mixed) == AREA_OF_TEST.expected(pairs[:where])


@pytest.mark.parametrize(("backend", "kind"), BACKENDS_AND_HOLES)
@pytest.mark.parametrize("before", [0, 1, 7, 64, 127, 128, 129, 300])
def test_a_segment_that_reaches_into_a_hole_is_not_copied(
    backend: int, kind: str, before: int, mem_fd: int
) -> None:
    address, page, content = _testcore.map_hole(kind)
    try:
        good = [(address + 3 * i, 40) for i in range(before)]
        expected = [content[3 * i :][:40] for i in range(before)]

        def read(*bad: tuple[int, int]) -> list[bytes]:
            copied: list[bytes] = _testcore.read_batch(backend, mem_fd, [*good, *bad, (address, 16)])
            return copied

        assert read((address + page - 8, 8)) == [*expected, content[-8:], content[:16]], "up to the edge"
        assert read((address + page - 8, 9)) == expected, "one byte too far"
        assert read((address + page - 1, 2)) == expected
        assert read((address, page + 1)) == expected
        assert read((address + page, 1)) == expected
        assert read((address + 100, page), (address, 4)) == expected
    finally:
        _testcore.unmap_hole(address)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
def test_two_bad_ones_stop_at_the_first(backend: int, mem_fd: int) -> None:
    good = (AREA_OF_TEST.address, 64)
    for first in range(0, 140, 9):
        pairs = [good] * 140
        pairs[first] = ((1 << 64) - 64, 8)
        pairs[-1] = (16, 8)
        assert len(_testcore.read_batch(backend, mem_fd, pairs)) == first


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
def test_empty_segments_are_read_wherever_they_point(backend: int, mem_fd: int) -> None:
    good = (AREA_OF_TEST.address, 5)
    empty = [(0, 0), (1 << 63, 0), ((1 << 64) - 1, 0), (AREA_OF_TEST.address, 0)]
    read = _testcore.read_batch
    assert read(backend, mem_fd, []) == []
    assert read(backend, mem_fd, empty) == [b""] * 4
    assert read(backend, mem_fd, [*empty, good, *empty, good]) == [
        *[b""] * 4, *AREA_OF_TEST.expected([good]), *[b""] * 4, *AREA_OF_TEST.expected([good])
    ]  # fmt: skip
    assert read(backend, mem_fd, [good, *empty, (1, 1)]) == [*AREA_OF_TEST.expected([good]), *[b""] * 4]


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
def test_the_largest_batch_and_more(backend: int, mem_fd: int) -> None:
    address = AREA_OF_TEST.address
    for pairs in (
        [(address + 1, READ_MAX)],
        [(address + 1, READ_MAX - 1), (address, 1)],
        [(address + 11 * i, READ_MAX // BATCH_MAX) for i in range(BATCH_MAX)],
        [(address + 11 * i, 3) for i in range(3 * BATCH_MAX)],
        [(address + i, READ_MAX) for i in range(3)],  # split by bytes
    ):
        assert _testcore.read_batch(backend, mem_fd, pairs) == AREA_OF_TEST.expected(pairs)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
@pytest.mark.parametrize("length", [READ_MAX + 1, AREA])
def test_a_segment_of_more_than_the_limit_is_refused(backend: int, mem_fd: int, length: int) -> None:
    """A length read from a torn object bounds nothing: the limit does."""
    address = AREA_OF_TEST.address
    copied = _testcore.read_batch(backend, mem_fd, [(address, 8), (address, length)])
    assert copied == [AREA_OF_TEST.content[:8]]


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
def test_interrupted_by_signals(backend: int, mem_fd: int) -> None:
    """A handler without SA_RESTART, every 200 us: interrupted calls are made again."""
    address = AREA_OF_TEST.address
    pairs = [(address + 17 * i, 1000) for i in range(200)]
    expected = AREA_OF_TEST.expected(pairs)
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    try:
        for _ in range(100):
            assert _testcore.read_batch(backend, mem_fd, pairs) == expected
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_does_not_use_an_inherited_reader(backend: int, mem_fd: int) -> None:
    """Its descriptors may name something else there, and /proc/self/mem is still the parent's."""
    pairs = [(AREA_OF_TEST.address, 8)] * 3
    in_child, in_parent = _testcore.read_in_child(backend, mem_fd, pairs)
    assert in_child == (3 if backend == PROCESS_VM else 0)
    assert in_parent == 3


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKENDS.get)
def test_leaves_no_descriptor_and_no_mapping(backend: int, mem_fd: int) -> None:
    def state() -> tuple[list[str], int]:
        mappings = sum("memfd:loopwatch" in line for line in Path("/proc/self/maps").read_text().splitlines())
        return sorted(os.listdir("/proc/self/fd")), mappings  # noqa: PTH208

    before = state()
    for _ in range(3):
        _testcore.read_batch(backend, mem_fd, [(AREA_OF_TEST.address, 8), (8, 8)])
        _testcore.reader_facts(-1, True, mem_fd)
    assert state() == before  # the watchdog of another test's slots may have a mapping of its own


def test_facts_of_each_backend(mem_fd: int) -> None:
    for backend, name in BACKENDS.items():
        facts = _testcore.reader_facts(backend, True, mem_fd)
        assert facts["backend"] == name
        assert facts["errors"] == tuple(0 if b == backend else -1 for b in range(5))


def test_the_cheapest_is_chosen(mem_fd: int) -> None:
    assert _testcore.reader_facts(-1, True, mem_fd)["backend"] == "memfd"
    assert _testcore.reader_facts(-1, False, mem_fd)["backend"] == "process_vm_readv"


def test_nothing_is_written_to_a_descriptor_that_the_program_could_reuse(mem_fd: int) -> None:
    for backend in (MEMFD, PIPE):
        facts = _testcore.reader_facts(backend, False, mem_fd)
        assert (facts["backend"], facts["errors"]) == ("none", (-1,) * 5)


def test_none_reads_nothing() -> None:
    facts = _testcore.reader_facts(PROC_MEM, True, -1)
    assert facts["backend"] == "none"
    assert facts["errors"][PROC_MEM] == errno.EBADF
    assert _testcore.read_batch(0, -1, [(AREA_OF_TEST.address, 8)]) == []


def test_a_descriptor_that_is_not_memory_is_found_out(tmp_path: Path) -> None:
    """The probe compares what it got: a file that can be read at any offset is not enough."""
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    with path.open("rb") as file:
        facts = _testcore.reader_facts(PROC_MEM, True, file.fileno())
    assert facts["backend"] == "none"
    assert facts["errors"][PROC_MEM] == errno.EIO


# --- in a process of its own: seccomp filters stay, a uid does not come back ---


def run(program: str) -> None:
    prelude = """
        import errno, os, sys
        from loopwatch import _testcore
        MEMFD, PROCESS_VM, PIPE, PROC_MEM = range(1, 5)
        mem_fd = os.open("/proc/self/mem", os.O_RDONLY)
        data = bytearray(b"0123456789abcdef" * 16)
        import ctypes
        address = ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))
        pairs = [(address + i, 8) for i in range(100)]
        expected = [bytes(data[i:i + 8]) for i in range(100)]
    """
    source = textwrap.dedent(prelude) + textwrap.dedent(program)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize(
    ("denied", "chosen", "failed"),
    [
        (["process_vm_readv"], "memfd", []),
        (["memfd_create"], "process_vm_readv", ["MEMFD"]),
        (["pwritev"], "process_vm_readv", ["MEMFD"]),
        (["pwritev", "process_vm_readv"], "pipe", ["MEMFD", "PROCESS_VM"]),
        (["memfd_create", "process_vm_readv", "writev"], "/proc/self/mem", ["MEMFD", "PROCESS_VM", "PIPE"]),
        (
            ["memfd_create", "process_vm_readv", "writev", "pread64"],
            "none",
            ["MEMFD", "PROCESS_VM", "PIPE", "PROC_MEM"],
        ),
    ],
)
def test_what_a_seccomp_profile_forbids_is_passed_over(
    denied: list[str], chosen: str, failed: list[str], error: int
) -> None:
    run(f"""
        _testcore.deny_syscalls({denied!r}, {error})
        facts = _testcore.reader_facts(-1, True, mem_fd)
        assert facts["backend"] == {chosen!r}, facts
        for backend in [{", ".join(failed)}]:
            assert facts["errors"][backend] == {error}, facts
        want = expected if {chosen!r} != "none" else []
        assert _testcore.read_batch(-1, mem_fd, pairs + [(8, 8)]) == want
    """)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_as_nobody() -> None:
    """Every backend reads one's own memory without a privilege; /proc/self/mem was opened before."""
    run("""
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        for backend in (-1, MEMFD, PROCESS_VM, PIPE, PROC_MEM):
            assert _testcore.read_batch(backend, mem_fd, pairs + [(8, 8)]) == expected, backend
    """)


def test_with_no_room_for_files() -> None:
    """RLIMIT_FSIZE counts for memory files too, by SIGXFSZ: it is passed over. No descriptors: likewise."""
    run("""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        facts = _testcore.reader_facts(-1, True, mem_fd)
        assert (facts["backend"], facts["errors"][MEMFD]) == ("process_vm_readv", errno.EFBIG), facts
        assert _testcore.read_batch(PIPE, mem_fd, pairs) == expected
    """)
    run("""
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (mem_fd + 1, mem_fd + 1))
        for backend in (MEMFD, PIPE):
            facts = _testcore.reader_facts(backend, True, mem_fd)
            assert (facts["backend"], facts["errors"][backend]) == ("none", errno.EMFILE), facts
        assert _testcore.read_batch(-1, mem_fd, pairs) == expected
    """)
