"""Snapshots over memory that lies (tests/core/test_frames_fuzz.c): whatever is read, they end, in bounds.

LOOPWATCH_FUZZ_ROUNDS says how many altogether (default 20000), LOOPWATCH_FUZZ_SEED where to begin (default:
anywhere). Under sanitizers, from the top of the repository after a build with
LOOPWATCH_SANITIZE=address,undefined:

    LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 python -m pytest tests/fuzz
"""

import os
import random
import time
from collections.abc import Iterator

import pytest

from loopwatch import _testcore as core

SEED = int(os.environ.get("LOOPWATCH_FUZZ_SEED") or random.getrandbits(63))
MODES = ["garbage", "flip", "stop", "shuffle", "small"]
ROUNDS = int(os.environ.get("LOOPWATCH_FUZZ_ROUNDS") or 20_000) // len(MODES)

pytestmark = pytest.mark.skipif(core.frames_setup()[1] is not None, reason=str(core.frames_setup()[1]))


def dive(n: int, mode: int) -> dict[str, int]:
    """Plain frames below a generator below coroutines: every kind of frame that a walk meets."""
    if n:
        return dive(n - 1, mode)
    (found,) = delegate(mode)
    return found


def delegate(mode: int) -> Iterator[dict[str, int]]:
    yield from produce(mode)


def produce(mode: int) -> Iterator[dict[str, int]]:
    try:
        outer(8, mode).send(None)
    except StopIteration as stop:
        yield stop.value


async def outer(n: int, mode: int) -> dict[str, int]:
    if n:
        return await outer(n - 1, mode)
    found: dict[str, int] = core.frames_fuzz(core.frames_thread_ref(), ROUNDS, SEED, mode)
    return found


@pytest.mark.parametrize("mode", range(len(MODES)), ids=MODES)
def test_any_memory_is_survived(mode: int) -> None:
    begin = time.monotonic()
    found = dive(200, mode)
    print(f"seed {SEED}: {found}, {time.monotonic() - begin:.1f} s")
    # The harness did lie, and was not believed blindly; what it left alone was still read.
    assert found["broken"] + found["unreadable"] > 0
    assert (found["frames"] > 0) == (MODES[mode] != "garbage")
    assert time.monotonic() - begin < 0.005 * ROUNDS + 10  # a walk of LW_WALK_MAX bad steps takes that long
