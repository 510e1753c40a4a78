"""WrappedSelect calls the original as it was called, and stamps around it."""

import selectors
import time
from decimal import Decimal
from typing import Any

import pytest
from hooking import socket_pairs, watched

from loopwatch import _testcore as core

MS = 1_000_000


@pytest.mark.parametrize("kind", [selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector])
def test_a_real_selector(kind: type[selectors.BaseSelector]) -> None:
    with kind() as selector, watched(pulse="wrapped") as slot, socket_pairs(1) as [(ours, _)]:
        hook = core.WrappedSelect(slot, selector.select, -1)
        key = selector.register(ours, selectors.EVENT_WRITE)
        assert hook() == hook(0) == hook(timeout=None) == [(key, selectors.EVENT_WRITE)]
        selector.unregister(ours)
        begin = time.monotonic_ns()
        assert hook(0.02) == []
        turns, idle, gil = core.totals(slot)
        assert idle >= 20 * MS
        assert time.monotonic_ns() - begin >= 20 * MS
        assert turns == 3
        assert gil == 0


@pytest.mark.parametrize(
    ("args", "kwargs", "seconds"),
    [
        ((), {}, None),
        ((None,), {}, None),
        ((), {"timeout": None}, None),
        ((0,), {}, 0),
        ((-3,), {}, 0),
        ((float("-inf"),), {}, 0),
        ((1.5,), {}, 1.5),
        ((2,), {}, 2),
        ((), {"timeout": 2.5}, 2.5),
        ((), {"other": 7, "timeout": 3}, 3),
        ((True,), {}, 1),
        ((Decimal("0.25"),), {}, 0.25),
        ((4, 5), {"timeout": 6}, 4),
        ((1e300,), {}, None),
        ((float("inf"),), {}, None),
        ((float("nan"),), {}, None),
        ((10**400,), {}, None),
        (("soon",), {}, None),
        ((), {"other": 1}, None),
    ],
)
def test_due(args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float | None) -> None:
    def select(*got: Any, **got_too: Any) -> object:
        assert (got, got_too) == (args, kwargs)
        inside.append(core.beat(slot))
        return answer

    inside: list[Any] = []
    answer = object()
    with watched(pulse="wrapped") as slot:
        hook = core.WrappedSelect(slot, select, -1)
        before = time.monotonic_ns()
        assert hook(*args, **kwargs) is answer
        after = time.monotonic_ns()
        [(_, phase, since, due)] = inside
        assert phase == "wait"
        assert before <= since <= after
        if seconds is None:
            assert due is None
        else:
            assert due - since == pytest.approx(seconds * 1e9, abs=1)
        assert core.beat(slot)[1] == "busy"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_comes_out_and_the_wait_is_over(error: type[BaseException]) -> None:
    def select(_timeout: object) -> None:
        raise error("as it was")

    with watched(pulse="wrapped") as slot:
        with pytest.raises(error, match="as it was"):
            core.WrappedSelect(slot, select, -1)(0)
        assert core.beat(slot)[1] == "busy"


def test_a_timeout_whose_float_raises_is_the_originals_matter() -> None:
    class Odd:
        def __float__(self) -> float:
            raise RuntimeError("not here")

    with watched(pulse="wrapped") as slot:
        odd = Odd()
        assert core.WrappedSelect(slot, lambda timeout: timeout, -1)(odd) is odd


def test_bad_arguments() -> None:
    with watched(pulse="wrapped") as slot:
        with pytest.raises(TypeError, match="callable"):
            core.WrappedSelect(slot, 1, -1)
        with pytest.raises(TypeError):
            core.WrappedSelect(None, print, -1)
        with pytest.raises(TypeError):
            core.WrappedSelect(slot, print)
        with pytest.raises(ValueError, match="descriptor"):
            core.WrappedSelect(slot, print, -2)
        with pytest.raises(OverflowError):
            core.WrappedSelect(slot, print, 2**31)
