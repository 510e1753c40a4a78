"""The cause of a stall on the real thing: each word of the verdict where the program is to blame, and who in it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import GIL, full_build, linux, run_program
from stalling_programs import HEAD, keeps_promises, stalls_of

pytestmark = full_build

gil = pytest.mark.skipif(not GIL, reason="no GIL that could be held")


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


def test_a_loop_of_quick_calls_is_python_of_long_ones_is_native() -> None:
    quick, long = stalls_of("watched(asks_the_time, packs_rows)")
    assert (quick["verdict"], quick["culprit"]) == ("python", "asks_the_time")
    assert (long["verdict"], long["culprit"]) == ("native", "packs_rows")


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
