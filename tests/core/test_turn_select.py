"""TurnSelect stands in for selectors.EpollSelector.select: the same answers, and stamps."""

import asyncio
import math
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hooking import hooked_loop, hooked_selector, needs_turn_select, socket_pairs, watched
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwatch import _testcore as core

needs_turn_select()

MS = 1_000_000


def outcome(call: Callable[[], object]) -> tuple[str, object]:
    """What a call does, comparable: its result, or its exception's type and text."""
    try:
        return "result", call()
    except Exception as error:
        return type(error).__name__, str(error)


# --- the same results ---

READ, WRITE, BOTH = selectors.EVENT_READ, selectors.EVENT_WRITE, selectors.EVENT_READ | selectors.EVENT_WRITE

ends = st.fixed_dictionaries(
    {
        "events": st.sampled_from([None, READ, WRITE, BOTH]),
        "fed": st.booleans(),
        "full": st.booleans(),
        "peer": st.sampled_from(["open", "closed", "shut"]),
    }
)


def prepare(
    end: dict[str, Any], pair: tuple[socket.socket, socket.socket], selector: selectors.BaseSelector
) -> None:
    ours, peer = pair
    if end["fed"]:
        peer.send(b"x")
    if end["full"]:
        with suppress(BlockingIOError):
            while True:
                ours.send(b"x" * 65536)
    if end["peer"] == "closed":
        peer.close()
    elif end["peer"] == "shut":
        peer.shutdown(socket.SHUT_WR)
    if end["events"] is not None:
        selector.register(ours, end["events"], data=object())


@settings(max_examples=150, deadline=None)
@given(st.lists(ends, max_size=12), st.sampled_from([0, 0.0, -1, -0.5, 1e-9, 0.0004, 0.001, 1, 0.002, None]))
def test_results_are_those_of_the_original(shape: list[dict[str, Any]], timeout: float | None) -> None:
    with hooked_selector() as (selector, hook, _), socket_pairs(len(shape)) as pairs:
        for end, pair in zip(shape, pairs, strict=True):
            prepare(end, pair, selector)
        if not selector.select(0) and (timeout is None or timeout >= 1):
            timeout = 0
        args = () if timeout is None else (timeout,)
        expected = selector.select(*args)
        assert hook(*args) == expected
        assert [type(events) for _, events in expected] == [int] * len(expected)


@pytest.mark.parametrize(
    "args",
    [
        ("1",),
        (b"1",),
        ([],),
        (1j,),
        (float("nan"),),
        (float("inf"),),
        (float("-inf"),),
        (1e300,),
        (2.0**31 / 1000,),
        (2**63,),
        (10**400,),
        (-(10**400),),
        (-1e300,),
        (False,),
        (Decimal(0),),
        (Decimal("-1.5"),),
        (Decimal("0.001"),),
        (Fraction(1, 1000),),
        (object(),),
        (0, 0),
        (None, None, None),
    ],
    ids=lambda arguments: repr(arguments)[:40].split(" at 0x")[0],
)
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_odd_arguments_end_as_in_the_original(args: tuple[Any, ...], closed: bool) -> None:
    with hooked_selector() as (selector, hook, _), socket_pairs(1) as [(ours, _peer)]:
        selector.register(ours, WRITE)
        if closed:
            selector.close()
        assert outcome(lambda: hook(*args)) == outcome(lambda: selector.select(*args))


@pytest.mark.parametrize(
    "kwargs", [{"timeout": 0}, {"timeout": None}, {"timeout": "x"}, {"time": 0}, {"x": 1, "y": 2}]
)
def test_keywords_end_as_in_the_original(kwargs: dict[str, Any]) -> None:
    with hooked_selector() as (selector, hook, _), socket_pairs(1) as [(ours, _peer)]:
        selector.register(ours, WRITE)
        assert outcome(lambda: hook(**kwargs)) == outcome(lambda: selector.select(**kwargs))
        assert outcome(lambda: hook(0, **kwargs)) == outcome(lambda: selector.select(0, **kwargs))


def test_closed() -> None:
    with hooked_selector() as (selector, hook, _):
        selector.close()
        for timeout in (None, 0, 0.5):
            with pytest.raises(ValueError, match="I/O operation on closed epoll object"):
                hook(timeout)


def test_a_descriptor_number_that_was_closed_and_used_again_is_not_waited_for() -> None:
    with hooked_selector() as (selector, hook, _):
        number = selector.fileno()
        selector.close()
        with selectors.EpollSelector() as other:
            assert other.fileno() == number, "the test needs the same number"
            with pytest.raises(ValueError, match="closed epoll"):
                hook(0)


def test_epoll_descriptor_that_the_program_closed_is_an_oserror_as_in_the_original() -> None:
    with hooked_selector() as (selector, hook, _):
        spare = os.dup(selector.fileno())
        try:
            os.close(selector.fileno())
            expected = outcome(lambda: selector.select(0))
            assert expected[0] == "OSError"
            assert outcome(lambda: hook(0)) == expected
        finally:
            os.dup2(spare, selector.fileno())
            os.close(spare)


def test_unregistered_behind_the_selectors_back_is_left_out() -> None:
    with hooked_selector() as (selector, hook, _), socket_pairs(3) as [(gone, _), (ready, _), (idle, _)]:
        removed = selector.register(gone, WRITE)
        key = selector.register(ready, WRITE)
        selector.register(idle, READ)  # makes room for the event of the one that is gone
        table = selector._fd_to_key  # type: ignore[attr-defined]
        del table[removed.fd]
        assert hook(0) == selector.select(0) == [(key, WRITE)]
        table[removed.fd] = removed


def test_keys_of_another_type() -> None:
    class Key:
        def __init__(self, events: object) -> None:
            self.events = events

    class Odd:
        def __rand__(self, other: int) -> str:
            return f"odd {other}"

    with hooked_selector() as (selector, hook, _), socket_pairs(1) as [(ours, _)]:
        real = selector.register(ours, WRITE)
        table = selector._fd_to_key  # type: ignore[attr-defined]
        for events in (BOTH, READ, Odd(), "none"):
            table[real.fd] = Key(events)
            assert outcome(lambda: hook(0)) == outcome(lambda: selector.select(0))
        del table[real.fd].events
        assert outcome(lambda: hook(0)) == outcome(lambda: selector.select(0))
        table[real.fd] = real


def test_at_most_as_many_events_as_keys_and_the_others_get_their_turn() -> None:
    """The kernel hands out ready descriptors in rotation: with room for fewer than are ready, all come up."""
    with hooked_selector() as (selector, hook, _), socket_pairs(10) as pairs:
        keys = [selector.register(ours, WRITE) for ours, _ in pairs]
        hidden = [selector._fd_to_key.pop(key.fd) for key in keys[:7]]  # type: ignore[attr-defined]
        seen = set()
        for _ in range(30):
            ready = hook(0)
            assert len(ready) <= 3
            seen |= {key.fd for key, _ in ready}
        assert seen == {key.fd for key in keys[7:]}
        for key in hidden:
            selector._fd_to_key[key.fd] = key  # type: ignore[attr-defined]


def test_more_keys_than_the_buffer_was_made_for() -> None:
    with hooked_selector() as (selector, hook, _), socket_pairs(200) as pairs:
        for n, (ours, _) in enumerate(pairs):
            selector.register(ours, WRITE, n)
            if n in (0, 63, 64, 65, 127, 128, 199):
                assert sorted(key.data for key, _ in hook(0)) == list(range(n + 1))


@pytest.mark.parametrize("timeout", [0.0005, 0.001, 0.003, 0.0101, 0.029, 1e-12])
def test_waits_at_least_as_long_as_asked(timeout: float) -> None:
    with hooked_selector() as (_, hook, _slot):
        begin = time.monotonic()
        assert hook(timeout) == []
        assert time.monotonic() - begin >= timeout


@given(st.floats(1e-9, 1.9e6) | st.integers(1, 1_900_000))
def test_due_is_rounded_as_the_original_rounds(timeout: float) -> None:
    """The original's rounding, in Python: to whole milliseconds as a float, which epoll.poll() takes up to a
    nanosecond and then to a millisecond. The waits are over at once; what was asked for stays in the beat."""
    whole = math.ceil(timeout * 1e3) * 1e-3
    expected_ms = -(-math.ceil(whole * 1e9) // MS)
    with hooked_selector() as (selector, hook, slot), socket_pairs(1) as [(ours, _)]:
        selector.register(ours, WRITE)
        # The wait begins between two looks at the clock, so the due time less the timeout lies there too.
        before = time.monotonic_ns()
        hook(timeout)
        after = time.monotonic_ns()
        assert before <= core.beat(slot)[3] - expected_ms * MS <= after


# --- what may be hooked ---


def test_only_exactly_epoll_selectors() -> None:
    class Mine(selectors.EpollSelector):
        pass

    with watched() as slot:
        for make in (Mine, selectors.PollSelector, selectors.SelectSelector, object):
            other = make()
            with pytest.raises(TypeError, match=r"exactly a selectors\.EpollSelector"):
                core.TurnSelect(slot, other)
            if isinstance(other, selectors.BaseSelector):
                other.close()


def test_bad_arguments_of_the_constructor() -> None:
    with selectors.EpollSelector() as selector, watched() as slot:
        with pytest.raises(TypeError):
            core.TurnSelect(slot)
        with pytest.raises(TypeError):
            core.TurnSelect(object(), selector)
        with pytest.raises(TypeError):
            core.TurnSelect(slot, selector, 1)
        with pytest.raises(TypeError):
            type("Sub", (core.TurnSelect,), {})


def test_a_shadowed_select_is_not_the_original() -> None:
    """Odd timeouts go to the class's select, not to what is on the instance: it may be this very hook."""
    with hooked_selector() as (selector, hook, slot):
        selector.select = hook  # type: ignore[method-assign]
        selector.select = core.TurnSelect(slot, selector)
        assert selector.select(Decimal(0)) == []


# --- stamps ---


def test_a_wait_is_seen_from_another_thread() -> None:
    with hooked_selector() as (selector, hook, slot), socket_pairs(1) as [(ours, peer)]:
        selector.register(ours, READ)
        before = time.monotonic_ns()
        waiter = threading.Thread(target=hook, args=(60,))
        waiter.start()
        deadline = time.monotonic() + 30
        while core.beat(slot)[1] != "wait" and time.monotonic() < deadline:
            time.sleep(0.001)
        turn, phase, since, due = core.beat(slot)
        assert phase == "wait"
        assert core.bound_thread(slot) == waiter.ident
        assert before <= since <= time.monotonic_ns()
        assert 60_000 * MS <= due - since <= 60_001 * MS
        peer.send(b"x")
        waiter.join()
        back = core.beat(slot)
        assert back[:2] == (turn, "busy")
        assert back[2] >= since


def test_no_timeout_is_never_due() -> None:
    with hooked_selector() as (selector, hook, slot), socket_pairs(1) as [(ours, _)]:
        selector.register(ours, WRITE)
        hook()
        assert core.beat(slot)[3] is None
        hook(None)
        assert core.beat(slot)[3] is None
        hook(0)
        assert core.beat(slot)[3] is not None


def test_busy_and_idle_time_add_up() -> None:
    with hooked_selector() as (_, hook, slot):
        hook(0)
        turns, idle, _ = core.totals(slot)
        begin = time.monotonic_ns()
        hook(0.05)
        time.sleep(0.05)
        hook(0)
        took = time.monotonic_ns() - begin
        more_turns, more_idle, _ = core.totals(slot)
        assert more_turns - turns == 2
        assert 50 * MS <= more_idle - idle <= took - 50 * MS


def test_wait_for_the_gil_is_told_from_waiting() -> None:
    """A thread that runs Python keeps the GIL for a switch interval after the kernel ended the wait."""
    stop = threading.Event()
    spinner = threading.Thread(target=lambda: [None for _ in iter(stop.is_set, True)])
    with hooked_selector() as (_, hook, slot):
        spinner.start()
        try:
            for _ in range(20):
                hook(0.001)
        finally:
            stop.set()
            spinner.join()
        _, idle, gil = core.totals(slot)
    assert idle > 0
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        # 20 waits for up to 5 ms each; at least one must have met the spinner in the middle of an interval.
        assert gil > 1 * MS


# --- in a loop ---


def test_echo_server() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def client(port: int, n: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        message = bytes([n]) * 200_000
        writer.write(message)
        answer = await reader.readexactly(len(message))
        writer.close()
        await writer.wait_closed()
        return answer

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            answers = await asyncio.gather(*(client(port, n) for n in range(20)))
        assert answers == [bytes([n]) * 200_000 for n in range(20)]

    with hooked_loop() as (loop, slot):
        loop.run_until_complete(main())
        assert core.totals(slot)[0] > 20
        assert core.beat(slot)[1] == "off"


def test_signal_handlers_and_threads_wake_the_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        got = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, got.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(got.wait(), 30)
        loop.remove_signal_handler(signal.SIGUSR1)
        assert await asyncio.wait_for(loop.run_in_executor(None, lambda: 42), 30) == 42
        await loop.shutdown_default_executor()

    with hooked_loop() as (loop, _):
        loop.run_until_complete(main())
