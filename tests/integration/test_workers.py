"""Frames of any threads, read by the watchdog: against what the interpreter says of them."""

import sys
import threading

import pytest
from scenario import new_loop, quiet, wait_until

import loopwatch
from loopwatch._capture import walk
from loopwatch._workers import WORKERS_MAX, read_frames


@pytest.fixture
def watch():
    loop = new_loop()
    try:
        with loopwatch.install(loop, **quiet()) as watch:
            if watch.capture != "raw":
                pytest.skip("frames are not read raw here")
            yield watch
    finally:
        loop.close()


class Standing:
    """Threads that stand at a known depth until they are let go."""

    def __init__(self, number):
        self.begun, self.event = 0, threading.Event()
        self.threads = [threading.Thread(target=self.stand, args=(depth,)) for depth in range(number)]

    def stand(self, depth):
        if depth:
            self.stand(depth - 1)
        else:
            self.begun += 1
            self.event.wait()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        assert wait_until(lambda: self.begun == len(self.threads))
        return self.threads

    def __exit__(self, *exc_info):
        self.event.set()
        for thread in self.threads:
            thread.join()


def read(watch, threads):
    return read_frames(threads, watch.capture, watch._slot)


def functions(stacks):
    return {ident: [frame.qualname for frame in stack] for ident, stack in stacks.items()}


def test_each_thread_has_its_own(watch):
    """A thread may still be on its way into the wait when it is looked at."""
    with Standing(8) as threads:

        def same():
            tops = sys._current_frames()
            stacks = {thread.ident: walk(tops[thread.ident])[0] for thread in threads}
            return functions(read(watch, threads)) == functions(stacks)

        assert wait_until(same)
        stacks = functions(read(watch, threads))
    depths = [stacks[thread.ident].count("Standing.stand") for thread in threads]
    assert depths == list(range(1, 9))


def test_one_that_has_ended_is_missing(watch):
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert read(watch, [thread]) == {}
    assert read(watch, [threading.Thread(target=int)]) == {}  # not started: it has no ident
    assert read(watch, []) == {}


def test_no_more_than_some(watch):
    with Standing(WORKERS_MAX + 3) as threads:
        stacks = read(watch, threads)
    assert set(stacks) == {thread.ident for thread in threads[:WORKERS_MAX]}


def test_after_the_end(watch):
    watch.uninstall()
    with Standing(1) as threads:
        assert read(watch, threads) == {}


@pytest.mark.parametrize("wrong", [(3, 1), (["x"], 1), ([-1], 1), ([1 << 64], 1)])
def test_bad_arguments(watch, wrong):
    with pytest.raises((TypeError, OverflowError, ValueError)):
        watch._slot.stacks(*wrong)
