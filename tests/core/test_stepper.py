"""`await Stepper(request, coroutine)` is `await coroutine`, whatever the coroutine and its driver do."""

from __future__ import annotations

import asyncio
import collections.abc
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hooking import watched
from hypothesis import given
from hypothesis import strategies as st

from loopwatch import _testcore as core

Op = tuple[str, Any]
Trace = list[tuple[Any, ...]]


def stepper(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return core.Stepper(core.Request({}, lambda _scope: None), coroutine)


# --- programs that do not know which of the two they are in ---


class Suspend:
    def __init__(self, value: object) -> None:
        self.value = value

    def __await__(self) -> Any:
        return (yield self.value)


async def inner(script: list[Op], trace: Trace) -> Any:
    for op, argument in script:
        if op == "wait":
            trace.append(("got", await Suspend(argument)))
        elif op == "raise":
            raise argument()
        elif op == "return":
            return argument
        elif op == "swallow":
            try:
                trace.append(("got", await Suspend(argument)))
            except BaseException as error:
                trace.append(("swallowed", *told(error)))
        elif op == "replace":
            try:
                await Suspend(argument)
            except BaseException:
                raise KeyError("replaced")  # noqa: B904 - the context is compared
        elif op == "deeper":
            trace.append(("deeper", await inner(argument, trace)))
    return None


ERRORS: list[Callable[[], BaseException]] = [
    lambda: ValueError("mine"),
    lambda: asyncio.CancelledError("why"),
    lambda: StopIteration(5),
    StopAsyncIteration,
    GeneratorExit,
    KeyboardInterrupt,
]
VALUES = [None, 1, (), (1, 2), ValueError("a value"), StopIteration("a value")]

values = st.sampled_from(VALUES)
errors = st.sampled_from(ERRORS)
"""Made when they are raised: an exception keeps its traceback."""
simple = st.one_of(
    st.tuples(st.sampled_from(["wait", "swallow", "replace"]), values),
    st.tuples(st.just("raise"), errors),
    st.tuples(st.just("return"), values),
)
scripts = st.lists(st.one_of(simple, st.tuples(st.just("deeper"), st.lists(simple, max_size=3))), max_size=6)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), values),
        st.tuples(st.just("throw"), st.sampled_from(ERRORS)),
        st.tuples(st.just("throw class"), st.sampled_from([ValueError, GeneratorExit, StopIteration])),
        st.tuples(st.just("close"), st.none()),
    ),
    max_size=8,
)


def told(error: BaseException | None) -> tuple[Any, ...]:
    """What can be seen of an exception, the frames of its traceback but the driver's own among it."""
    if error is None:
        return ()
    frames = [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return (
        type(error),
        error.args,
        [name for name in frames if name[0] in ("inner", "__await__", "outer", "outermost")],
        told(error.__context__),
        told(error.__cause__),
        error.__suppress_context__,
    )


def driven(coroutine: Any, acts: list[Op], trace: Trace) -> Trace:
    """What each action was answered."""
    for act, argument in [("send", None), *acts]:
        try:
            if act == "send":
                answer = coroutine.send(argument)
            elif act == "throw":
                answer = coroutine.throw(argument())
            elif act == "throw class":
                answer = coroutine.throw(argument)
            else:
                answer = coroutine.close()
            trace.append((act, answer))
        except BaseException as error:
            stopped = error.value if isinstance(error, StopIteration) else None
            trace.append((act, *told(error), stopped))
    for _ in range(30):  # it ends sooner or later
        try:
            coroutine.close()
            break
        except BaseException as error:
            trace.append(("close", *told(error)))
    return trace


# One that yields at a GeneratorExit is dropped by whoever awaits it, and what it raises then is nobody's.
dropped_inside = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def unchanged(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return coroutine


Wrap = Callable[[Coroutine[Any, Any, Any]], Any]


async def outer(wrap: Wrap, script: list[Op], trace: Trace) -> Any:
    return await wrap(inner(script, trace))


async def outermost(wrap: Wrap, script: list[Op], trace: Trace) -> Any:
    return await wrap(outer(wrap, script, trace))


@dropped_inside
@given(scripts, actions)
def test_awaited(script: list[Op], acts: list[Op]) -> None:
    plain, stepped = Trace(), Trace()
    driven(outermost(unchanged, script, plain), acts, plain)
    with watched() as slot:
        core.RunEdge(slot, lambda: driven(outermost(stepper, script, stepped), acts, stepped))()
    assert repr(stepped) == repr(plain)


@dropped_inside
@given(scripts, actions)
def test_driven_by_hand(script: list[Op], acts: list[Op]) -> None:
    plain, stepped = Trace(), Trace()
    driven(inner(script, plain), acts, plain)
    driven(stepper(inner(script, stepped)), acts, stepped)
    assert repr(stepped) == repr(plain)


@given(scripts)
def test_as_an_iterator(script: list[Op]) -> None:
    def collected(iterator: Any, trace: Trace) -> Trace:
        try:
            for value in iterator:
                trace.append(("yielded", value))
        except BaseException as error:
            trace.append(told(error))
        return trace

    plain, stepped = Trace(), Trace()
    collected(inner(script, plain).__await__(), plain)
    collected(iter(stepper(inner(script, stepped)).__await__()), stepped)
    assert repr(stepped) == repr(plain)


# --- under asyncio ---


def test_a_task_is_cancelled() -> None:
    seen: list[str] = []

    async def work() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise
        return "done"

    async def main() -> None:
        async def around() -> str:
            return str(await stepper(work()))

        task = asyncio.create_task(around())
        await asyncio.sleep(0)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await stepper(work())

    asyncio.run(main())
    assert seen == ["cancelled", "cleaned up"] * 2


def test_it_can_be_a_tasks_coroutine() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 5

    async def main() -> None:
        made = stepper(work())
        assert isinstance(made, collections.abc.Coroutine)
        assert await asyncio.create_task(made) == 5

    asyncio.run(main())


def test_it_looks_like_the_coroutine() -> None:
    async def work() -> None:
        await Suspend(1)

    coroutine = work()
    made = stepper(coroutine)
    assert made.__name__ == "work"
    assert made.__qualname__ == coroutine.__qualname__
    assert made.cr_code is coroutine.cr_code
    assert made.cr_frame is coroutine.cr_frame
    assert (made.cr_running, made.cr_suspended, made.cr_origin) == (False, False, None)
    made.send(None)
    assert type(made.cr_await).__name__ == "generator"
    assert made.cr_suspended
    assert "work" in repr(made)
    with pytest.raises(StopIteration):
        made.send(None)
    assert made.cr_frame is None
    assert made.close() is None


def test_what_is_never_awaited_warns_as_ever() -> None:
    async def work() -> None:
        pass

    with pytest.warns(RuntimeWarning, match=r"work.*never awaited"):
        del [stepper(work())][:]


def test_it_runs_once() -> None:
    async def work() -> None:
        pass

    made = stepper(work())
    with pytest.raises(StopIteration):
        made.send(None)
    with pytest.raises(RuntimeError, match="already awaited"):
        made.send(None)

    async def again() -> None:
        with pytest.raises(ValueError, match="already executing"):
            made_again.send(None)

    made_again = stepper(again())
    with pytest.raises(StopIteration):
        made_again.send(None)


def test_a_result_is_not_copied_and_not_kept() -> None:
    value = object()

    async def work() -> object:
        return value

    async def main() -> object:
        return await stepper(work())

    with pytest.raises(StopIteration) as stop:
        main().send(None)
    assert stop.value.value is value
