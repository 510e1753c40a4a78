"""RunEdge: a run begins and ends, however it ends."""

import asyncio
import threading
from typing import Any

import pytest
from hooking import hooked_loop, watched

from loopwatch import _testcore as core


def phase(slot: object) -> str:
    return core.beat(slot)[1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_begin_and_end(error: type[BaseException] | None) -> None:
    def run_forever() -> str:
        seen.append(phase(slot))
        if error:
            raise error("as it was")
        return "as it was"

    seen: list[str] = []
    with watched() as slot:
        hook = core.RunEdge(slot, run_forever)
        for n in (1, 2, 3):
            assert phase(slot) == "off"
            if error:
                with pytest.raises(error, match="as it was"):
                    hook()
            else:
                assert hook() == "as it was"
            assert phase(slot) == "off"
            assert core.totals(slot)[0] == n
        assert seen == ["busy"] * 3
        assert core.bound_thread(slot) == threading.get_ident()


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_who_is_told(error: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once before each run and once after it; what they raise is reported and is not the run's."""

    def run_forever() -> str:
        told.append("run")
        if error:
            raise error("as it was")
        return "as it was"

    def tell(what: str) -> None:
        told.append(what)
        raise ValueError(what)

    told: list[str] = []
    raised: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda problem: raised.append(str(problem.exc_value)))
    with watched() as slot:
        hook = core.RunEdge(slot, run_forever, lambda: tell("begin"), lambda: tell("end"))
        if error:
            with pytest.raises(error, match="as it was"):
                hook()
        else:
            assert hook() == "as it was"
    assert told == ["begin", "run", "end"]
    assert raised == ["begin", "end"]


def test_arguments_go_through() -> None:
    with watched() as slot:
        hook = core.RunEdge(slot, lambda *args, **kwargs: (args, kwargs))
        assert hook() == ((), {})
        assert hook(1, 2, three=3) == ((1, 2), {"three": 3})
    with watched() as slot, pytest.raises(TypeError):
        core.RunEdge(slot, lambda: None)(1)
    assert phase(slot) == "off"


def test_a_thread_for_each_run() -> None:
    with watched() as slot:
        hook = core.RunEdge(slot, lambda: None)
        for _ in range(3):
            thread = threading.Thread(target=hook)
            thread.start()
            thread.join()
            assert core.bound_thread(slot) == thread.ident


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_run_that_an_exception_ends(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    with hooked_loop() as (loop, slot):
        for _ in range(2):
            if error is ValueError:
                loop.set_exception_handler(lambda loop, _context: loop.stop())
            loop.call_soon(fail)
            if error is ValueError:
                loop.run_forever()
            else:
                with pytest.raises(error):
                    loop.run_forever()
            assert phase(slot) == "off"
        assert core.totals(slot)[0] >= 2


def test_running_a_running_loop_neither_begins_nor_ends_a_run() -> None:
    """As a loop does it that refuses. (One of 3.13.0 also forgets that it runs.)"""

    def run_forever() -> None:
        if entered:
            raise RuntimeError("already running")
        entered.append(core.beat(slot)[:2])
        bound = core.bound_thread(slot)
        run_again()
        thread = threading.Thread(target=run_again)
        thread.start()
        thread.join()
        assert core.beat(slot)[:2] == entered[0]
        assert core.bound_thread(slot) == bound

    def run_again() -> None:
        with pytest.raises(RuntimeError, match="already running"):
            hook()
        refused.append(threading.get_ident())

    entered: list[tuple[int, str]] = []
    refused: list[int] = []
    with watched() as slot:
        hook = core.RunEdge(slot, run_forever)
        hook()
        assert len(set(refused)) == 2
        assert phase(slot) == "off"


def test_the_steps_of_a_thread_belong_to_the_loop_that_runs() -> None:
    """Loops inside each other, as those who run one in a callback of another have them."""

    def steps(name: str, inside: Any = None) -> None:
        with core.Step(name):
            pass
        if inside:
            inside()
            with core.Step(f"{name} again"):
                pass

    with watched() as outer, watched() as inner:
        inner_edge = core.RunEdge(inner, lambda: (steps("inner"), names.append(core.collect_steps(inner))))
        outer_edge = core.RunEdge(
            outer, lambda: (steps("outer", inner_edge), names.append(core.collect_steps(outer)))
        )
        names: list[list[tuple[str, int]]] = []
        outer_edge()
        assert [[name for name, _ in steps] for steps in names] == [["inner"], ["outer", "outer again"]]
        with core.Step("outside"):
            pass
        assert core.collect_steps(outer) == core.collect_steps(inner) == []


def test_uninstalled_inside_a_run() -> None:
    async def main() -> None:
        del loop.run_forever
        del loop._selector.select
        slot.retire(10**9)
        await asyncio.sleep(0)

    with hooked_loop() as (loop, slot):
        loop.run_until_complete(main())
        loop.run_until_complete(asyncio.sleep(0))


def test_bad_arguments() -> None:
    with watched() as slot:
        with pytest.raises(TypeError, match="callable"):
            core.RunEdge(slot, 1)
        with pytest.raises(TypeError):
            core.RunEdge(1, print)
        with pytest.raises(TypeError):
            core.RunEdge(slot)
