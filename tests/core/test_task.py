"""The running task, read raw, is the one that asyncio says it is."""

import asyncio
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest
from utf8 import cut

from loopwatch import _testcore

pytestmark = pytest.mark.skipif(
    not hasattr(_testcore, "map_hole"), reason="the portable build has no guarded reads"
)

NAME_MAX = 200  # bytes
Look = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def set_up() -> None:
    assert _testcore.task_setup() == (0, None)


def look() -> Look:
    seen: Look = _testcore.task_of(_testcore.tstate_here())
    return seen


def check() -> Look:
    """On the loop's thread, in a task: raw reading equals asyncio's own answers. Returns what was read."""
    seen = look()  # first: to ask an unnamed task for its name gives it one
    task = asyncio.current_task()
    assert task is not None
    coroutine = task.get_coro()
    assert coroutine is not None
    assert seen == {
        "loop_known": True,
        "loop": id(asyncio.get_running_loop()),
        "known": True,
        "task": id(task),
        "native": True,
        "name": cut(task.get_name(), NAME_MAX),
        "coroutine": cut(coroutine.__qualname__, NAME_MAX),
    }
    return seen


async def checked() -> Look:
    first = check()
    await asyncio.sleep(0)
    assert check() == first
    return first


# --- what asyncio says ---


def test_the_main_task() -> None:
    assert asyncio.run(checked())["coroutine"] == "checked"


def test_named_tasks() -> None:
    async def main() -> None:
        for name in ("plain", "", "GET /items/1", "Größe", "日本", "😀", "a\udc80b", "x" * 199, "x" * 200):
            seen = await asyncio.create_task(checked(), name=name)
            assert seen["name"] == name

    asyncio.run(main())


@pytest.mark.parametrize("character", ["x", "é", "€", "😀", "\udcff"])
def test_long_names_are_cut_at_a_character(character: str) -> None:
    name = "a" + character * 300  # so that no width divides the room

    async def main() -> None:
        seen = await asyncio.create_task(checked_name(), name=name)
        size = len(character.encode("utf-8", "surrogatepass"))
        assert seen == "a" + character * ((NAME_MAX - 1) // size)

    async def checked_name() -> str:
        name_read: str = look()["name"]
        return name_read

    asyncio.run(main())


def test_unnamed_tasks() -> None:
    """From 3.12 their name is a number until somebody asks; it is read both before and after."""

    async def main() -> None:
        for _ in range(3):
            seen = await asyncio.create_task(checked())
            assert seen["name"].removeprefix("Task-").isdecimal()

    asyncio.run(main())


def test_renamed_tasks() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("another")
        assert check()["name"] == "another"
        task.set_name(7)
        assert check()["name"] == "7"

    asyncio.run(main())


def test_subclasses() -> None:
    class Mixin:
        pass

    class Sub(asyncio.Task[Look]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.extra = [1, 2, 3]

    class Subsub(Mixin, Sub):
        __slots__ = ("slot",)

    async def main() -> None:
        for kind in (Sub, Subsub):
            assert (await kind(checked(), name=kind.__name__))["name"] == kind.__name__

    asyncio.run(main())


def test_a_task_in_pure_python_has_an_address_only() -> None:
    py_task: Callable[..., Awaitable[None]] = asyncio.tasks._PyTask  # type: ignore[attr-defined]

    async def inner() -> None:
        seen = look()
        task = asyncio.current_task()  # from 3.14 on asyncio itself says None here
        assert (seen["known"], seen["task"]) == (True, id(task) if task else 0)
        assert (seen["native"], seen["name"], seen["coroutine"]) == (False, "", "")

    async def main() -> None:
        await py_task(inner(), loop=asyncio.get_running_loop(), name="in Python")

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in 3.12")
def test_eager_tasks() -> None:
    """They run inside the task that makes them, which is the current one again afterwards."""

    async def child(name: str) -> None:
        check()  # create_task() may give the name only after this first step
        await asyncio.sleep(0)
        assert check()["name"] == name

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        before = check()
        tasks = [asyncio.create_task(child(f"eager {i}"), name=f"eager {i}") for i in range(3)]
        assert check() == before
        await asyncio.gather(*tasks)
        assert check() == before

    asyncio.run(main())


def test_coroutines_of_other_kinds() -> None:
    @types.coroutine
    def generator() -> Generator[None, None, Look]:
        yield
        return look()

    class Foreign(Coroutine[Any, Any, None]):
        """As Cython's are: a coroutine whose layout is not known."""

        __qualname__ = "foreign"
        seen: Look

        def send(self, _: None) -> None:
            self.seen = look()
            raise StopIteration

        def throw(self, *_: Any) -> None:
            raise NotImplementedError

        def close(self) -> None:
            pass

        def __await__(self) -> Generator[Any, None, None]:
            raise NotImplementedError

    async def größe() -> None:
        assert check()["coroutine"].endswith("<locals>.größe")

    async def main() -> None:
        if sys.version_info < (3, 12):  # later ones refuse generators
            assert (await asyncio.create_task(generator()))["coroutine"] == generator.__qualname__
        foreign = Foreign()
        await asyncio.create_task(foreign, name="foreign")
        assert (foreign.seen["native"], foreign.seen["name"]) == (True, "foreign")
        assert foreign.seen["coroutine"] == ""
        await asyncio.create_task(größe())

    asyncio.run(main())


NO_TASK = {"known": True, "task": 0, "native": False, "name": "", "coroutine": ""}


def test_no_task_and_no_loop() -> None:
    async def main() -> None:
        looks: list[Look] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: looks.append(look()))
        await asyncio.sleep(0)
        assert looks == [{**NO_TASK, "loop_known": True, "loop": id(loop)}], "in a plain callback"

    asyncio.run(main())
    assert look() == {**NO_TASK, "loop_known": True, "loop": 0}, "after a run"
    looks: list[Look] = []
    thread = threading.Thread(target=lambda: looks.append(look()))
    thread.start()
    thread.join()
    assert looks == [{**NO_TASK, "loop_known": True, "loop": 0}], "where no loop ever ran"


def test_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        assert (await checked())["coroutine"].endswith("main")
        looks: list[Look] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: looks.append(look()))
        assert (await asyncio.create_task(checked(), name="on uvloop"))["name"] == "on uvloop"
        assert looks == [{**NO_TASK, "loop_known": True, "loop": id(loop)}]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_several_loops_in_several_threads() -> None:
    """Read from a thread that runs none, while they all stand still inside a task."""
    n = 5
    tstates: dict[int, int] = {}
    expected: dict[int, Look] = {}
    ready = threading.Barrier(n + 1)
    done = threading.Event()

    def run(i: int) -> None:
        async def main() -> None:
            await asyncio.create_task(stand(), name=f"number {i}")

        async def stand() -> None:
            await asyncio.sleep(0)
            expected[i] = check()
            tstates[i] = _testcore.tstate_here()
            ready.wait()
            done.wait()

        asyncio.run(main())

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    ready.wait()
    try:
        for _ in range(50):
            assert {i: _testcore.task_of(tstates[i]) for i in range(n)} == expected
        assert {seen["name"] for seen in expected.values()} == {f"number {i}" for i in range(n)}
    finally:
        done.set()
        for thread in threads:
            thread.join()


# --- memory that is not what it should be ---


@pytest.mark.parametrize("one_in", [1, 2, 5])
def test_a_reader_that_lies(one_in: int) -> None:
    """Bytes spoiled at random in every n-th read: any answer will do that is bounded."""

    async def main() -> None:
        for seed in range(3):
            known, ended = _testcore.task_of_lies(_testcore.tstate_here(), seed, 5000, one_in)
            assert ended
            assert known > 0, "otherwise nothing was tried"

    asyncio.run(main())


def test_thread_states_that_are_none() -> None:
    things = [b"bytes" * 100, {}, object(), int, look, asyncio, "text" * 500, list(range(1000))]
    for address in (0, 8, 1 << 47, (1 << 64) - 8, *map(id, things)):
        seen = _testcore.task_of(address)
        assert not seen["native"]


def test_while_tasks_come_and_go() -> None:
    """A loop that makes tasks as fast as it can, then ends, and its thread with it, all under one long look.

    Nearly every name is right: a torn one needs a task to go and its memory to be reused between two reads.
    """
    tstates: list[int] = []
    running = threading.Event()

    async def short() -> None:
        pass

    async def main() -> None:
        tstates.append(_testcore.tstate_here())
        running.set()
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.5
        i = 0
        while loop.time() < end:
            await asyncio.gather(
                *(asyncio.create_task(short(), name=f"Task number {i + j}") for j in range(20))
            )
            i += 20

    def run_all() -> None:
        for _ in range(3):
            asyncio.run(main())

    thread = threading.Thread(target=run_all)
    thread.start()
    running.wait()
    named = wrong = 0
    while thread.is_alive():
        more, worse, ended = _testcore.task_watch(tstates[0], "Task", 5000)
        assert ended
        named += more
        wrong += worse
    thread.join()
    _, _, ended = _testcore.task_watch(tstates[0], "Task", 5000)  # a thread state that is gone
    assert ended
    assert named > 100
    assert wrong < named / 10
