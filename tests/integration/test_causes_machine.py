"""The machine's doings as the cause of a stall, where nobody in the program is to blame."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import GIL, full_build, linux, next_fact, started
from stalling_programs import HEAD, keeps_promises, stalls_of

pytestmark = full_build

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def nobody(stall: dict[str, Any], verdict: str) -> None:
    assert stall["verdict"] == verdict, (stall["breakdown"], stall["evidence"])
    assert stall["culprit"] is None
    assert stall["holder"] is None


class Cgroups:
    """Cgroups of one controller, of whichever version it is here; they are empty and gone afterwards."""

    def __init__(self, controller: str) -> None:
        self._v1 = Path("/sys/fs/cgroup") / controller
        self.is_v1 = self._v1.is_dir()
        self._made: list[Path] = []

    def make(self, parent: Path | None = None) -> Path:
        top = parent or (self._v1 if self.is_v1 else Path("/sys/fs/cgroup"))
        path = top / f"loopwatch-{os.getpid()}-{len(self._made)}"
        try:
            path.mkdir()
        except OSError as problem:
            pytest.skip(f"no cgroup can be made here: {problem}")
        self._made.append(path)
        return path

    def limit(self, path: Path, share: float) -> None:
        period_us = 100_000
        quota_us = int(share * period_us)
        try:
            if self.is_v1:
                (path / "cpu.cfs_period_us").write_text(str(period_us))
                (path / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (path / "cpu.max").write_text(f"{quota_us} {period_us}")
        except OSError as problem:
            pytest.skip(f"no quota can be set here: {problem}")

    def switch(self, path: Path) -> tuple[Path, str, str]:
        """A file, and what freezes and thaws the cgroup when it is written there."""
        if self.is_v1:
            return path / "freezer.state", "FROZEN", "THAWED"
        return path / "cgroup.freeze", "1", "0"

    def thaw(self, path: Path) -> None:
        file, _, thawed = self.switch(path)
        try:
            file.write_text(thawed)
        except OSError as problem:
            pytest.skip(f"nothing can be frozen here: {problem}")

    def is_frozen(self, path: Path) -> bool:
        if self.is_v1:
            return (path / "freezer.state").read_text().strip() == "FROZEN"
        return "frozen 1" in (path / "cgroup.events").read_text()

    def remove(self) -> None:
        for path in reversed(self._made):
            for _ in range(200):
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                time.sleep(0.01)


@pytest.fixture
def cpu() -> Iterator[Cgroups]:
    groups = Cgroups("cpu")
    yield groups
    groups.remove()


@pytest.fixture
def freezer() -> Iterator[Cgroups]:
    groups = Cgroups("freezer")
    yield groups
    groups.remove()


JOINS = """
with open(os.path.join(sys.argv[1], "cgroup.procs"), "w") as procs:
    procs.write(str(os.getpid()))
"""


def throttled(path: Path) -> None:
    """Work of 60 ms in a cgroup that has a tenth of a CPU: 10 ms, a wait of 90, and so on."""
    (stall,) = stalls_of(JOINS + "watched(lambda: counts(0.06), alone=False)", path)
    nobody(stall, "not-scheduled")
    assert stall["breakdown"]["not-scheduled"] > 0.7 * stall["duration"], (
        stall["breakdown"],
        stall["evidence"],
    )
    assert stall["evidence"]["throttled_time"] > 0.3 * stall["duration"]
    assert stall["evidence"]["cpu_time"] < 0.2


@linux
@root
def test_throttled(cpu: Cgroups) -> None:
    path = cpu.make()
    cpu.limit(path, 0.1)
    throttled(path)


@linux
@root
def test_throttled_by_the_parent(cpu: Cgroups) -> None:
    parent = cpu.make()
    if not cpu.is_v1:
        (parent / "cgroup.subtree_control").write_text("+cpu")
    cpu.limit(parent, 0.1)
    throttled(cpu.make(parent))


@pytest.mark.skipif(not GIL, reason="took over a minute on a busy machine, without a GIL: to be looked into")
@linux
def test_starved_beside_hogs() -> None:
    """On one CPU with eight others that never stop."""
    here = {max(os.sched_getaffinity(0))}
    command = [sys.executable, "-S", "-c", "while True: pass"]
    pin: Callable[[], None] = lambda: os.sched_setaffinity(0, here)  # noqa: E731
    hogs = [subprocess.Popen(command, preexec_fn=pin) for _ in range(8)]
    try:
        (stall,) = stalls_of("watched(lambda: counts(0.06), alone=False)", preexec=pin)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    nobody(stall, "not-scheduled")
    assert stall["evidence"]["run_queue_wait"] > 0.5 * stall["duration"]


STOPPED_FOR = 0.8
STOPS_ITSELF = (
    HEAD
    + """
import signal
from pathlib import Path
def block():
    counts(0.1)
    {stop}
    counts(0.1)
watched(block)
"""
)


def stopped(
    stop: str, *args: str | Path, is_stopped: Callable[[int], bool], go_on: Callable[[int], None]
) -> None:
    """The program stops itself, in the middle of the turn however busy the machine is."""
    with started(STOPS_ITSELF.format(stop=stop), *args) as program:
        deadline = time.monotonic() + 20
        while not is_stopped(program.pid):
            assert program.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(STOPPED_FOR)
        go_on(program.pid)
        (stall,) = next_fact(program)["stalls"]
    keeps_promises(stall)
    nobody(stall, "suspended")
    assert stall["breakdown"]["suspended"] == pytest.approx(STOPPED_FOR, abs=0.25)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@linux
def test_sigstop() -> None:
    stopped(
        "os.kill(os.getpid(), signal.SIGSTOP)",
        is_stopped=lambda pid: state_of(pid) == "T",
        go_on=lambda pid: os.kill(pid, signal.SIGCONT),
    )


@linux
@root
def test_freezer(freezer: Cgroups) -> None:
    path = freezer.make()
    freezer.thaw(path)
    file, frozen, _ = freezer.switch(path)
    try:
        stopped(
            "Path(sys.argv[1]).write_text(str(os.getpid())); Path(sys.argv[2]).write_text(sys.argv[3])",
            path / "cgroup.procs",
            file,
            frozen,
            is_stopped=lambda _: freezer.is_frozen(path),
            go_on=lambda _: freezer.thaw(path),
        )
    finally:
        freezer.thaw(path)
