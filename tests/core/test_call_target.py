"""What a blocked system call waits for, in words."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from blocked import look_until, running, target_of

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build reads no files"
)

libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        with suppress(OSError):
            os.close(fd)


def listener(family: int = socket.AF_INET, backlog: int = 8) -> socket.socket:
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
    except OSError as reason:
        pytest.skip(f"no such addresses here: {reason}")
    sock.listen(backlog)
    return sock


def inet(sock: socket.socket, *, peer: bool = False) -> str:
    host, port = (sock.getpeername() if peer else sock.getsockname())[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# --- none ---


def test_a_sleep_has_no_target() -> None:
    event = threading.Event()
    assert target_of(lambda: time.sleep(0.5), event.set, "clock_nanosleep", "nanosleep") == ""


# --- targets: descriptors ---


def test_a_pipe(pipe: tuple[int, int]) -> None:
    assert target_of(lambda: os.read(pipe[0], 1), lambda: os.write(pipe[1], b"x"), "read") == "pipe"


def test_a_full_pipe(pipe: tuple[int, int]) -> None:
    size = fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ)
    data = bytes(size + 1)

    def drain() -> None:
        left = len(data)
        while left:
            left -= len(os.read(pipe[0], left))

    assert target_of(lambda: os.write(pipe[1], data), drain, "write") == "pipe"


def test_a_fifo_that_nobody_opens(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    opened: list[int] = []
    other: list[int] = []
    target = target_of(
        lambda: opened.append(os.open(path, os.O_RDONLY)),
        lambda: other.append(os.open(path, os.O_WRONLY)),
        "openat",
        "open",
    )
    for fd in opened + other:
        os.close(fd)
    assert target == str(path)


def test_a_fifo_that_is_open(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    assert target_of(lambda: os.read(fd, 1), lambda: os.write(fd, b"x"), "read") == str(path)
    os.close(fd)


def test_a_path_with_control_characters_is_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[31m\nb"
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    target = target_of(lambda: os.read(fd, 1), lambda: os.write(fd, b"x"), "read")
    assert target == str(tmp_path / "a?[31m?b")
    os.close(fd)


def test_a_path_at_the_end_of_a_page_before_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    text = os.fsencode(path) + b"\0"
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    begin = mmap.PAGESIZE - len(text)
    memory[begin : begin + len(text)] = text
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert libc.mprotect(address + mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
    libc.open.argtypes = (ctypes.c_void_p, ctypes.c_int)
    fds: list[int] = []
    target = target_of(
        lambda: fds.append(libc.open(address + begin, os.O_RDONLY)),
        lambda: fds.append(os.open(path, os.O_WRONLY)),
        "openat",
        "open",
    )
    for fd in fds:
        os.close(fd)
    assert target == str(path)


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_peer_that_says_nothing(family: int, timeout: float | None) -> None:
    with listener(family) as server, socket.create_connection(server.getsockname()[:2]) as client:
        connection, _ = server.accept()
        with connection:
            client.settimeout(timeout)
            calls = ("recvfrom",) if timeout is None else ("poll", "ppoll")
            target = target_of(lambda: client.recv(1), lambda: connection.send(b"x"), *calls)
            assert target == f"tcp {inet(client, peer=True)}"


def test_a_peer_that_reads_nothing() -> None:
    with listener() as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            data = bytes(32 << 20)
            assert (
                target_of(lambda: client.sendall(data), connection.close, "sendto") == f"tcp {inet(server)}"
            )


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_listening_socket(timeout: float | None) -> None:
    with listener() as server:
        server.settimeout(timeout)
        address = server.getsockname()

        def accept() -> None:
            server.accept()[0].close()

        calls = ("accept4", "accept") if timeout is None else ("poll", "ppoll")
        target = target_of(accept, lambda: socket.create_connection(address).close(), *calls)
        assert target == f"tcp listening {inet(server)}"


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_that_is_not_answered(family: int, timeout: float | None) -> None:
    """A full backlog drops what would begin a connection; the client tries again, more and more seldom."""
    with listener(family, backlog=0) as server:
        address = server.getsockname()
        fillers = []
        for _ in range(4):
            filler = socket.socket(family)
            filler.setblocking(False)
            filler.connect_ex(address)
            fillers.append(filler)
        client = socket.socket(family)
        client.settimeout(timeout)
        calls = ("connect",) if timeout is None else ("poll", "ppoll")
        target = target_of(lambda: client.connect(address), lambda: client.shutdown(socket.SHUT_RDWR), *calls)
        for sock in [*fillers, client]:
            sock.close()
        assert target == f"tcp {inet(server)}"


def test_udp() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock, socket.socket(type=socket.SOCK_DGRAM) as other:
        sock.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))

        def release() -> None:
            other.sendto(b"x", sock.getsockname())

        assert target_of(lambda: sock.recv(1), release, "recvfrom") == f"udp {inet(sock)}"
        sock.connect(other.getsockname())
        assert target_of(lambda: sock.recv(1), release, "recvfrom") == f"udp {inet(other)}"


def test_unix_sockets(tmp_path: Path) -> None:
    one, two = socket.socketpair()
    with one, two:
        assert target_of(lambda: one.recv(1), lambda: two.send(b"x"), "recvfrom") == "unix socketpair"
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "s"
    for address, name in (
        (str(path), str(path)),
        (b"\0loopwatch-%d" % os.getpid(), f"@loopwatch-{os.getpid()}"),
    ):
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(address)
            server.listen()
            client.connect(address)
            connection, _ = server.accept()
            with connection:
                for mine, its in ((client, connection), (connection, client)):
                    target = target_of(lambda s=mine: s.recv(1), lambda s=its: s.send(b"x"), "recvfrom")  # type: ignore[misc]
                    assert target == f"unix {name}"


def test_eventfd_and_its_kin() -> None:
    fd = os.eventfd(0)
    assert target_of(lambda: os.read(fd, 8), lambda: os.eventfd_write(fd, 1), "read") == "eventfd"
    os.close(fd)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    with tempfile.TemporaryDirectory() as directory:
        assert libc.inotify_add_watch(fd, os.fsencode(directory), 0x100) >= 0  # IN_CREATE
        touch = Path(directory, "x").touch
        assert target_of(lambda: os.read(fd, 100), touch, "read") == "inotify"
    os.close(fd)
    fd = libc.timerfd_create(1, os.O_CLOEXEC)

    def fire() -> None:
        libc.timerfd_settime(fd, 0, (ctypes.c_long * 4)(0, 0, 0, 1), None)

    assert target_of(lambda: os.read(fd, 8), fire, "read") == "timerfd"
    os.close(fd)


def test_file_locks(tmp_path: Path) -> None:
    path = tmp_path / "locked"
    with path.open("w") as holder, path.open("w") as waiter:
        fcntl.flock(holder, fcntl.LOCK_EX)
        target = target_of(
            lambda: fcntl.flock(waiter, fcntl.LOCK_EX), lambda: fcntl.flock(holder, fcntl.LOCK_UN), "flock"
        )
        assert target == str(path)


def test_a_look_does_not_drop_the_programs_locks(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops the process's POSIX locks on it: a look may close none."""
    path = tmp_path / "locked"
    path.write_text("x")
    ask = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with path.open("r+") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        fcntl.flock(held, fcntl.LOCK_SH)
        with (
            path.open("r+") as other,
            running(
                lambda: fcntl.flock(other, fcntl.LOCK_EX), lambda: fcntl.flock(held, fcntl.LOCK_UN)
            ) as tid,
        ):
            for own_table in (False, True):
                assert look_until(tid, "call", ("flock",), own_table)["target"] == str(path)
            done = subprocess.run([sys.executable, "-c", ask, str(path)], capture_output=True)
            assert done.returncode != 0, "the lock was free"


# --- targets: sets of descriptors ---


def test_poll_and_select_name_what_they_wait_for(pipe: tuple[int, int]) -> None:
    one, two = socket.socketpair()
    event = os.eventfd(0)
    with one, two:
        poller = select.poll()
        for fd in (pipe[0], one.fileno(), event):
            poller.register(fd, select.POLLIN)
        words = {"pipe", "unix socketpair", "eventfd"}
        target = target_of(poller.poll, lambda: os.write(pipe[1], b"x"), "poll", "ppoll")
        assert set(target.split(", ")) == words
        os.read(pipe[0], 1)
        target = target_of(
            lambda: select.select([pipe[0], event], [], [one]),
            lambda: os.write(pipe[1], b"x"),
            "select",
            "pselect6",
        )
        assert set(target.split(", ")) == words
    os.close(event)


def test_equal_ones_are_named_once_and_three_at_most() -> None:
    pipes = [os.pipe() for _ in range(6)]
    poller = select.poll()
    for fd, _ in pipes:
        poller.register(fd, select.POLLIN)
    assert target_of(poller.poll, lambda: os.write(pipes[0][1], b"x"), "poll", "ppoll") == "pipe"
    servers = [listener() for _ in range(5)]
    for fd, _ in pipes:
        poller.unregister(fd)
    for server in servers:
        poller.register(server, select.POLLIN)
    target = target_of(
        poller.poll, lambda: socket.create_connection(servers[0].getsockname()).close(), "poll", "ppoll"
    )
    names = target.split(", ")
    assert len(names) == 3
    assert set(names) <= {f"tcp listening {inet(server)}" for server in servers}
    for ends in pipes:
        for fd in ends:
            os.close(fd)
    for server in servers:
        server.close()


def test_an_epoll_of_the_programs_own(pipe: tuple[int, int]) -> None:
    with select.epoll() as epoll:
        epoll.register(pipe[0], select.EPOLLIN)
        target = target_of(epoll.poll, lambda: os.write(pipe[1], b"x"), "epoll_wait", "epoll_pwait")
    assert target == "epoll"


# --- targets: children ---

SLEEPER = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@contextmanager
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) as process:
        yield process


@pytest.mark.parametrize("anyone", [False, True])
def test_a_child(anyone: bool) -> None:
    with child() as process:
        pid = -1 if anyone else process.pid

        def wait() -> None:
            process.returncode = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert process.stdin
        target = target_of(wait, process.stdin.close, "wait4")
        assert target == ("any child" if anyone else f"child {process.pid}")


@pytest.mark.parametrize("how", ["waitid of a number", "waitid of a pidfd", "poll of a pidfd"])
def test_a_child_by_other_calls(how: str) -> None:
    with child() as process:
        assert process.stdin
        fd = os.pidfd_open(process.pid)
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        flags = os.WEXITED | os.WNOWAIT

        def wait() -> None:
            if how == "waitid of a number":
                os.waitid(os.P_PID, process.pid, flags)
            elif how == "waitid of a pidfd":
                os.waitid(os.P_PIDFD, fd, flags)
            else:
                poller.poll()

        target = target_of(
            wait, process.stdin.close, *(("waitid",) if "waitid" in how else ("poll", "ppoll"))
        )
        os.close(fd)
        assert target == f"child {process.pid}"


def test_subprocess_run_waits_for_pipes() -> None:
    read_end, write_end = os.pipe()

    def run() -> None:
        subprocess.run(
            [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"],
            stdin=read_end,
            capture_output=True,
            check=True,
        )

    assert target_of(run, lambda: os.close(write_end), "poll", "ppoll") == "pipe"
    os.close(read_end)
