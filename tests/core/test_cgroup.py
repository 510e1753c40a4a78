"""How long the cgroup was throttled: in real ones, and in made-up hierarchies of every kind."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from blocked import run_program

from loopwatch import _testcore

pytestmark = [
    pytest.mark.skipif(not hasattr(_testcore, "map_hole"), reason="the portable build reads no files"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make cgroups and mounts"),
]

PERIOD_US = 50_000
QUOTA_US = 10_000  # a fifth of a CPU

V1 = Path("/sys/fs/cgroup/cpu")
V2 = Path("/sys/fs/cgroup")


@contextmanager
def cgroup(path: Path, *, quota: bool) -> Iterator[Path]:
    """A cgroup below the cpu controller's root, of whichever version it is here."""
    try:
        path.mkdir()
    except OSError as reason:
        pytest.skip(f"no cgroup can be made here: {reason}")
    try:
        if quota:
            limit(path)
        yield path
    finally:
        for _ in range(100):  # busy until the kernel has buried its last process
            with suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.02)


def limit(path: Path) -> None:
    try:
        if (path / "cpu.cfs_quota_us").exists():
            (path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (path / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        else:
            (path / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
    except OSError as reason:
        pytest.skip(f"no quota can be set here: {reason}")


def root() -> Path:
    for path in (V1, V2):
        if (path / "cpu.cfs_quota_us").exists():
            return path
        controllers = path / "cgroup.subtree_control"
        if controllers.exists() and "cpu" in controllers.read_text().split():
            return path
    pytest.skip("no cpu controller here")


BURN = """
    import json
    Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
    tid = threading.get_native_id()
    files, before_ns = _testcore.cgroup_throttled()
    queued_ns = _testcore.thread_look(tid)["run_queue_ns"]
    begin_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
    while time.monotonic_ns() - begin_ns < 800_000_000:
        pass
    cpu_ns = time.thread_time_ns() - cpu_ns
    elapsed_ns = time.monotonic_ns() - begin_ns
    queued_ns = _testcore.thread_look(tid)["run_queue_ns"] - queued_ns
    throttled_ns = _testcore.cgroup_throttled()[1] - before_ns
    print(json.dumps([files, elapsed_ns, cpu_ns, queued_ns, throttled_ns]))
"""


def burn(path: Path) -> tuple[int, ...]:
    return tuple(json.loads(run_program(BURN, str(path))))


def check_throttled(figures: tuple[int, ...]) -> None:
    """One busy thread with a fifth of a CPU is throttled for the rest, or four fifths if nobody else runs.
    Its run-queue wait contains that; a throttle that still goes on at a reading is in neither yet."""
    _, elapsed_ns, cpu_ns, queued_ns, throttled_ns = figures
    off_cpu_ns = elapsed_ns - cpu_ns
    assert 0.3 * elapsed_ns < throttled_ns <= 1.1 * elapsed_ns, figures
    assert queued_ns > 0.8 * off_cpu_ns, figures
    assert queued_ns > 0.8 * throttled_ns, figures


def test_a_quota_of_its_own() -> None:
    with cgroup(root() / f"loopwatch-{os.getpid()}", quota=True) as path:
        check_throttled(burn(path))


def test_a_throttled_parent() -> None:
    with (
        cgroup(root() / f"loopwatch-{os.getpid()}", quota=True) as parent,
        cgroup(parent / "child", quota=False) as path,
    ):
        if not (path / "cpu.stat").exists():
            pytest.skip("no cpu controller in the child")
        check_throttled(burn(path))


NO_LOCAL_FILES = """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000) or libc.mount(None, b"/", None, ctypes.c_ulong(0x44000), None):
        sys.exit(f"SKIP mounts: {os.strerror(ctypes.get_errno())}")
    for path in (Path(sys.argv[1]), *Path(sys.argv[1]).parents):
        file = path / "cpu.stat.local"
        if file.exists():
            libc.mount(b"/dev/null", os.fsencode(file), None, ctypes.c_ulong(0x1000), None)
"""


def test_a_throttled_parent_where_no_file_counts_both() -> None:
    """Kernels before 6.7 have no cpu.stat.local: an empty one stands in for its absence."""
    with (
        cgroup(root() / f"loopwatch-{os.getpid()}", quota=True) as parent,
        cgroup(parent / "child", quota=False) as path,
    ):
        figures = tuple(json.loads(run_program(NO_LOCAL_FILES + BURN, str(path))))
    assert figures[0] >= 2
    check_throttled(figures)


def test_no_quota_no_throttling() -> None:
    with cgroup(root() / f"loopwatch-{os.getpid()}", quota=False) as path:
        assert burn(path)[-1] == 0


# --- made-up hierarchies ---

MADE_UP = """
    libc = ctypes.CDLL(None, use_errno=True)
    def mount(source, target, flags):
        if libc.mount(source, target, None, ctypes.c_ulong(flags), None):
            sys.exit(f"SKIP mount: {os.strerror(ctypes.get_errno())}")
    if libc.unshare(0x20000):
        sys.exit(f"SKIP unshare: {os.strerror(ctypes.get_errno())}")
    mount(None, b"/", 0x44000)
    for name in ("cgroup", "mountinfo"):
        mount(os.fsencode(sys.argv[1] + "/" + name), f"/proc/{os.getpid()}/{name}".encode(), 0x1000)
    print(_testcore.cgroup_throttled())
"""

V1_KEYS = "nr_periods 10\nnr_throttled 5\nthrottled_time {}\nnr_bursts 0\n"
V2_KEYS = "usage_usec 900\nuser_usec 1\nnr_periods 10\nnr_throttled 5\nthrottled_usec {}\nnr_bursts 0\n"
NO_KEY = "usage_usec 900\nuser_usec 1\n"


class Hierarchies:
    """Files that look like a host's, and what is read of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cgroups: list[str] = []
        self.mounts: list[str] = ["22 1 254:1 / / rw,relatime - ext4 /dev/root rw"]

    def mount(self, name: str, kind: str, options: str, mounted: str = "/") -> Path:
        point = self.directory / name
        point.mkdir(exist_ok=True)
        escaped = str(point).replace(" ", "\\040")
        self.mounts.append(f"31 22 0:28 {mounted} {escaped} rw,nosuid shared:9 - {kind} {kind} rw{options}")
        return point

    def file(self, directory: Path, text: str, name: str = "cpu.stat") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)

    def read(self) -> str:
        (self.directory / "cgroup").write_text("".join(f"{line}\n" for line in self.cgroups))
        (self.directory / "mountinfo").write_text("".join(f"{line}\n" for line in self.mounts))
        return run_program(MADE_UP, str(self.directory)).strip()


@pytest.fixture
def made_up(tmp_path: Path) -> Hierarchies:
    return Hierarchies(tmp_path)


def test_v1_by_the_list_of_controllers(made_up: Hierarchies) -> None:
    made_up.cgroups = ["5:cpuset:/wrong", "4:cpuacct,cpu:/pod/box", "1:name=systemd:/wrong", "0::/wrong"]
    made_up.file(made_up.mount("cpuset", "cgroup", ",cpuset") / "wrong", V1_KEYS.format(1))
    made_up.file(made_up.mount("unified", "cgroup2", "") / "wrong", NO_KEY)
    made_up.file(made_up.mount("cpu", "cgroup", ",cpuacct,cpu") / "pod/box", V1_KEYS.format(123))
    assert made_up.read() == "(1, 123)"


def test_v1_without_the_controller_and_v2_with_it(made_up: Hierarchies) -> None:
    made_up.cgroups = ["4:cpuset:/", "0::/app.slice/app.service"]
    made_up.file(made_up.mount("v1", "cgroup", ",cpuset"), V1_KEYS.format(7))
    made_up.file(made_up.mount("v2", "cgroup2", "") / "app.slice/app.service", V2_KEYS.format(5))
    assert made_up.read() == "(1, 5000)"


def test_ancestors_are_summed_and_those_without_the_key_left_out(made_up: Hierarchies) -> None:
    made_up.cgroups = ["0::/a/b/c/d"]
    top = made_up.mount("v2", "cgroup2", "")
    made_up.file(top / "a/b/c/d", NO_KEY)
    made_up.file(top / "a/b/c", V2_KEYS.format(3))
    made_up.file(top / "a/b", NO_KEY)
    made_up.file(top / "a", V2_KEYS.format(4))
    made_up.file(top, NO_KEY)
    made_up.file(top.parent, V2_KEYS.format(1000))  # above the mount: no cgroup
    assert made_up.read() == "(2, 7000)"


def test_the_file_that_counts_both_is_taken_alone(made_up: Hierarchies) -> None:
    made_up.cgroups = ["0::/a/b"]
    top = made_up.mount("v2", "cgroup2", "")
    made_up.file(top / "a/b", V2_KEYS.format(3))
    made_up.file(top / "a/b", "throttled_usec 6\n", "cpu.stat.local")
    made_up.file(top / "a", V2_KEYS.format(4))
    assert made_up.read() == "(1, 6000)"


def test_deeper_than_there_is_room_for(made_up: Hierarchies) -> None:
    names = [f"n{i}" for i in range(12)]
    made_up.cgroups = ["0::/" + "/".join(names)]
    top = made_up.mount("v2", "cgroup2", "")
    for depth in range(1, 13):
        made_up.file(top.joinpath(*names[:depth]), V2_KEYS.format(depth))
    assert made_up.read() == f"(8, {sum(range(5, 13)) * 1000})"


@pytest.mark.parametrize(
    ("path", "mounted", "expected"),
    [
        ("/docker/box", "/docker/box", "(1, 9)"),  # a container without a cgroup namespace
        ("/docker/box/worker", "/docker/box", "(2, 12)"),
        ("/", "/", "(1, 9)"),  # a container with one
        ("/worker", "/", "(2, 12)"),
        ("/docker/boxer", "/docker/box", "(0, None)"),  # not below it, though it begins alike
        ("/../other", "/", "(0, None)"),  # outside of the namespace
        ("/..", "/..", "(0, None)"),
    ],
)
def test_containers(made_up: Hierarchies, path: str, mounted: str, expected: str) -> None:
    made_up.cgroups = [f"3:cpu:{path}"]
    top = made_up.mount("cpu", "cgroup", ",cpu", mounted)
    made_up.file(top, V1_KEYS.format(9))
    made_up.file(top / "worker", V1_KEYS.format(3))
    made_up.file(top.with_name("cpuer"), V1_KEYS.format(5))
    assert made_up.read() == expected


def test_odd_lines(made_up: Hierarchies) -> None:
    """Blanks in a mount point, no optional field, lines longer than the buffer, lines that are no mounts."""
    made_up.cgroups = ["", "x", "9:", "3:cpu:/a"]
    long = "/layer:" * 2000
    made_up.mounts += ["", " - ", "1 2 3", f"50 22 0:50 / /big rw - overlay overlay rw,lowerdir={long}"]
    made_up.file(made_up.mount("with a blank", "cgroup", ",cpu") / "a", V1_KEYS.format(8))
    made_up.mounts.append("51 22 0:51 / /later rw - tmpfs tmpfs rw")
    assert made_up.read() == "(1, 8)"


def test_no_cgroups_at_all(made_up: Hierarchies) -> None:
    assert made_up.read() == "(0, None)"
