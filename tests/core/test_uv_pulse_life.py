"""The uv pulse: what it refuses, that nothing of it is left, and the process around it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from loopwatch import _core
from loopwatch import _testcore as core

if _core.PORTABLE:
    pytest.skip("the portable build has no uv pulse", allow_module_level=True)
uvloop = pytest.importorskip("uvloop")

from uv_loops import PREPARE, RESTS, TIMER, Watched, handles, run_program, traffic, watched  # noqa: E402

MS = 1_000_000
SECOND = 1_000 * MS


# --- what it refuses ---


def test_refuses_what_is_not_uvloops() -> None:
    it = Watched()
    for other in (None, 1, Mock(spec=type(it.loop))):
        with pytest.raises(TypeError, match="not a loop of uvloop"):
            core.UvPulse(it.slot, other)
    with pytest.raises(TypeError):
        core.UvPulse(object(), it.loop)
    stock = asyncio.SelectorEventLoop()
    with pytest.raises(TypeError, match="not a loop of uvloop"):
        core.UvPulse(it.slot, stock)
    stock.close()
    it.loop.close()
    with pytest.raises(RuntimeError, match="closed"):
        core.UvPulse(it.slot, it.loop).start()


@pytest.mark.parametrize("name", ["libuv_get_loop_t_ptr", "libuv_get_version", "__file__"])
def test_says_what_a_uvloop_lacks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched() as it:
        monkeypatch.delattr(f"uvloop.loop.{name}")
        with pytest.raises(RuntimeError, match=name):
            core.UvPulse(it.slot, it.loop)
        monkeypatch.undo()
        monkeypatch.setattr("uvloop.loop.__file__", "/no/such/module.so")
        with pytest.raises(RuntimeError, match=r"/no/such/module\.so"):
            core.UvPulse(it.slot, it.loop)
        monkeypatch.setattr("uvloop.loop.__file__", core.__file__)
        with pytest.raises(RuntimeError, match="does not export uv_"):
            core.UvPulse(it.slot, it.loop)


# --- nothing is left ---


def test_stop_closes_the_handle() -> None:
    with watched() as it:
        ours = {PREPARE: 1, TIMER: 1} if RESTS else {PREPARE: 1}
        assert handles(it.loop) == ours
        it.run(asyncio.sleep(0.01))
        it.pulse.start()
        assert handles(it.loop) == ours
        for _ in range(2):
            assert it.pulse.stop() is True
        turns = it.totals["turns"]
        it.pulse.start()
        it.run(asyncio.sleep(0.01))
        assert it.totals["turns"] == turns + 1  # the run edge's own
        assert handles(it.loop) == {}


def test_stop_in_a_callback() -> None:
    with watched() as it:

        async def main() -> None:
            await asyncio.sleep(0.01)
            assert it.pulse.stop() is True
            await asyncio.sleep(0.01)

        it.run(main())
        assert handles(it.loop) == {}


def test_start_and_stop_on_another_thread_under_traffic() -> None:
    it = Watched()
    it.pulse.stop()
    with traffic(it.loop):
        for i in range(200):
            pulse = core.UvPulse(it.slot, it.loop)
            pulse.start()
            if i % 4:
                core.uv_look(it.slot, MS)
            assert pulse.stop() is True
    it.run(asyncio.sleep(0.01))
    assert handles(it.loop) == {}
    it.loop.close()
    assert it.loop.is_closed()


def test_stop_while_the_loop_is_stuck() -> None:
    it = Watched()

    async def main() -> None:
        started.set()
        time.sleep(1.5)
        await asyncio.sleep(0.05)

    started = threading.Event()
    thread = threading.Thread(target=lambda: it.run(main()))
    thread.start()
    assert started.wait(10)
    assert it.pulse.stop() is False
    assert core.uv_look(it.slot, MS)[1] == 0
    thread.join()
    assert it.pulse.stop() is True
    assert handles(it.loop) == {}
    it.loop.close()


def test_stop_as_the_run_ends() -> None:
    for _ in range(100):
        it = Watched()
        thread = threading.Thread(target=lambda it=it: it.run(asyncio.sleep(0.0005)))
        thread.start()
        assert it.pulse.stop() is True
        thread.join()
        it.loop.close()
        assert it.loop.is_closed()
        assert it.pulse.stop() is True


def no_stop(it: Watched) -> None:
    it.loop.close()


def stop_before_running(it: Watched) -> None:
    it.pulse.stop()
    it.run(asyncio.sleep(0))
    it.loop.close()


def stop_then_close_at_once(it: Watched) -> None:
    it.run(asyncio.sleep(0.01))
    it.pulse.stop()
    it.loop.close()


def stop_after_close(it: Watched) -> None:
    it.loop.close()
    assert it.pulse.stop() is True
    it.loop.close()


@pytest.mark.parametrize("end", [no_stop, stop_before_running, stop_then_close_at_once, stop_after_close])
def test_closes_without_complaint(end: Callable[[Watched], None]) -> None:
    complaints: list[object] = []
    it = Watched()
    it.loop.set_exception_handler(lambda _, context: complaints.append(context))
    end(it)
    assert it.loop.is_closed()
    assert complaints == []


def test_a_close_that_gets_around_us_closes_all_the_same() -> None:
    complaints: list[str] = []
    it = Watched()
    it.run(asyncio.sleep(0.01))
    it.loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    type(it.loop).close(it.loop)
    assert it.loop.is_closed()
    assert len(set(complaints)) == 1 <= len(complaints) <= 2  # one for each handle
    assert core.uv_look(it.slot, MS)[1] == 0
    it.retire()
    assert it.pulse.stop() is True


# --- the process around it ---


def test_exit_with_the_loop_open() -> None:
    run_program("""
        import asyncio, threading
        from loopwatch import _testcore
        from uv_loops import Watched
        it = Watched()
        it.run(asyncio.sleep(0.01))
        threading.Thread(target=_testcore.uv_look, args=(it.slot, 10**8), daemon=True).start()
    """)


def test_exit_while_the_loop_runs_in_a_daemon_thread() -> None:
    run_program("""
        import asyncio, threading, time
        from uv_loops import Watched
        it = Watched()
        threading.Thread(target=it.loop.run_forever, daemon=True).start()
        time.sleep(0.1)
    """)


def test_runner_with_a_loop_factory() -> None:
    run_program("""
        import asyncio
        from uv_loops import Watched
        made = []
        def factory():
            made.append(Watched())
            return made[0].loop
        async def main():
            await asyncio.sleep(0.01)
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())
            runner.run(main())
        assert made[0].loop.is_closed()
        assert made[0].totals["turns"] > 4
    """)


def test_a_fork_does_not_inherit_libuvs_mutex() -> None:
    """Beside a thread that is in libuv's mutex all the time; the child's loops go on, old and new."""
    run_program("""
        import asyncio, os, sys, threading
        from loopwatch import _testcore
        from uv_loops import watched

        def new_loop():
            with watched() as other:
                other.run(asyncio.sleep(0.001))
                went_well.append(other.totals["turns"] > 0)

        async def child(it):
            thread = threading.Thread(target=new_loop)
            thread.start()
            thread.join()
            well = went_well == [True]
            if sys.version_info < (3, 14):  # from then on a task does not go on in a forked child
                await asyncio.sleep(0)  # the inherited loop's turn ends here
                well = well and not _testcore.is_forked(it.slot) and it.pulse.stop()
            os._exit(0 if well else 1)

        went_well = []

        async def main(it):
            looker.start()
            for i in range(50):
                pid = os.fork()
                if not pid:
                    await child(it)
                assert os.waitpid(pid, 0)[1] == 0
                await asyncio.sleep(0.001)

        with watched() as it:
            looker = threading.Thread(target=_testcore.uv_look, args=(it.slot, 10**9))
            it.run(main(it))
            looker.join()
    """)


def test_stop_in_the_child_of_another_thread() -> None:
    """The thread that the loop ran on does not exist there: there is nobody to wait for."""
    run_program("""
        import asyncio, os, threading, time
        from uv_loops import watched
        with watched() as it:
            thread = threading.Thread(target=it.run, args=(asyncio.sleep(0.5),))
            thread.start()
            time.sleep(0.1)
            pid = os.fork()
            if not pid:
                begin = time.monotonic()
                assert it.pulse.stop() is False
                os._exit(time.monotonic() - begin > 0.5)
            assert os.waitpid(pid, 0)[1] == 0
            thread.join()
    """)
