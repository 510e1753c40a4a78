"""Step: named parts of a turn."""

import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from hooking import MS, running, spend, watched
from hypothesis import given
from hypothesis import strategies as st

from loopwatch import _testcore as core


def taken(slot: object) -> dict[str, int]:
    """{name: whole milliseconds}"""
    steps = core.collect_steps(slot)
    assert len({name for name, _ in steps}) == len(steps)
    return {name: ns // MS for name, ns in steps}


class Clock:
    """Bounds for what a step may have taken: at least what was spent in it, at most what passed."""

    def __init__(self) -> None:
        self.begin = time.monotonic_ns()

    @property
    def passed(self) -> int:
        return (time.monotonic_ns() - self.begin) // MS + 1


def test_steps_are_counted_by_name() -> None:
    def check(slot: object) -> None:
        clock = Clock()
        with core.Step("tls"):
            spend(20)
        with core.Step("parse"):
            spend(5)
        with core.Step("tls"):
            spend(20)
        steps = taken(slot)
        assert list(steps) == ["tls", "parse"]
        assert steps["tls"] >= 40
        assert steps["parse"] >= 5
        assert sum(steps.values()) <= clock.passed

    running(check)


def test_open_steps_count_until_now() -> None:
    def check(slot: object) -> None:
        with core.Step("outer"):
            spend(10)
            with core.Step("inner"):
                spend(10)
                steps = taken(slot)
                assert steps["outer"] >= 20
                assert 10 <= steps["inner"] <= steps["outer"] - 9

    running(check)


def test_a_step_inside_one_of_its_name_counts_once() -> None:
    def check(slot: object) -> None:
        clock = Clock()
        step = core.Step("again")
        with step:
            spend(10)
            with step, core.Step("again"):
                spend(10)
                assert 20 <= taken(slot)["again"] <= clock.passed
            spend(10)
        assert 30 <= taken(slot)["again"] <= clock.passed

    running(check)


def test_a_step_that_crosses_turns_counts_where_it_is_left() -> None:
    def check(slot: object) -> None:
        with core.Step("across"):
            spend(30)
            core.next_turn(slot)
            assert taken(slot) == {}
            clock = Clock()
            spend(10)
        assert 10 <= taken(slot)["across"] <= clock.passed
        core.next_turn(slot)
        assert taken(slot) == {}

    running(check)


def test_tasks_that_hold_one_step_across_turns_do_not_count_it_twice() -> None:
    """Many tasks may leave a step of one name in a turn; together they were in it no longer than that."""

    def check(slot: object) -> None:
        shared = core.Step("shared")
        for _ in range(5):
            shared.__enter__()
        core.next_turn(slot)
        clock = Clock()
        for _ in range(5):
            spend(5)
            shared.__exit__(None, None, None)
        assert 25 <= taken(slot)["shared"] <= clock.passed

    running(check)


def test_left_in_another_order_than_entered() -> None:
    def check(slot: object) -> None:
        clock = Clock()
        first, second = core.Step("first"), core.Step("second")
        first.__enter__()
        spend(5)
        second.__enter__()
        spend(5)
        first.__exit__(None, None, None)
        spend(5)
        second.__exit__(None, None, None)
        steps = taken(slot)
        assert 10 <= steps["first"] <= clock.passed - 5
        assert 10 <= steps["second"] <= clock.passed - 5

    running(check)


def test_deeper_than_is_seen_while_they_last() -> None:
    def check(slot: object) -> None:
        steps = [core.Step(f"depth {n}") for n in range(12)]
        for step in steps:
            step.__enter__()
        spend(5)
        assert list(taken(slot)) == [f"depth {n}" for n in range(8)]
        for step in reversed(steps):
            step.__exit__(None, None, None)
        assert sorted(taken(slot)) == sorted(f"depth {n}" for n in range(12))
        assert min(taken(slot).values()) >= 5

    running(check)


def test_more_names_than_fit_are_other() -> None:
    def check(slot: object) -> None:
        clock = Clock()
        for n in range(16):
            with core.Step(f"name {n}"):
                spend(1)
        assert list(taken(slot)) == [f"name {n}" for n in range(16)]
        for n in range(16, 20):
            with core.Step(f"name {n}"):
                spend(2)
        with core.Step("name 3"):
            spend(5)
        steps = taken(slot)
        assert list(steps) == [f"name {n}" for n in range(15)] + ["other"]
        assert steps["name 3"] >= 6
        assert 1 + 4 * 2 <= steps["other"] <= clock.passed
        with core.Step("name 99"):
            assert list(taken(slot))[-1] == "other"

    running(check)


def test_an_exception_leaves_the_step() -> None:
    def check(slot: object) -> None:
        def fail() -> None:
            with core.Step("failing"):
                spend(5)
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            fail()
        assert taken(slot)["failing"] >= 5

    running(check)


def test_without_a_watched_loop_it_does_nothing() -> None:
    step = core.Step("nowhere")
    with step, step:
        pass
    with watched() as slot:
        with step:
            core.RunEdge(slot, lambda: step.__exit__(None, None, None))()
            step.__enter__()
        assert core.collect_steps(slot) == []


def test_entered_in_a_run_and_left_outside() -> None:
    with watched() as slot:
        step = core.Step("left late")
        core.RunEdge(slot, lambda: step.__enter__())()
        step.__exit__(None, None, None)
        assert core.collect_steps(slot) == []


def test_other_threads_are_not_the_loops() -> None:
    def work() -> None:
        with core.Step("in a thread"):
            spend(1)

    def check(slot: object) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert core.collect_steps(slot) == []

    running(check)


def test_after_uninstall_it_does_nothing() -> None:
    def check(slot: Any) -> None:
        step = core.Step("too late")
        step.__enter__()
        step.__exit__(None, None, None)
        before = core.collect_steps(slot)
        slot.retire(10**9)
        with step:
            spend(2)
        assert core.collect_steps(slot) == before

    running(check)


def test_installed_in_a_callback() -> None:
    with watched() as slot:
        slot.here()
        with core.Step("from here"):
            spend(2)
        assert taken(slot)["from here"] >= 2


def test_leaving_what_was_not_entered() -> None:
    step = core.Step("x")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not entered"):
            step.__exit__(None, None, None)
        with step:
            pass


def test_one_step_in_many_threads() -> None:
    step = core.Step("shared by threads")

    def work() -> None:
        for _ in range(2000):
            with step, step:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(RuntimeError, match="not entered"):
        step.__exit__(None, None, None)


@pytest.mark.parametrize("name", ["", None, b"tls", 1, ["tls"]])
def test_bad_names(name: object) -> None:
    with pytest.raises(TypeError, match="non-empty str"):
        core.Step(name)


def test_bad_arguments() -> None:
    with pytest.raises(TypeError):
        core.Step()
    with pytest.raises(TypeError):
        core.Step("a", "b")
    with pytest.raises(ValueError, match="null"):
        core.Step("a\0b")
    assert repr(core.Step(name="tls")) == "<loopwatch.step 'tls'>"


def shown(name: str) -> str:
    return repr(core.Step(name)).removeprefix("<loopwatch.step '").removesuffix("'>")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ü€😀", "ü€😀"),
        ("lone \ud800", "lone \\ud800"),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200),
        ("€" * 66 + "ab", "€" * 66 + "ab"),
        ("€" * 67, "€" * 66),
        ("a" + "😀" * 50, "a" + "😀" * 49),
    ],
)
def test_names_are_cut_at_a_character(name: str, expected: str) -> None:
    assert shown(name) == expected


@given(st.integers(0, 2**32 - 1))
def test_any_index_has_a_name(index: int) -> None:
    assert isinstance(core.step_name(index), str)
    if index == 0 or index >= 256:
        assert core.step_name(index) == "other"


TABLE = """
import sys, threading
sys.path[:0] = {path!r}
from loopwatch import _testcore as core

def add(names):
    for name in names:
        assert repr(core.Step(name)) == f"<loopwatch.step {{name!r}}>"

names = [f"n{{i}}" for i in range(255)]
threads = [threading.Thread(target=add, args=(names[k:] + names[:k],)) for k in (0, 50, 100, 250)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sorted(core.step_name(i) for i in range(1, 256)) == sorted(names)
assert repr(core.Step("one more")) == "<loopwatch.step 'other'>"
assert repr(core.Step("n254")) == "<loopwatch.step 'n254'>"
"""


def test_the_table_is_full_once_and_names_are_added_by_many_threads() -> None:
    """In a process of its own, because the table only grows."""
    subprocess.run([sys.executable, "-c", TABLE.format(path=sys.path)], check=True)
