"""A program that is as hard to look at as it can be, and a native thread that looks at it all the time.

    python adversary.py CAPTURES

One thread recurses 200 deep through plain calls, generators and coroutines, raises, and makes and drops code
objects; three others start and exit without end. First the thread runs under a profile function that notes
which call may stand at which line below which other; every snapshot taken afterwards must consist of such
pairs. Prints counts as JSON.
"""

import contextlib
import json
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from loopwatch import _testcore as core

DEPTH = 200


class BoomError(Exception):
    pass


def alpha(n: int) -> None:
    if n <= 0:
        raise BoomError
    beta(n - 1)


def beta(n: int) -> None:
    try:
        if n % 3:
            gamma(n - 1)
        else:
            alpha(n - 1)
    finally:
        small(n)


def gamma(n: int) -> None:
    for _ in produce(n - 1):
        pass


def produce(n: int) -> Iterator[int]:
    yield 1
    yield from delegate(n)


def delegate(n: int) -> Iterator[int]:
    alpha(n - 2)
    yield n


def small(n: int) -> int:
    return n + len([x + 1 for x in (1, 2)])


async def outer(n: int) -> None:
    if n:
        await inner(n - 1)
    alpha(10)


async def inner(n: int) -> None:
    try:
        await outer(n)
    finally:
        small(n)


def drive(coroutine: Coroutine[Any, Any, None]) -> None:
    coroutine.send(None)


def attempt(function: Callable[..., None], *args: Any) -> None:
    with contextlib.suppress(BoomError, StopIteration):
        function(*args)


def make(k: int) -> Callable[[int], None]:
    """A new function, often where the last one was; its name, lines and file vary."""
    namespace: dict[str, Any] = {"alpha": alpha, "small": small}
    source = "\n" * (k % 5) + f"def made_{k % 3}(n):\n    small(n)\n" + "\n" * (k % 2) + "    alpha(n)\n"
    exec(compile(source, f"<made {k % 2}>", "exec"), namespace)
    function: Callable[[int], None] = namespace[f"made_{k % 3}"]
    return function


def rounds(k: int) -> None:
    attempt(alpha, DEPTH)
    attempt(drive, outer(20))
    for i in range(30):
        attempt(make(k * 30 + i), 3)


def edge(frame: types.FrameType, callee: types.FrameType) -> str:
    return f"{frame.f_code.co_qualname}:{frame.f_lineno}>{callee.f_code.co_qualname}"


class Target:
    def __init__(self) -> None:
        self.edges: set[str] = set()
        self.ready = threading.Event()
        self.stop = False
        self.ref = b""

    def note(self, frame: types.FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        while (back := frame.f_back) is not None:
            self.edges.add(edge(back, frame))
            frame = back
        self.edges.add(f">{frame.f_code.co_qualname}")

    def run(self) -> None:
        """The same call of rounds() for both: first under the profile function, then without."""
        self.ref = core.frames_thread_ref()
        k = 0
        sys.setprofile(self.note)
        while not self.stop:
            rounds(k)
            k += 1
            if k == 3:
                sys.setprofile(None)
                self.ready.set()


def come_and_go(target: Target) -> None:
    while not target.stop:
        threads = [threading.Thread(target=attempt, args=(alpha, 30)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main(captures: int) -> None:
    reason = core.frames_setup()[1]
    if reason:
        print(json.dumps({"skip": reason}))
        return
    sys.setswitchinterval(0.0001)
    target = Target()
    # The thread that looks has a CPU of its own, so that the others run while it does. Threads inherit it.
    *others, last = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, others or {last})
    threads = [
        threading.Thread(target=target.run),
        threading.Thread(target=come_and_go, args=(target,)),
    ]
    threads[0].start()
    target.ready.wait()
    threads[1].start()
    os.sched_setaffinity(0, {last})
    time.sleep(0.01)  # past Event.set(), which the profile function did not see
    snapper = core.frames_snapper()
    found = core.frames_hunt(snapper, target.ref, captures, sorted(target.edges))
    target.stop = True
    for thread in threads:
        thread.join()
    print(json.dumps({**found, **core.frames_counts(snapper)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
