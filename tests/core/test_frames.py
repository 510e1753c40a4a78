"""src/frames/: snapshots equal the interpreter's own frames, whatever the stack."""

import itertools
import os
import random
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stacks import LINKS, Rest, expected_frames, go, plain

from loopwatch import _testcore as core

INNER_MAX, OUTER_MAX = 896, 128

pytestmark = pytest.mark.skipif(core.frames_setup()[1] is not None, reason=str(core.frames_setup()[1]))


@pytest.fixture(scope="module")
def snapper() -> Any:
    return core.frames_snapper()


@pytest.fixture
def fresh() -> Any:
    return core.frames_snapper()


@pytest.fixture
def _deep() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


class Probe:
    """The leaf of a stack: takes a snapshot of its own thread from a native one, and compares."""

    def __init__(self, snapper: Any) -> None:
        self.snapper = snapper
        self.depth = 0

    def __call__(self, _: Rest) -> None:
        for _ in range(2):  # by reading, then by the first one's guess
            shot = core.frames_snapshot(self.snapper, core.frames_thread_ref())
            expected = expected_frames(sys._getframe(1))
            self.depth = len(expected) + 1
            assert shot["quality"] == "exact"
            assert shot["frames"][0][2] == "Probe.__call__"
            if self.depth > INNER_MAX + OUTER_MAX:
                assert shot["truncated"] == self.depth - INNER_MAX - OUTER_MAX
                expected = expected[: INNER_MAX - 1] + expected[-OUTER_MAX:]
            else:
                assert shot["truncated"] == 0
            assert shot["frames"][1:] == expected


def compare(snapper: Any, links: list[Callable[[Rest], None]]) -> int:
    probe = Probe(snapper)
    go((*links, probe))
    return probe.depth


def link_name(link: Any) -> str:
    return link.__name__.encode("ascii", "backslashreplace").decode()


@pytest.mark.parametrize("link", LINKS, ids=link_name)
def test_each_kind_of_call_equals_the_interpreter(snapper: Any, link: Any) -> None:
    compare(snapper, [link])


@pytest.mark.usefixtures("_deep")
@pytest.mark.parametrize("seed", range(40))
def test_random_stacks_equal_the_interpreter(snapper: Any, seed: int) -> None:
    choose = random.Random(seed)
    links = choose.choices(LINKS, k=choose.randrange(3, 40))
    links += [plain] * choose.choice([0, 0, 5, 50, 350])
    choose.shuffle(links)
    assert compare(snapper, links) > len(links)


@pytest.mark.usefixtures("_deep")
def test_deep_stack_below_the_limit_is_whole(snapper: Any) -> None:
    assert 800 < compare(snapper, [plain] * 420) <= INNER_MAX + OUTER_MAX


@pytest.mark.usefixtures("_deep")
@pytest.mark.parametrize("extra", [0, 1, 2, 200, 1500])
def test_deeper_stacks_keep_both_ends(fresh: Any, extra: int) -> None:
    base = compare(fresh, [])
    links = [plain] * ((INNER_MAX + OUTER_MAX - base) // 2 + extra)
    depth = compare(fresh, links)
    assert depth == base + 2 * len(links)


def test_a_chain_of_awaits_is_read_in_one_batch_the_second_time(fresh: Any) -> None:
    async def chain(n: int) -> Any:
        if n:
            return await chain(n - 1)
        times = []
        for _ in range(2):
            times.append(core.frames_time(fresh, core.frames_thread_ref(), 1))  # noqa: PERF401 one place
        return times

    with pytest.raises(StopIteration) as stop:
        chain(56).send(None)
    (_, first), (_, second) = stop.value.value
    assert first > 56
    assert second < first / 5  # one for all frames; the running loop and its task take a few of their own


# --- other threads ---


class Target:
    """A thread that stands in `function` until it is let go."""

    def __init__(self, function: Callable[["Target"], None]) -> None:
        self.ready, self.let_go = threading.Event(), threading.Event()
        self.ref = b""
        self.thread = threading.Thread(target=self.run, args=(function,))
        self.thread.start()
        assert self.ready.wait(30)

    def run(self, function: Callable[["Target"], None]) -> None:
        self.ref = core.frames_thread_ref()
        function(self)

    def stand(self) -> None:
        self.ready.set()
        self.let_go.wait(60)

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self.thread.join()


def settled_frames(target: Target) -> list[tuple[Any, ...]]:
    """The interpreter's frames of a thread once it stands still."""
    while True:
        before = expected_frames(sys._current_frames()[target.thread.ident])
        time.sleep(0.05)
        if expected_frames(sys._current_frames()[target.thread.ident]) == before:
            return before


@pytest.mark.parametrize("native", [True, False])
def test_a_blocked_thread(snapper: Any, native: bool) -> None:
    def recurse(target: Target, n: int = 40) -> None:
        if n:
            recurse(target, n - 1)
        else:
            target.stand()

    with Target(recurse) as target:
        expected = settled_frames(target)
        shot = core.frames_snapshot(snapper, target.ref, native)
        assert shot["frames"] == expected
        assert shot["quality"] == "exact"
        glances = {core.frames_glance(snapper, target.ref) for _ in range(10)}
        assert len(glances) == 1
        assert glances != {0}
        assert core.frames_glances(snapper, target.ref, 100) == 0
        assert core.frames_leaves(snapper, target.ref) == 0


def test_a_thread_that_is_gone_has_no_frames(snapper: Any) -> None:
    with Target(Target.stand) as target:
        assert core.frames_snapshot(snapper, target.ref)["readable"]
    # Joined, as Python sees it; the kernel may take a moment longer.
    kernel_thread = Path(f"/proc/self/task/{target.thread.native_id}")
    while kernel_thread.exists():
        assert not core.frames_snapshot(snapper, target.ref)["frames"]
    for _ in range(50):
        shot = core.frames_snapshot(snapper, target.ref)
        assert not shot["readable"]
        assert not shot["frames"]
        core.frames_glance(snapper, target.ref)


def test_quick_calls_in_a_row_are_told_from_a_long_one(fresh: Any) -> None:
    """Both are found at their call in most looks; where the calls are quick, it is left all the time."""

    def calls_quickly(target: Target) -> None:
        target.ready.set()
        while not target.let_go.is_set():
            for _ in range(1000):
                time.perf_counter()

    def calls_for_long(target: Target) -> None:
        numbers = list(range(1_000_000))
        target.ready.set()
        while not target.let_go.is_set():
            sum(numbers)  # some milliseconds

    def rows(target: Target) -> Iterator[bool]:
        return (core.frames_leaves(fresh, target.ref) >= 2 for _ in range(1000))

    with Target(calls_quickly) as target:
        # On a busy machine most rows find it waiting for a CPU.
        assert len(list(itertools.islice(filter(None, rows(target)), 20))) == 20
    with Target(calls_for_long) as target:
        assert sum(itertools.islice(rows(target), 50)) <= 5


def test_a_running_thread_is_seen_to_move(fresh: Any) -> None:
    def spin(target: Target) -> None:
        target.ready.set()
        n = 0
        while not target.let_go.is_set():
            n += 1

    with Target(spin) as target:
        # Over half of the looks differ from the one before, where the thread has a CPU.
        assert core.frames_glances(fresh, target.ref, 1000) > 50
        for _ in range(50):
            names = [frame[2] for frame in core.frames_snapshot(fresh, target.ref)["frames"]]
            # Event.is_set is entered and left; all else stays.
            assert not names or names[-1] == "Thread._bootstrap"
            time.sleep(0.001)
    counted = core.frames_counts(fresh)
    kinds = ("exact", "consistent", "moving", "unreadable")
    assert counted["snapshots"] == sum(counted[kind] for kind in kinds)


# --- the code cache ---


def test_an_address_used_again_is_another_code_object(fresh: Any) -> None:
    addresses = []
    for i in range(400):
        namespace: dict[str, Any] = {"core": core, "fresh": fresh}
        body = "return core.frames_snapshot(fresh, core.frames_thread_ref())"
        source = "\n" * (i % 7) + f"def name_{i}(): {body}"
        exec(compile(source, f"<file {i % 3}>", "exec"), namespace)
        function = namespace.pop(f"name_{i}")
        addresses.append(id(function.__code__))
        top = function()["frames"][0]
        assert top[:3] == (f"<file {i % 3}>", i % 7 + 1, f"name_{i}")
        del function, namespace
    # The allocator of free-threaded builds takes longer to hand memory out again.
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert len(set(addresses)) < len(addresses)
        assert core.frames_counts(fresh)["codes_stale"] > 0


def test_a_full_cache_says_unknown_until_it_is_flushed(fresh: Any) -> None:
    def top_names(n: int) -> list[str]:
        names = []
        kept = []
        for i in range(n):
            namespace: dict[str, Any] = {"core": core, "fresh": fresh}
            body = "return core.frames_snapshot(fresh, core.frames_thread_ref())"
            exec(f"def f_{i}(): {body}", namespace)
            kept.append(namespace[f"f_{i}"])
            names.append(kept[-1]()["frames"][0][2])
        return names

    names = top_names(8300)
    assert names[:8000] == [f"f_{i}" for i in range(8000)]
    assert names[-1] == "<unknown>"
    assert core.frames_counts(fresh)["codes_full"] > 0
    assert core.frames_flush(fresh) is True
    assert top_names(3) == ["f_0", "f_1", "f_2"]
    assert core.frames_flush(fresh) is False


@pytest.mark.parametrize(
    ("filename", "is_debugger"),
    [
        (str(Path(os.__file__).parent / "bdb.py"), True),
        ("/srv/app/bdb.py", False),
        ("/x/site-packages/pydevd.py", True),
        ("/x/site-packages/pydevd_tracing.py", True),
        ("/x/debugpy/_vendored/pydevd/_pydevd_bundle/pydevd_frame.py", True),
        ("/x/site-packages/_pydevd_bundle/x.py", True),
        ("/srv/app/mypydevd.py", False),
    ],
)
def test_debuggers_are_recognised_by_their_files(snapper: Any, filename: str, is_debugger: bool) -> None:
    shots: list[Any] = []
    namespace = {"take": lambda: shots.append(core.frames_snapshot(snapper, core.frames_thread_ref()))}
    exec(compile("take()", filename, "exec"), namespace)
    assert shots[0]["debugger"] is is_debugger
