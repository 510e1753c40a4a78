"""A watched program ends as it would unwatched: same status, same standard error, and soon.

Each phase of each program is run twice, watched and under LOOPWATCH=0, which is the same program unwatched.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import pytest
from programs import Finished, run_program

SOON = 3.0
"""More seconds than the unwatched program takes: uninstalling waits 2 s at most for a delivery or
for a beat to stop. The rest is for a busy machine."""

PRELUDE = """
import asyncio, atexit, os, signal, sys, threading, time
import loopwatch
from scenario import block, blocked_once, new_loop, quiet, say, wait_until
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
"""


def both(source: str) -> Finished:
    """The watched one, compared with the other."""
    source = PRELUDE + dedent(source)
    with ThreadPoolExecutor() as side_by_side:
        runs = [side_by_side.submit(run_program, source, env=env) for env in ({"LOOPWATCH": "0"}, {})]
    plain, watched = (run.result() for run in runs)
    assert watched.returncode == plain.returncode
    assert watched.stderr == plain.stderr
    assert watched.seconds < plain.seconds + SOON
    return watched


@pytest.mark.parametrize("kind", ["turn", "wrapped", "heartbeat", "uv"])
def test_normal_without_uninstall(kind: str) -> None:
    if kind == "uv":
        pytest.importorskip("uvloop")
    program = both(f"""
        from scenario import pulse_of
        async def main():
            loopwatch.install(**quiet(pulse=pulse_of("{kind}")))
            await asyncio.sleep(0.02)
            block()
        loop = new_loop("{kind}")
        loop.run_until_complete(main())
        loop.close()
    """)
    assert (program.returncode, program.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["turn", "uv"])
def test_loop_never_closed(kind: str) -> None:
    if kind == "uv":
        pytest.importorskip("uvloop")
    program = both(f"""
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)
        loop = new_loop("{kind}")
        loopwatch.install(loop, **quiet())
        loop.run_until_complete(blocked_once())
    """)
    assert (program.returncode, program.stderr) == (0, "")


def test_sys_exit_in_a_callback() -> None:
    program = both("""
        async def main():
            loopwatch.install(**quiet())
            asyncio.get_running_loop().call_soon(sys.exit, 5)
            await asyncio.sleep(10)
        asyncio.run(main())
    """)
    assert program.returncode == 5


def test_os_exit_while_it_runs_and_while_it_stalls() -> None:
    program = both("""
        async def main():
            loopwatch.install(**quiet())
            threading.Timer(0.15, os._exit, (6,)).start()
            await asyncio.sleep(0.02)
            block(5)
        asyncio.run(main())
    """)
    assert program.returncode == 6
    assert program.stderr == ""


@pytest.mark.parametrize("how", ["asyncio.run(main())", "loop = new_loop(); loop.run_until_complete(main())"])
def test_exception_out_of_main(how: str) -> None:
    program = both(f"""
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)
        async def main():
            loopwatch.install(**quiet())
            await asyncio.sleep(0.02)
            block()
            raise LookupError("as it would")
        {how}
    """)
    assert program.returncode == 1
    assert program.stderr.endswith("LookupError: as it would\n")


def test_keyboard_interrupt_during_a_stall() -> None:
    program = both("""
        async def main():
            loopwatch.install(**quiet())
            await asyncio.sleep(0.02)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            block(1)
            await asyncio.sleep(10)
        asyncio.run(main())
    """)
    assert program.returncode == -signal.SIGINT
    assert program.stderr.endswith("KeyboardInterrupt\n")


def test_keyboard_interrupt_while_it_waits() -> None:
    program = both("""
        async def main():
            loopwatch.install(**quiet())
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            await asyncio.sleep(10)
        asyncio.run(main())
    """)
    assert program.returncode == -signal.SIGINT


def test_sigterm_kills_as_ever() -> None:
    program = both("""
        async def main():
            loopwatch.install(**quiet())
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            await asyncio.sleep(0.02)
            block(5)
        asyncio.run(main())
    """)
    assert program.returncode == -signal.SIGTERM
    assert program.stderr == ""


def test_daemon_thread_whose_loop_runs_on() -> None:
    program = both("""
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)
        def serve():
            async def main():
                loopwatch.install(**quiet())
                while True:
                    await asyncio.sleep(0.001)
            asyncio.run(main())
        threading.Thread(target=serve, daemon=True).start()
        time.sleep(0.3)
    """)
    assert (program.returncode, program.stderr) == (0, "")


def test_daemon_thread_whose_loop_is_stalled() -> None:
    """The stall is never going to end; exit does not wait for it."""
    program = both("""
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)
        def serve():
            async def main():
                loopwatch.install(**quiet(hang_after=0.1))
                await asyncio.sleep(0.02)
                block(60)
            asyncio.run(main())
        threading.Thread(target=serve, daemon=True).start()
        time.sleep(0.5)
    """)
    assert (program.returncode, program.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["heartbeat", "uv"])
def test_daemon_thread_stalled_with_a_beat_that_only_it_can_stop(kind: str) -> None:
    if kind == "uv":
        pytest.importorskip("uvloop")
    program = both(f"""
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)
        def serve():
            async def main():
                loopwatch.install(**quiet(pulse="{kind}"))
                await asyncio.sleep(0.02)
                block(60)
            new_loop("{kind}").run_until_complete(main())
        threading.Thread(target=serve, daemon=True).start()
        time.sleep(0.5)
    """)
    assert (program.returncode, program.stderr) == (0, "")


def test_stall_that_ends_with_the_program_is_delivered() -> None:
    program = both("""
        async def main():
            loopwatch.install(**quiet(on_stall=lambda stall: say(seen=stall.culprit.qualname)))
            await asyncio.sleep(0.02)
            block()
        loop = new_loop()
        loop.run_until_complete(main())
        atexit.register(loop.close)  # runs after ours: what is delivered at exit does not depend on close
        sys.exit(3)
    """)
    assert program.returncode == 3
    assert program.facts == {"seen": "block"}


def test_order_of_atexit() -> None:
    """Handlers of the program run in their order, watched or not, and may use loops."""
    program = both("""
        def late():
            loop = new_loop()
            loopwatch.install(loop, **quiet())
            loop.run_until_complete(blocked_once(0.15))
            loop.close()
            print("late", flush=True)
        atexit.register(late)
        async def main():
            loopwatch.install(**quiet())
            await asyncio.sleep(0.02)
        atexit.register(print, "early", flush=True)
        loop = new_loop()
        loop.run_until_complete(main())
        atexit.register(print, "first", flush=True)
        loop.close()
    """)
    assert program.stdout == "first\nearly\nlate\n"
    assert (program.returncode, program.stderr) == (0, "")


def test_stuck_callback_does_not_keep_the_program() -> None:
    """The reporter is a daemon thread; a sink that never returns costs the 2 s of delivery, no more."""
    program = both("""
        async def main():
            watch = loopwatch.install(**quiet(on_stall=lambda stall: time.sleep(60)))
            await asyncio.sleep(0.02)
            block()
        asyncio.run(main())
    """)
    assert (program.returncode, program.stderr) == (0, "")


def test_thread_that_still_runs_when_main_is_done() -> None:
    """Not a daemon: the interpreter waits for it, and it is watched until it ends."""
    program = both("""
        def serve():
            async def main():
                loopwatch.install(**quiet(on_stall=lambda stall: say(seen=stall.culprit.qualname)))
                await asyncio.sleep(0.3)
                block()
            asyncio.run(main())
        threading.Thread(target=serve).start()
    """)
    assert (program.returncode, program.stderr) == (0, "")
    assert program.facts == {"seen": "block"}


def test_thread_whose_loop_ends_when_no_thread_can_start_any_more() -> None:
    """Nothing of ours makes it start one, as closing a default executor would."""
    program = both("""
        def serve():
            async def main():
                loopwatch.install(**quiet())
                begun.set()
                await asyncio.sleep(0.3)
            asyncio.run(main())
        begun = threading.Event()
        threading.Thread(target=serve).start()
        begun.wait()
    """)
    assert (program.returncode, program.stderr) == (0, "")


def test_held_gil_while_the_program_ends() -> None:
    program = both("""
        import ctypes
        async def main():
            loopwatch.install(**quiet())
            await asyncio.sleep(0.02)
            threading.Thread(target=ctypes.PyDLL(None).usleep, args=(600_000,), daemon=True).start()
            block(0.15)
        asyncio.run(main())
    """)
    assert (program.returncode, program.stderr) == (0, "")
