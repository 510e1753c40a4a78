"""install_all() in a process that has more in it: tools, callbacks, forks, interpreters, threads, an end."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from everywhere import PRELUDE, need_uvloop, run
from programs import run_program


def test_a_second_time_is_refused() -> None:
    facts = run("""
        watch_all()
        try:
            watch_all()
        except RuntimeError as problem:
            said = str(problem)
        loopwatch.uninstall_all()
        watch_all()
        loopwatch.uninstall_all()
        say(said=said)
    """)
    assert "uninstall_all" in facts["said"]


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ("threshold=0", "ValueError", "threshold"),
        ("threshold='1'", "TypeError", "threshold"),
        ("on_stall=1", "TypeError", "on_stall"),
        ("pulse='x'", "ValueError", "pulse"),
        ("dump_to='/nowhere/at/all'", "OSError", "nowhere"),
        ("bogus=1", "TypeError", "bogus"),
    ],
)
def test_options_are_checked_at_once(options: str, error: str, word: str) -> None:
    facts = run(f"""
        try:
            loopwatch.install_all({options})
        except {error} as problem:
            say(text=str(problem))
        asyncio.run(asyncio.sleep(0))
        say(left=our_threads())
    """)
    assert word in facts["text"]
    assert facts["left"] == []


def test_a_pulse_that_a_loop_cannot_do_is_another_one_there() -> None:
    need_uvloop()
    facts = run("""
        import uvloop
        from loopwatch import _everywhere
        pulses = []
        _everywhere.watch_all(quiet(pulse="turn"), origin="a test",
                              on_watch=lambda watch: pulses.append(watch.pulse))
        asyncio.run(asyncio.sleep(0))
        uvloop.run(asyncio.sleep(0))
        _everywhere.unwatch_all("a test")
        say(pulses=pulses, uv="heartbeat" if _core.PORTABLE else "uv")
    """)
    assert facts["pulses"] == ["turn", facts["uv"]]


def test_a_tool_and_the_program_both() -> None:
    """The program's install_all() is in force over a tool's, and the tool's comes back."""
    facts = run("""
        from loopwatch import _everywhere
        tool = []
        settings = quiet(on_stall=tool.append)
        _everywhere.watch_all(settings, origin="a tool")
        watch_all()
        asyncio.run(blocked_once())
        loopwatch.uninstall_all()
        first = culprits(seen), culprits(tool)
        asyncio.run(blocked_once())
        _everywhere.unwatch_all("a tool")
        say(first=first, second=[culprits(seen), culprits(tool)], left=our_threads())
    """)
    assert facts["first"] == [["block"], []]
    assert facts["second"] == [["block"], ["block"]]
    assert facts["left"] == []


def test_what_fails_in_the_hook_is_not_the_programs() -> None:
    facts = run("""
        from loopwatch import _everywhere
        import logging
        logged = []
        class Handler(logging.Handler):
            def emit(self, record):
                logged.append(repr(record.exc_info[1]))
        logging.getLogger("loopwatch").addHandler(Handler())
        def fails(watch):
            raise OSError("of a tool")
        layer = _everywhere.watch_all(quiet(), origin="a tool", on_watch=fails)
        result = asyncio.run(asyncio.sleep(0, "done"))
        asyncio.run(asyncio.sleep(0))
        _everywhere.unwatch_all("a tool")
        say(result=result, logged=logged, failures=layer.failures)
    """)
    assert facts == {"result": "done", "logged": ["OSError('of a tool')"], "failures": 2}


def test_an_interruption_in_the_hook_ends_the_run_in_order() -> None:
    facts = run("""
        from loopwatch import _everywhere
        def interrupted(watch):
            raise KeyboardInterrupt
        _everywhere.watch_all(quiet(), origin="a tool", on_watch=interrupted)
        loop = new_loop()
        try:
            loop.run_forever()
        except KeyboardInterrupt:
            say(interrupted=True)
        _everywhere.unwatch_all("a tool")
        again = loop.run_until_complete(asyncio.sleep(0, "again"))
        loop.close()
        say(again=again, running=asyncio._get_running_loop())
    """)
    assert facts == {"interrupted": True, "again": "again", "running": None}


def test_a_loop_of_a_stall_callback_is_not_watched() -> None:
    facts = run("""
        def ask(stall):
            seen.append(stall)
            asyncio.run(blocked_once())
        watch_all(on_stall=ask)
        asyncio.run(blocked_once())
        settle()
        loopwatch.uninstall_all()
        say(culprits=culprits(seen))
    """)
    assert facts["culprits"] == ["block"]


def test_a_forked_child_goes_on() -> None:
    facts = run("""
        watch_all()
        asyncio.run(asyncio.sleep(0))
        pid = os.fork()
        if pid == 0:
            asyncio.run(blocked_once())
            settle()
            loopwatch.uninstall_all()
            say(child=culprits(seen), threads=our_threads())
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        asyncio.run(blocked_once())
        loopwatch.uninstall_all()
        say(status=status, parent=culprits(seen))
    """)
    assert facts == {"child": ["block"], "threads": [], "status": 0, "parent": ["block"]}


INTERPRETERS = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


def test_a_subinterpreter_is_left_as_it_is() -> None:
    facts = run(f"""
        import {INTERPRETERS} as interpreters
        watch_all()
        ident = interpreters.create()
        interpreters.run_string(ident, "import asyncio, os, time")
        lines = ["async def main():", "  time.sleep(0.2)", "  await asyncio.sleep(0)", "asyncio.run(main())"]
        interpreters.run_string(ident, chr(10).join(lines))
        interpreters.run_string(ident, "import json; os.write(1, json.dumps(dict(ran=True)).encode() + bytes([10]))")
        interpreters.destroy(ident)
        asyncio.run(blocked_once())
        loopwatch.uninstall_all()
        say(culprits=culprits(seen))
    """)
    assert facts == {"ran": True, "culprits": ["block"]}


def test_asyncio_in_python_only(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['_asyncio'] = None\n")
    facts = run(
        """
        watch_all()
        asyncio.run(blocked_once())
        loop = new_loop()
        loop.run_until_complete(asyncio.sleep(0))
        watch, = registry().watches()
        running = watch.slot.running
        loop.close()
        loopwatch.uninstall_all()
        say(culprits=culprits(seen), running=running, stock=asyncio.events._set_running_loop.__module__)
        """,
        env={"PYTHONPATH": ":".join([str(tmp_path), *_paths()])},
    )
    assert facts == {"culprits": ["block"], "running": False, "stock": "asyncio.events"}


def _paths() -> list[str]:
    from programs import HERE, LIBRARY

    return [str(LIBRARY), str(HERE)]


def test_switched_off_by_the_environment() -> None:
    facts = run(
        """
        watch_all()
        asyncio.run(blocked_once())
        left = our_threads()
        loopwatch.uninstall_all()
        say(left=left, seen=len(seen))
        """,
        env={"LOOPWATCH": "0"},
    )
    assert facts == {"left": [], "seen": 0}


def test_the_end_of_the_process_with_everything_on() -> None:
    ended = run_program(
        PRELUDE
        + dedent("""
        watch_all(on_stall=lambda stall: say(culprit=stall.culprit.qualname))
        import atexit
        atexit.register(lambda: asyncio.run(asyncio.sleep(0)))
        loop = new_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run(blocked_once())
        """)
    )
    assert ended.check() == {"culprit": "block"}


def test_many_threads_run_loops_while_it_is_put_and_taken() -> None:
    facts = run("""
        stop = threading.Event()
        def loops():
            while not stop.is_set():
                loop = new_loop()
                loop.run_until_complete(asyncio.sleep(0))
                loop.close()
        def toggles():
            for _ in range(30):
                loopwatch.install_all(**quiet())
                time.sleep(0.003)
                loopwatch.uninstall_all()
            stop.set()
        threads = [threading.Thread(target=loops) for _ in range(3)]
        for thread in threads: thread.start()
        toggles()
        for thread in threads: thread.join()
        say(left=our_threads(), watches=len(registry().watches()), held=registry().held)
    """)
    assert facts == {"left": [], "watches": 0, "held": False}
