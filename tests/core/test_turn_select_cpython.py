"""CPython's own tests of EpollSelector, run on selectors whose select is ours."""

import selectors
from typing import Any

import pytest
from hooking import needs_turn_select, new_slot

from loopwatch import _testcore as core

needs_turn_select()
cpython = pytest.importorskip("test.test_selectors", reason="this interpreter comes without its tests")

slots: list[Any] = []


def hooked(*args: Any) -> selectors.EpollSelector:
    selector = selectors.EpollSelector(*args)
    slot = new_slot()
    slots.append(slot)
    selector.select = core.TurnSelect(slot, selector)  # type: ignore[method-assign]
    return selector


hooked.__name__ = "EpollSelector"  # the tests patch the class of that name


class TestHookedEpollSelector(cpython.EpollSelectorTestCase):  # type: ignore[misc, name-defined]
    SELECTOR = staticmethod(hooked)

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        # Many of CPython's tests select; a few of them alone (a parallel run, a rerun) prove nothing of that.
        called = sum(core.beat(slot)[0] > 0 for slot in slots)
        assert called or len(slots) < 8, "the hook was called"
        slots.clear()
