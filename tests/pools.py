"""Thread pools for the tests of watched ones: calls that wait at a gate, and loops to watch them by."""

import threading

import pytest
from scenario import new_loop, pulse_of, quiet, wait_until

import loopwatch


def loop_fixture():
    """A loop of the kind that the fixture `kind` says."""

    @pytest.fixture
    def loop(kind):
        loop = new_loop(kind)
        yield loop
        loop.close()

    return loop


def stock_fixture():
    @pytest.fixture
    def stock():
        loop = new_loop()
        yield loop
        loop.close()

    return stock


class Gate:
    """Calls that run until they are let through."""

    def __init__(self):
        self.begun, self.event = 0, threading.Event()

    def wait_at_gate(self):
        self.begun += 1
        assert self.event.wait(30)

    def until(self, number):
        assert wait_until(lambda: self.begun == number)


def gate_fixture():
    @pytest.fixture
    def gate():
        gate = Gate()
        yield gate
        gate.event.set()

    return gate


def watched(loop, kind="turn", **options):
    pulse = "auto" if kind == "uv" else pulse_of(kind)  # the portable build has no pulse of uvloop's own
    return loopwatch.install(loop, **quiet(pulse=pulse, **options))


def has_submit(pool):
    return "submit" in vars(pool)


def counts(executor):
    state = executor.state()
    return state.workers, state.busy, state.queued
