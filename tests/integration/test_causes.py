"""The cause of a stall on the real thing: each word of the verdict where it applies, and the machine's doings
where nobody is to blame. Each program runs by itself; see stalling.py for what it is made of.

What a program computes is measured in CPU time and run before the others, so that a busy machine does not turn it
into a wait for a CPU.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import GIL, full_build, next_fact, run_program, started

pytestmark = full_build

linux = pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
gil = pytest.mark.skipif(not GIL, reason="no GIL that could be held")

HEAD = """
import asyncio, os, sys, time
import loopwatch
from stalling import *
"""


def stalls_of(source: str, *args: str | Path, **options: Any) -> list[dict[str, Any]]:
    """What was reported of each block of a program, each with the promises that hold for all of them."""
    facts = run_program(HEAD + source, *args, **options).check()
    assert None not in facts["stalls"], facts
    for stall in facts["stalls"]:
        keeps_promises(stall)
    stalls: list[dict[str, Any]] = facts["stalls"]
    return stalls


def keeps_promises(stall: dict[str, Any]) -> None:
    breakdown = stall["breakdown"]
    assert sum(breakdown.values()) == pytest.approx(stall["duration"], abs=0.001)
    assert breakdown[stall["verdict"]] == max(breakdown.values())


def nobody(stall: dict[str, Any], verdict: str) -> None:
    assert stall["verdict"] == verdict, (stall["breakdown"], stall["evidence"])
    assert stall["culprit"] is None
    assert stall["holder"] is None


# --- the machine ---


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


# --- another thread ---

WORKS = {
    "regex": ("text = text_for(0.8)", "matches(text)", "matches"),
    "json": ("rows = rows_for(0.8)", "dumps(rows)", "dumps"),
    "pydll": ("", "keeps_gil(0.8)", "hold_gil"),
    "collection": ("heap = heap_for(0.8)", "collects()", "collects"),
}


@gil
@pytest.mark.parametrize("work", WORKS)
def test_worker_is_named_with_its_line_while_it_lasts(work: str, tmp_path: Path) -> None:
    prepare, call, function = WORKS[work]
    dump = tmp_path / "dump"
    source = f"{prepare}\nwatched(lambda: waits_for(lambda: {call}), hang_after=0.2, dump_to=sys.argv[1])"
    facts = run_program(HEAD + source, dump).check()
    (stall,) = facts["stalls"]
    keeps_promises(stall)
    assert stall["verdict"] == "gil"
    assert stall["culprit"] == function
    assert function in stall["holder"]
    assert stall["line"]
    _, ended = facts["spans"][0]
    text = dump.read_text()
    assert f"culprit: {function} (" in text
    assert dump.stat().st_mtime < ended
    if work == "collection":
        assert stall["breakdown"].get("gc", 0.0) < 0.1


# --- every pulse, every capture ---

BLOCKS = {
    "sleeps": ("blocking-call", "sleeps"),
    "counts": ("python", "counts"),
    "lambda: matches(text)": ("native", "matches"),
    "waits_for_lock": ("lock", "waits_for_lock"),
    "lambda: waits_for(keeps_gil)": ("gil", "hold_gil"),
    "lambda: collects()": ("gc", "collects"),
}
ALL_BLOCKS = f"text = text_for(0.3)\nheap = heap_for(0.3)\nblocks = [{', '.join(BLOCKS)}]\n"


def expected() -> list[tuple[str, str]]:
    return [told for told in BLOCKS.values() if GIL or told[0] != "gil"]


def blocks() -> str:
    return ALL_BLOCKS + ("" if GIL else "del blocks[4]\n")


@pytest.mark.parametrize("kind", ["turn", "wrapped", "uv", "heartbeat"])
def test_verdicts_are_the_same_by_every_pulse(kind: str) -> None:
    if kind == "uv":
        pytest.importorskip("uvloop")
    stalls = stalls_of(blocks() + f"watched(*blocks, kind={kind!r})")
    assert [(stall["verdict"], stall["culprit"]) for stall in stalls] == expected()


@pytest.mark.parametrize("capture", ["off", "gil"])
def test_verdict_without_raw_frames(capture: str) -> None:
    """Without frames that are read raw nothing tells Python from C; the rest the clocks say."""
    stalls = stalls_of(blocks() + f"watched(*blocks, capture={capture!r})")
    for stall, (verdict, _) in zip(stalls, expected(), strict=True):
        assert stall["verdict"] == verdict or {stall["verdict"], verdict} == {"python", "native"}
    if capture == "off":
        assert {stall["culprit"] for stall in stalls} == {None}


# --- without a source ---


def without(how: str) -> list[str]:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    private = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*private, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounts cannot be private here")
    return [*private, "sh", "-c", f'{how} && exec "$@"', "sh"]


def test_without_proc() -> None:
    """No run queue, no system call, no faults: the CPU clock and the frames are left."""
    wrapper = without("mount -t tmpfs none /proc")
    sleeping, counting, _, locking, *_ = stalls_of(blocks() + "watched(*blocks)", wrapper=wrapper)
    for stall in (sleeping, counting, locking):
        evidence = stall["evidence"]
        assert [evidence[name] for name in ("run_queue_wait", "major_faults", "syscall", "target")] == [
            None
        ] * 4
        assert evidence["cpu_time"] is not None
    assert (sleeping["verdict"], sleeping["culprit"]) == ("blocking-call", "sleeps")
    assert (counting["verdict"], counting["culprit"]) == ("python", "counts")
    assert locking["verdict"] in ("lock", "blocking-call")


def test_without_cgroups() -> None:
    wrapper = without("mount -t tmpfs none /sys/fs/cgroup")
    (stall,) = stalls_of("watched(sleeps)", wrapper=wrapper)
    assert stall["evidence"]["throttled_time"] is None
    assert stall["evidence"]["run_queue_wait"] is not None
    assert (stall["verdict"], stall["culprit"]) == ("blocking-call", "sleeps")


READS = """
import socket, threading
from scenario import forbid
{forbid}
ours, theirs = socket.socketpair()
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
def reads():
    threading.Timer(SECONDS, far.send, (b"x",)).start()
    near.recv(1)
watched(reads)
for end in (ours, theirs, listener, near, far): end.close()
"""


@linux
@pytest.mark.parametrize("forbidden", [False, True])
def test_without_pidfd(forbidden: bool) -> None:
    """The loop's descriptors cannot be reached: what the call waits for is not known, the call is."""
    (stall,) = stalls_of(READS.format(forbid='forbid("pidfd_open", "pidfd_getfd")' if forbidden else ""))
    assert (stall["verdict"], stall["culprit"]) == ("blocking-call", "reads")
    assert stall["evidence"]["syscall"] == "recvfrom"
    if not forbidden:
        assert str(stall["evidence"]["target"]).startswith("tcp 127.0.0.1:")


# --- whom ---


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
def test_creator_of_an_eager_task_is_in_the_stack() -> None:
    (stall,) = stalls_of("""
async def child():
    counts()
def creates():
    asyncio.Task(child(), loop=asyncio.get_running_loop(), eager_start=True)
watched(creates)
""")
    assert (stall["verdict"], stall["culprit"]) == ("python", "counts")
    assert [name for name in stall["stack"] if name in ("creates", "child", "counts")] == [
        "creates",
        "child",
        "counts",
    ]


def test_import_is_one_frame(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ndef wait(): time.sleep(0.3)\nwait()\n")
    (stall,) = stalls_of(
        """
sys.path.insert(0, sys.argv[1])
def imports():
    import slow_to_import
watched(imports)
""",
        tmp_path,
    )
    assert (stall["verdict"], stall["culprit"]) == ("blocking-call", "imports")
    assert "importing slow_to_import" in " ".join(stall["text"].split())


def test_finalizer_in_a_collection() -> None:
    """It counts as what it does, and the collection that runs it is not to blame."""
    (stall,) = stalls_of("""
class Node:
    def __del__(self):
        counts()
def drops():
    node = Node()
    node.self = node
    del node
    gc.collect()
watched(drops)
""")
    assert (stall["verdict"], stall["culprit"]) == ("python", "counts")
    assert "Node.__del__" in stall["stack"]
    assert stall["evidence"]["gc_time"] >= 0.9 * stall["breakdown"]["python"]
