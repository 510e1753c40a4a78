"""What a warm snapshot costs: python benchmarks/snapshot.py (needs a build with LOOPWATCH_TEST=1).

Median microseconds of snapshots that a native thread takes of a thread that stands still, by read backend:
plain frames, each of a function of its own, outside of a loop and in a task of one; a chain of awaits,
unchanged since the last snapshot, and another chain each time.
"""

import asyncio
import platform
import statistics
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from loopwatch import _testcore as core

REPEATS = 2000
BACKENDS = range(1, 5)
Measure = Callable[[], float]


def plain_chain(n: int, measure: Measure) -> float:
    """n functions, each calling the next."""
    namespace: dict[str, Any] = {"f0": measure}
    for i in range(n):
        exec(f"def f{i + 1}():\n    return f{i}()", namespace)
    result: float = namespace[f"f{n}"]()
    return result


def plain_in_task(n: int, measure: Measure) -> float:
    async def main() -> float:
        return plain_chain(n, measure)

    return asyncio.run(main())


def await_chain(n: int, leaf: Callable[[], float]) -> Coroutine[Any, Any, float]:
    namespace: dict[str, Any] = {"leaf": leaf}
    exec("async def f0(): return leaf()", namespace)
    for i in range(n):
        exec(f"async def f{i + 1}():\n    return await f{i}()", namespace)
    coroutine: Coroutine[Any, Any, float] = namespace[f"f{n}"]()
    return coroutine


def finish(coroutine: Coroutine[Any, Any, float]) -> float:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: float = stop.value
        return result
    raise AssertionError("it awaits nothing that suspends")


def standing(snapper: Any, repeats: int = REPEATS) -> Measure:
    def measure() -> float:
        core.frames_time(snapper, core.frames_thread_ref(), 20)  # what is cached, is
        ns: int = core.frames_time(snapper, core.frames_thread_ref(), repeats)[0]
        return ns / 1000

    return measure


def changed_awaits(snapper: Any, n: int) -> float:
    """The same functions, new coroutines: the guess is wrong for every frame. The old ones are kept,
    so that their memory is not used again."""
    namespace: dict[str, Any] = {"leaf": lambda: core.frames_time(snapper, core.frames_thread_ref(), 1)[0]}
    exec("async def f0(): return leaf()", namespace)
    for i in range(n):
        exec(f"async def f{i + 1}():\n    return await keep(f{i}())", namespace)
    kept: list[Any] = []

    def keep(coroutine: Any) -> Any:
        kept.append(coroutine)
        return coroutine

    namespace["keep"] = keep
    times = [finish(namespace[f"f{n}"]()) for _ in range(200)]
    return statistics.median(times[20:]) / 1000


def main() -> None:
    result, reason = core.frames_setup()
    if result:
        sys.exit(f"no snapshots here: {reason}")
    print(f"CPython {platform.python_version()}, {platform.machine()}, median us of {REPEATS} snapshots")
    columns = ("16 plain", "56 plain", "16 in task", "56 in task", "56 awaits", "changed")
    print(f"{'backend':18}", *(f"{column:>10}" for column in columns))
    for backend in BACKENDS:
        snapper = core.frames_snapper(backend)
        name = core.frames_backend(snapper)
        if name == "none":
            continue
        row = [
            plain_chain(16, standing(snapper)),
            plain_chain(56, standing(snapper)),
            plain_in_task(16, standing(snapper)),
            plain_in_task(56, standing(snapper)),
            finish(await_chain(56, standing(snapper))),
            changed_awaits(snapper, 56),
        ]
        print(f"{name:18}", *(f"{us:10.1f}" for us in row))


if __name__ == "__main__":
    main()
