"""What the status page says while a loop is stalled, and afterwards; and the pages of forked children."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import full_build, next_fact, run_program, started, wait_until
from statuspages import current, service

import loopwatch
from loopwatch import _page
from loopwatch.cli import _pages


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "page"
    assert not list(tmp_path.glob(".page*")), "a half-made page was left"


@pytest.mark.parametrize("kind", ["turn", "uv", "heartbeat"])
def test_a_stall_is_seen_while_the_gil_is_held(page: Path, kind: str) -> None:
    if kind == "uv":
        pytest.importorskip("uvloop")
    with started(service("hold_gil(20)", kind=kind), page) as program:
        next_fact(program)
        stall = wait_until(lambda: current(page))
        again = wait_until(lambda: (now := current(page)) and now["seen"] > stall["seen"] and now)
        assert again["id"] == stall["id"]
        if not loopwatch._core.PORTABLE:
            assert stall["function"] == "hold_gil"
            assert "in main\n" in again["stack"]
        [loop] = _page.read(page).body["loops"]
        assert (loop["thread"], loop["phase"]) == ("MainThread", "busy")


TOLD = {
    "turn": {"turns", "idle"} if loopwatch._core.PORTABLE else {"turns", "idle", "gil_wait"},
    "wrapped": {"turns", "idle"},
    "uv": {"turns", "idle"},
    "heartbeat": set(),
}


@pytest.mark.parametrize("kind", TOLD)
def test_what_the_pulse_cannot_tell_is_left_out(page: Path, kind: str) -> None:
    if kind == "uv":
        pytest.importorskip("uvloop")
    source = service("await asyncio.sleep(20)", kind=kind)
    if kind == "heartbeat" or (kind == "uv" and loopwatch._core.PORTABLE):
        kind, source = "heartbeat", source.replace("status=", "pulse='heartbeat', status=")
    with started(source, page) as program:
        next_fact(program)
        loop = wait_until(
            lambda: next((it for it in _page.read(page).body.get("loops", ()) if "recent" in it), None)
        )
        for said in (loop, loop["recent"]):
            assert {"turns", "idle", "gil_wait"} & set(said) == TOLD[kind]


def test_what_has_ended_is_summed_up(page: Path) -> None:
    with started(service("block(0.3); await asyncio.sleep(20)"), page) as program:
        pid = next_fact(program)["pid"]
        [stall] = wait_until(lambda: _page.read(page).body.get("stalls"))
        assert stall["end"] - stall["begin"] > 0.29e9
        if not loopwatch._core.PORTABLE:
            assert (stall["verdict"], stall["function"]) == ("blocking-call", "block")
            assert stall["file"].endswith("scenario.py")
        # A second or more: the loop's waits count from then on.
        [loop] = wait_until(
            lambda: (loops := _page.read(page).body["loops"])[0]["phase"] == "waiting" and loops
        )
        assert loop["stalls"] == 1
        assert loop["recent"]["worst"] > 0.29e9
        assert 0.2e9 < loop["recent"]["waiting_p99"] < loop["recent"]["worst"]
        assert _page.read(page).pid == pid == program.pid


def test_an_idle_process_writes_nothing(page: Path) -> None:
    with started(service("await asyncio.sleep(20)"), page) as program:
        next_fact(program)
        time.sleep(1)  # the last change is written a quarter of a second later
        before = page.stat().st_mtime_ns
        time.sleep(1.5)
        assert page.stat().st_mtime_ns == before


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_leaves_its_page(page: Path, kill: signal.Signals) -> None:
    with started(service("hold_gil(20)"), page) as program:
        next_fact(program)
        wait_until(lambda: current(page))
        assert _page.read(page).alive
        program.send_signal(kill)
        program.wait()
        left = _page.read(page)
        assert not left.alive
        assert current(page) is not None
        if not loopwatch._core.PORTABLE:
            assert "in hold_gil\n" in left.body["current"][0]["stack"]


def test_a_clean_process_takes_its_page_along(page: Path) -> None:
    said = run_program(service("say(there=os.path.exists(sys.argv[1]))"), page).check()
    assert said["there"]
    assert not page.exists()


@full_build
def test_a_reader_never_sees_half_of_a_page(page: Path) -> None:
    """Written four times a second and read all the time, with a stack that changes."""
    deep = """\
def deep(n):
        return deep(n - 1) if n else time.sleep(0.02)

    def busy():
        end = time.monotonic() + 20
        while time.monotonic() < end:
            deep(int(time.monotonic() * 1000) % 90)
    """
    with started(service("busy()", deep), page) as program:
        next_fact(program)
        wait_until(lambda: current(page))
        end, seen = time.monotonic() + 2, set()
        while time.monotonic() < end:
            seen.add(_page.read(page).body["at"])
        assert len(seen) >= 3


def test_a_full_executor_is_told(page: Path) -> None:
    body = """
        from concurrent.futures import ThreadPoolExecutor
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        await asyncio.gather(*(asyncio.to_thread(block, 0.3) for _ in range(3)))
        await asyncio.sleep(20)
"""
    with started(service(body.strip()), page) as program:
        next_fact(program)
        [executor] = wait_until(lambda: _page.read(page).body.get("executors"))
        assert (executor["workers"], executor["busy"]) == (1, 1)
        assert executor["waited"] >= 0.05
        text = "\n".join(_pages.report(_page.read(page)))
        assert "was full" in text
        assert "1 of 1 workers busy" in text


def test_names_are_data(page: Path) -> None:
    """Quotes, control characters, other alphabets and what is no UTF-8 at all."""
    name = 'a"\\b\x1b[31m\té漢\udcff'
    functions = f"""
    async def work():
        asyncio.current_task().set_name({name!r})
        hold_gil(20)
    """.replace("\n    ", "\n        ")
    with started(service("await asyncio.create_task(work())", functions.strip()), page) as program:
        next_fact(program)
        stall = wait_until(lambda: current(page))
        if not loopwatch._core.PORTABLE:
            assert stall["task"].startswith('a"\\b\x1b[31m\té漢')


def test_a_redacted_watch_tells_no_task_name(page: Path) -> None:
    source = service("hold_gil(20)").replace("log=False,", "log=False, redact=lambda text: '-',")
    with started(source, page) as program:
        next_fact(program)
        assert wait_until(lambda: current(page)).get("task", "") == ""


# --- forks ---


FORKING = """
    import asyncio, os, sys
    import loopwatch
    from scenario import hold_gil, new_loop, say

    async def parent():
        await asyncio.sleep(20)

    async def child():
        hold_gil(20)

    loop = new_loop()
    loopwatch.install(loop, threshold=0.05, log=False, dump_to=False, status=sys.argv[1])
    main = parent if os.fork() else child
    say(pid=os.getpid())
    loop.run_until_complete(main())
"""


def test_a_child_has_a_page_of_its_own(page: Path) -> None:
    with started(FORKING, page) as program:
        child = wait_until(lambda: [found for found in page.parent.glob("page.*") if current(found)])[0]
        try:
            assert _page.read(child).pid == int(child.suffix[1:]) != program.pid
            assert _page.read(page).pid == program.pid
            assert current(page) is None
        finally:
            os.kill(_page.read(child).pid, signal.SIGKILL)


def test_a_child_that_runs_no_loop_leaves_the_page_alone(page: Path) -> None:
    body = "pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0); say(there=os.path.exists(sys.argv[1]))"
    assert run_program(service(body), page).check()["there"]
    body = "import subprocess; subprocess.run([sys.executable, '-c', '']); say(there=os.path.exists(sys.argv[1]))"
    assert run_program(service(body), page).check()["there"]
