"""Stacks of every kind of call that Python has, and what the interpreter itself says of them."""

import contextlib
import functools
import itertools
import os
import types
from collections.abc import Callable, Iterator
from typing import Any


def none_as_minus_one(values: Any) -> tuple[int, ...]:
    return tuple(-1 if value is None else value for value in values)


def expected_frames(frame: types.FrameType | None) -> list[tuple[Any, ...]]:
    """What a snapshot should show of a frame and its callers, innermost first."""
    frames = []
    while frame:
        code, lasti = frame.f_code, frame.f_lasti
        position = next(itertools.islice(code.co_positions(), lasti // 2, None))
        line, end_line, column, end_column = none_as_minus_one(position)
        assert line == (-1 if frame.f_lineno is None else frame.f_lineno)
        frames.append((code.co_filename, line, code.co_qualname, end_line, column, end_column, lasti))
        frame = frame.f_back
    return frames


# --- links: each calls the rest of a stack in another way ---

Rest = tuple[Callable[[Any], Any], ...]


def go(rest: Rest) -> None:
    """Calls the next link, or, as the last one, something that is no link."""
    rest[0](rest[1:])


def plain(rest: Rest) -> None:
    go(rest)


def many_locals(rest: Rest) -> None:
    exec(
        "def f(rest, go):\n " + "; ".join(f"x{i} = {i}" for i in range(300)) + "\n go(rest)\nf(rest, go)",
        {"rest": rest, "go": go},
    )


def generator(rest: Rest) -> None:
    def produce() -> Iterator[int]:
        yield 1
        go(rest)
        yield 2

    for _ in produce():
        pass


def delegating(rest: Rest) -> None:
    def inner() -> Iterator[int]:
        go(rest)
        yield 1

    def outer() -> Iterator[int]:
        yield from inner()

    list(outer())


def coroutines(rest: Rest) -> None:
    async def three() -> None:
        go(rest)

    async def two() -> None:
        await three()

    async def one() -> None:
        try:
            await two()
        finally:
            pass

    with contextlib.suppress(StopIteration):
        one().send(None)


class Awaitable:
    def __init__(self, rest: Rest) -> None:
        self.rest = rest

    def __await__(self) -> Iterator[Any]:
        go(self.rest)
        return iter(())


def awaitable(rest: Rest) -> None:
    async def wait() -> None:
        await Awaitable(rest)

    with contextlib.suppress(StopIteration):
        wait().send(None)


def async_generator(rest: Rest) -> None:
    async def produce() -> Any:
        yield 1
        go(rest)

    async def consume() -> None:
        async for _ in produce():
            pass
        assert [x async for x in produce_nothing()] == []

    async def produce_nothing() -> Any:
        for x in ():
            yield x

    with contextlib.suppress(StopIteration):
        consume().send(None)


def decorated(rest: Rest) -> None:
    def decorate(function: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            return function(*args, **kwargs)

        return wrapper

    @decorate
    @decorate
    def inside() -> None:
        go(rest)

    inside()


def executed(rest: Rest) -> None:
    exec(compile("\n\n\ngo(\n    rest)", "<some exec>", "exec"), {"go": go, "rest": rest})


def lambdas(rest: Rest) -> None:
    (lambda: (lambda: go(rest))())()


def comprehension(rest: Rest) -> None:
    [go(rest) for _ in (1,)]
    assert {x: x for x in ()} == {}


def class_body(rest: Rest) -> None:
    class Body:
        go(rest)


def method(rest: Rest) -> None:
    class Thing:
        def __init__(self) -> None:
            self.attribute  # noqa: B018

        @property
        def attribute(self) -> None:
            go(rest)

    Thing()


def through_c(rest: Rest) -> None:
    sorted([1], key=lambda _: go(rest))  # type: ignore[arg-type,return-value]


def partial(rest: Rest) -> None:
    functools.partial(map, lambda _: go(rest))([1]).__next__()


def context_manager(rest: Rest) -> None:
    @contextlib.contextmanager
    def manage() -> Iterator[None]:
        go(rest)
        yield

    with manage():
        pass


def handling(rest: Rest) -> None:
    try:
        raise KeyError
    except KeyError:
        go(rest)


def in_file(filename: str, name: str) -> Callable[[Rest], None]:
    """A link whose function has this name and stands in this file."""
    namespace: dict[str, Any] = {"go": go}
    exec(compile(f"\ndef {name}(rest):\n    {name}_1 = 1; go(rest)", filename, "exec"), namespace)
    # Not by name: the compiler normalizes it.
    (function,) = (value for value in namespace.values() if type(value) is type(go) and value is not go)
    return function


NAMES = [
    in_file("/srv/größe.py", "größe"),
    in_file("/srv/ÿ/x.py", "ÿ"),
    in_file("/srv/Łódź.py", "zażółć"),
    in_file("/srv/日本.py", "日本語"),
    in_file("/srv/\N{PILE OF POO}.py", "\N{MATHEMATICAL FRAKTUR CAPITAL A}b"),
    in_file("/srv/\N{CJK UNIFIED IDEOGRAPH-20000}.py", "\N{CJK UNIFIED IDEOGRAPH-20000}"),
    in_file(os.fsdecode(b"/srv/not-\xff-utf8-\x80.py"), "undecodable"),
    in_file("/srv/" + "d/" * 400 + "x.py", "long_path"),
    in_file("", "no_file"),
]
LINKS = [
    plain, many_locals, generator, delegating, coroutines, awaitable, async_generator, decorated,
    executed, lambdas, comprehension, class_body, method, through_c, partial, context_manager,
    handling, *NAMES,
]  # fmt: skip
