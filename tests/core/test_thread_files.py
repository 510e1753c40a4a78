"""What the kernel says of a thread: where it stands, how long it waited for a CPU, what it had to fetch."""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import platform
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from blocked import look_until, run_program, running, wait_until_gone

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build reads no files"
)

libc = ctypes.CDLL(None, use_errno=True)

# --- stands ---


def test_a_lock_is_a_futex() -> None:
    lock = threading.Lock()
    lock.acquire()
    with running(lock.acquire, lock.release) as tid:
        look = look_until(tid, "futex", ("futex",))
        assert look["arguments"][0] > 4096
        assert look["target"] == ""


def test_a_thread_that_computes_runs() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    with running(spin, stop.set) as tid:
        look = look_until(tid, "running", ())
        assert (look["syscall"], look["number"], look["target"]) == (None, -1, "")


class Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("length", ctypes.c_uint64))


class Register(ctypes.Structure):
    _fields_ = (("range", Range), ("mode", ctypes.c_uint64), ("ioctls", ctypes.c_uint64))


class Api(ctypes.Structure):
    _fields_ = (("api", ctypes.c_uint64), ("features", ctypes.c_uint64), ("ioctls", ctypes.c_uint64))


def missing_page(memory: mmap.mmap) -> int:
    """A userfaultfd that never answers for this memory: whoever touches it waits until it is closed."""
    call = {"x86_64": 323, "aarch64": 282}.get(platform.machine())
    if call is None:
        pytest.skip("the number of userfaultfd is not known here")
    fd = libc.syscall(call, os.O_CLOEXEC | 1)  # UFFD_USER_MODE_ONLY
    if fd < 0:
        pytest.skip(f"userfaultfd: {os.strerror(ctypes.get_errno())}")
    fcntl.ioctl(fd, 0xC018AA3F, Api(api=0xAA))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(fd, 0xC020AA00, Register(Range(address, mmap.PAGESIZE), 1))
    return int(fd)


def test_a_page_that_is_fetched() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fd = missing_page(memory)
    with running(lambda: ctypes.memset(address, 1, 1), lambda: os.close(fd)) as tid:
        look = look_until(tid, "page", ())
        assert (look["syscall"], look["target"]) == (None, "")


def test_a_thread_that_is_gone() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert thread.native_id
    wait_until_gone(thread.native_id)
    look = _testcore.thread_look(thread.native_id)
    assert {look[key] for key in ("run_queue_ns", "major_faults", "stand", "syscall")} == {None}


# --- clocks ---


def test_major_faults_are_the_threads_own(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    path.write_bytes(os.urandom(64 * mmap.PAGESIZE))
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            memory.madvise(mmap.MADV_RANDOM)
            sum(memory[i] for i in range(0, len(memory), mmap.PAGESIZE))
    look = _testcore.thread_look(threading.get_native_id())
    after = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
    if after == before:
        pytest.skip("the kernel kept the file's pages: no major fault could be had")
    assert before < look["major_faults"] <= after


def test_the_run_queue_moves_beside_hogs() -> None:
    """Two processes want the same CPU: the thread gets a third of it, and waits for it for the rest."""
    cpu = min(os.sched_getaffinity(0))
    hog = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-S", "-c", hog], stdout=subprocess.PIPE) for _ in range(2)]
    stop = threading.Event()

    def spin() -> None:
        os.sched_setaffinity(threading.get_native_id(), {cpu})
        while not stop.is_set():
            sum(range(1000))

    try:
        for process in hogs:
            assert process.stdout
            process.stdout.readline()
        with running(spin, stop.set) as tid:
            look_until(tid, "running", ())
            begin = time.monotonic_ns()
            before = _testcore.thread_look(tid)["run_queue_ns"]
            time.sleep(0.6)
            waited = _testcore.thread_look(tid)["run_queue_ns"] - before
            elapsed = time.monotonic_ns() - begin
    finally:
        for process in hogs:
            process.kill()
            process.communicate()
    assert 0.25 * elapsed < waited <= elapsed


def test_a_name_that_looks_like_fields() -> None:
    """A thread may be called ") R 1 2 3": its state and faults are still its own."""
    event = threading.Event()

    def wait() -> None:
        libc.prctl(15, b") R 77 77 77 7")
        event.wait()

    with running(wait, event.set) as tid:
        look = look_until(tid, "futex", ())
        assert look["major_faults"] < 77
        assert Path(f"/proc/self/task/{tid}/stat").read_text().startswith(f"{tid} () R 77")


# --- files that stay open ---


def threads_of(fds: tuple[int, ...]) -> set[int]:
    return {int(Path(f"/proc/self/fd/{fd}").readlink().parent.name) for fd in fds}


def test_opening_is_idempotent_for_a_thread_and_anew_for_another() -> None:
    event = threading.Event()
    files = _testcore.thread_files_new()
    me = threading.get_native_id()
    fds = _testcore.thread_files_open(files, me)
    assert threads_of(fds) == {me}
    assert _testcore.thread_files_open(files, me) == fds
    with running(event.wait, event.set) as tid:
        assert look_until(tid, "futex", ())
        fds = _testcore.thread_files_open(files, tid)
        assert threads_of(fds) == {tid}
        assert _testcore.thread_files_read(files)["stand"] == "futex"
    wait_until_gone(tid)
    look = _testcore.thread_files_read(files)
    assert {look[key] for key in ("run_queue_ns", "major_faults", "stand", "syscall")} == {None}
    del files
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_a_forked_child_leaves_the_numbers_alone() -> None:
    """They were the parent's: in the child they may name anything by now, and nobody may close them."""
    source = """
        files = _testcore.thread_files_new()
        old = _testcore.thread_files_open(files, threading.get_native_id())
        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        for fd in old:
            os.dup2(2, fd)
        new = _testcore.thread_files_open(files, threading.get_native_id())
        assert not set(new) & set(old)
        for fd in old:
            os.fstat(fd)
        assert _testcore.thread_files_read(files)["stand"] is not None
    """
    run_program(source)


# --- what this system does not have ---


def test_a_file_of_somebody_else_stays_closed() -> None:
    """A process that became nobody is not dumpable, its files belong to root; those that are open go on."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    run_program("""
        event = threading.Event()
        thread = threading.Thread(target=event.wait)
        thread.start()
        files = _testcore.thread_files_new()
        _testcore.thread_files_open(files, thread.native_id)
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        look = _testcore.thread_look(thread.native_id)
        assert look["stand"] is None and look["syscall"] is None, look
        assert look["run_queue_ns"] is not None and look["major_faults"] is not None, look
        deadline = time.monotonic() + 20
        while (look := _testcore.thread_files_read(files))["stand"] != "futex":
            assert time.monotonic() < deadline, look
            time.sleep(0.01)
        event.set()
        stop = []
        thread = threading.Thread(target=lambda: [None for _ in iter(lambda: bool(stop), True)])
        thread.start()
        looks = {_testcore.thread_look(thread.native_id)["stand"] for _ in range(50)}
        stop.append(1)
        assert "running" in looks, looks  # the state alone says it
    """)


PRIVATE_MOUNTS = """
        libc = ctypes.CDLL(None, use_errno=True)
        def mount(source, target, kind, flags, data=None):
            if libc.mount(source, target, kind, ctypes.c_ulong(flags), data):
                sys.exit(f"SKIP mount: {os.strerror(ctypes.get_errno())}")
        if libc.unshare(0x20000):
            sys.exit(f"SKIP unshare: {os.strerror(ctypes.get_errno())}")
        mount(None, b"/", None, 0x44000)
"""


def test_without_proc() -> None:
    run_program(
        PRIVATE_MOUNTS
        + """
        mount(b"none", b"/proc", b"tmpfs", 0)
        look = _testcore.thread_look(threading.get_native_id())
        assert {look[key] for key in ("run_queue_ns", "major_faults", "stand", "syscall")} == {None}, look
        assert _testcore.cgroup_throttled() == (0, None)
    """
    )


def test_in_a_proc_that_hides_other_processes() -> None:
    run_program(
        PRIVATE_MOUNTS
        + """
        mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2")
        look = _testcore.thread_look(threading.get_native_id())
        assert None not in {look[key] for key in ("run_queue_ns", "major_faults", "stand")}, look
    """
    )


def test_where_copies_of_descriptors_are_forbidden() -> None:
    run_program("""
        import errno, socket
        _testcore.deny_syscalls(["pidfd_getfd"], errno.EPERM)
        one, two = socket.socketpair()
        before = sorted(os.listdir("/proc/self/fd"))
        thread = threading.Thread(target=one.recv, args=(1,))
        thread.start()
        deadline = time.monotonic() + 20
        while (look := _testcore.thread_look(thread.native_id))["stand"] != "call":
            assert time.monotonic() < deadline, look
            time.sleep(0.01)
        assert look["target"] == "unix socketpair", look
        assert sorted(os.listdir("/proc/self/fd")) == before
        two.send(b"x")
        thread.join()
    """)


def test_whichever_descriptor_cannot_be_had() -> None:
    """From limits under which nothing can be opened to one under which all can: the rest is not known."""
    run_program("""
        import resource, socket
        one, two = socket.socketpair()
        thread = threading.Thread(target=one.recv, args=(1,))
        thread.start()
        deadline = time.monotonic() + 20
        while (look := _testcore.thread_look(thread.native_id))["stand"] != "call":
            assert time.monotonic() < deadline, look
            time.sleep(0.01)
        looks = []
        for limit in range(16):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            looks.append(_testcore.thread_look(thread.native_id))
        assert [look["stand"] for look in looks] == sorted((look["stand"] for look in looks), key=bool), looks
        targets = list(dict.fromkeys(look["target"] for look in looks))
        assert targets == ["", "socket", "unix socketpair"], looks
        known = {(look["run_queue_ns"] is not None, look["syscall"] is not None) for look in looks}
        assert known == {(False, False), (True, False), (True, True)}, looks
        two.send(b"x")
        thread.join()
    """)


FAKE_FILES = (
    PRIVATE_MOUNTS
    + """
        import json, tempfile
        tid = threading.get_native_id()
        for name, text in json.loads(sys.argv[1]).items():
            file = Path(tempfile.mkdtemp(), name)
            file.write_text(text)
            mount(os.fsencode(file), f"/proc/self/task/{tid}/{name}".encode(), None, 0x1000)
        print(json.dumps(_testcore.thread_look(tid)))
    """
)
STAT = "42 (a) b) {} 1 2 3 4 5 6 7 8 9 10 11 12 13\n"
CALL = "7 0x1 0x2 0x3 0x4 0x5 0xff 0x7ffe 0x7f00\n"
ASLEEP = "-1 0x7ffe 0x7f00\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"schedstat": "5 77 1\n"}, {"run_queue_ns": 77}),
        ({"schedstat": "5 0 1\n"}, {"run_queue_ns": 0}),
        ({"schedstat": "0 0 0\n"}, {"run_queue_ns": None}),  # the kernel keeps no such accounts
        ({"schedstat": ""}, {"run_queue_ns": None}),
        ({"schedstat": "x"}, {"run_queue_ns": None}),
        ({"stat": STAT.format("S")}, {"major_faults": 9}),
        ({"stat": "42 (a) S 1 2"}, {"major_faults": None}),
        ({"stat": "x"}, {"major_faults": None}),
        ({"syscall": CALL}, {"stand": "call", "number": 7, "arguments": [1, 2, 3, 4, 5, 255]}),
        ({"syscall": "7 0x1 0x2\n"}, {"stand": None, "number": -1}),
        ({"syscall": "x"}, {"stand": None, "number": -1}),
        ({"syscall": "running\n", "stat": STAT.format("S")}, {"stand": "running"}),
        ({"syscall": ASLEEP, "stat": STAT.format("D")}, {"stand": "page"}),
        ({"syscall": ASLEEP, "stat": STAT.format("S")}, {"stand": "page"}),
        ({"syscall": ASLEEP, "stat": STAT.format("t")}, {"stand": None}),  # a debugger's stop
        ({"syscall": ASLEEP, "stat": STAT.format("T")}, {"stand": None}),
        ({"syscall": "", "stat": STAT.format("R")}, {"stand": "running"}),
        ({"syscall": "", "stat": STAT.format("S")}, {"stand": None}),
        ({"syscall": "", "stat": STAT.format("D")}, {"stand": None}),
    ],
)
def test_made_up_files(files: dict[str, str], expected: dict[str, object]) -> None:
    look = json.loads(run_program(FAKE_FILES, json.dumps(files)))
    assert {key: look[key] for key in expected} == expected
