"""A thread with a descriptor table of its own: the program may do to its descriptors whatever it likes."""

import ctypes
import errno
import os
import subprocess
import sys
import textwrap

import pytest

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build has no table of its own"
)

PRELUDE = """
    import ctypes, errno, os, sys
    from pathlib import Path
    from loopwatch import _testcore
    data = bytearray(b"0123456789abcdef" * 16)
    address = ctypes.addressof((ctypes.c_char * len(data)).from_buffer(data))
    pairs = [(address + i, 8) for i in range(100)] + [(8, 8)]
    expected = [bytes(data[i:i + 8]) for i in range(100)]
"""


def run(program: str) -> str:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(program)
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_own_table_and_the_cheapest_backend() -> None:
    worker = _testcore.worker_new()
    facts = _testcore.worker_facts(worker)
    assert (facts["own"], facts["failed_call"], facts["error"]) == (True, None, 0)
    assert facts["backend"] == "memfd"
    buffer = ctypes.create_string_buffer(b"seen from the other thread")
    assert _testcore.worker_read(worker, [(ctypes.addressof(buffer), 4), (8, 1)]) == [b"seen"]


def test_nothing_of_it_in_the_programs_table() -> None:
    def descriptors() -> list[str]:
        return sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = descriptors()
    worker = _testcore.worker_new()
    assert descriptors() == before
    del worker
    assert descriptors() == before


def test_a_program_that_closes_everything() -> None:
    """The numbers are handed out again, to files: none of them is written to, and the reads go on."""
    run("""
        import tempfile
        os.chdir(tempfile.mkdtemp())
        worker = _testcore.worker_new()
        assert _testcore.worker_facts(worker)["backend"] == "memfd"
        assert _testcore.worker_read(worker, pairs) == expected
        os.closerange(0, 2)
        os.closerange(3, 4096)
        # Appending and reading positions both betray a write; zeros stay zeros.
        names = [f"file{i}" for i in range(64)]
        opened = [os.open(name, os.O_RDWR | os.O_CREAT) for name in names]
        assert {0, 1, 3, 4, 5} <= set(opened)
        for fd in opened:
            os.write(fd, bytes(512))
        for _ in range(500):
            assert _testcore.worker_read(worker, pairs) == expected
        for name, fd in zip(names, opened):
            assert Path(name).read_bytes() == bytes(512), name
            assert os.lseek(fd, 0, os.SEEK_CUR) == 512
            os.close(fd)
        for name in names:
            Path(name).unlink()
        os.rmdir(os.getcwd())
    """)


def test_descriptors_of_the_program_are_adopted_as_they_are_now() -> None:
    read_end, write_end = os.pipe()
    worker = _testcore.worker_new()
    later_read_end, later_write_end = os.pipe()  # made after the tables parted
    try:
        assert _testcore.worker_write(worker, write_end, b"before") == 0
        assert os.read(read_end, 100) == b"before"
        assert _testcore.worker_write(worker, later_write_end, b"after") == 0
        assert os.read(later_read_end, 100) == b"after"
        os.dup2(write_end, later_write_end)
        assert _testcore.worker_write(worker, later_write_end, b"moved") == 0
        assert os.read(read_end, 100) == b"moved"
    finally:
        for fd in (read_end, write_end, later_read_end, later_write_end):
            os.close(fd)
    assert _testcore.worker_write(worker, write_end, b"gone") == errno.EBADF


def test_a_closed_standard_output_is_closed_for_its_reader() -> None:
    """Whoever waits for the end of our output must not wait for the thread with a table of its own."""
    source = textwrap.dedent("""
        import os, sys
        from loopwatch import _testcore
        worker = _testcore.worker_new()
        assert _testcore.worker_facts(worker)["own"]
        os.write(1, b"all I have to say")
        os.close(1)
        sys.stdin.buffer.read()
    """)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", source], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdin
        # Returns at the end of file; where that never comes, the test hangs until its timeout.
        assert process.stdout.read() == b"all I have to say"
        assert process.poll() is None
        process.stdin.close()
        # The interpreter may complain at exit that its sys.stdout cannot be flushed.
        assert process.wait(60) in (0, 120)


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
@pytest.mark.parametrize("denied", ["pidfd_open", "pidfd_getfd", "close_range"])
def test_where_it_is_forbidden_the_table_stays_shared(denied: str, error: int) -> None:
    run(f"""
        _testcore.deny_syscalls([{denied!r}], {error})
        before = sorted(os.listdir("/proc/self/fd"))
        worker = _testcore.worker_new()
        facts = _testcore.worker_facts(worker)
        assert not facts["own"]
        assert (facts["failed_call"], facts["error"]) == ({denied!r}, {error}), facts
        assert facts["backend"] == "process_vm_readv", facts
        assert _testcore.worker_read(worker, pairs) == expected
        assert sorted(os.listdir("/proc/self/fd")) == before
        r, w = os.pipe()
        assert _testcore.worker_write(worker, w, b"a dup") == 0
        assert os.read(r, 100) == b"a dup"
        os.close(w)
        assert _testcore.worker_write(worker, w, b"gone") == errno.EBADF
        assert os.read(r, 1) == b""
    """)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_as_nobody() -> None:
    run("""
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        worker = _testcore.worker_new()
        facts = _testcore.worker_facts(worker)
        assert (facts["own"], facts["backend"]) == (True, "memfd"), facts
        assert _testcore.worker_read(worker, pairs) == expected
        r, w = os.pipe()
        assert _testcore.worker_write(worker, w, b"adopted") == 0
        assert os.read(r, 100) == b"adopted"
    """)


def test_a_program_that_confines_itself_later() -> None:
    """Each call is taken away once it is in use: the next backend takes over, and the reason is kept."""
    run("""
        worker = _testcore.worker_new()
        backends = ["memfd"]
        for call in ("pwritev", "process_vm_readv", "writev"):
            assert _testcore.worker_read(worker, pairs) == expected
            _testcore.deny_syscalls([call], errno.EPERM)
            _testcore.worker_read(worker, pairs)
            backends.append(_testcore.worker_facts(worker)["backend"])
        assert backends == ["memfd", "process_vm_readv", "pipe", "none"]
        assert _testcore.worker_facts(worker)["errors"] == (-1, *[errno.EPERM] * 3, errno.EBADF)
        assert _testcore.worker_read(worker, pairs) == []
        assert _testcore.worker_facts(worker)["calls"] == 7
    """)
