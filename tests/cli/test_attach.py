"""loopwatch attach and detach: a live server is watched from the next safe point on, and reasons where it cannot be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import LIBRARY, next_fact, started
from test_run import environment, write
from test_run_servers import APP, free_port, serving

remote = pytest.mark.skipif(not hasattr(sys, "remote_exec"), reason="sys.remote_exec came with Python 3.14")


def loopwatch(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "loopwatch", *map(str, arguments)]
    kept = {**os.environ, "PYTHONPATH": str(LIBRARY), **env}
    return subprocess.run(line, env=kept, capture_output=True, text=True, timeout=60, check=False)


def attach_to(
    line: list[str], *, env: dict[str, str] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """What attach says of a program that says when it is there."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=env) as program:
        assert program.stdout is not None
        program.stdout.readline()
        done = loopwatch("attach", program.pid, **variables)
        program.kill()
    return done


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Process id and port."""
    pytest.importorskip("uvicorn")
    write(tmp_path, APP, "app.py")
    port = free_port()
    line = [sys.executable, "-m", "uvicorn", "app:asgi", "--port", str(port)]
    with serving(tmp_path, line, port, output=subprocess.DEVNULL) as program:
        yield program.pid, port


class Load:
    """Requests one after another, from two threads."""

    def __init__(self, port: int) -> None:
        self.done = self.failed = 0
        self._port, self._stop = port, threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(2)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not self._stop.wait(0.005):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/", timeout=20) as answer:
                    answer.read()
                self.done += 1
            except OSError:
                self.failed += 1


@remote
def test_a_server_under_load(server: tuple[int, int], tmp_path: Path) -> None:
    pid, port = server
    report = tmp_path / "stalls.jsonl"
    with Load(port) as load:
        time.sleep(0.5)
        attached = loopwatch("attach", pid, "--report", report)
        assert attached.returncode == 0, attached
        assert "1 event loop watched" in attached.stdout
        again = loopwatch("attach", pid)
        assert again.returncode == 1
        assert "watched already" in again.stderr
        assert "loopwatch detach ends that" in again.stderr
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/slow", timeout=20) as answer:
            answer.read()
        deadline = time.monotonic() + 10
        while '"qualname":"block"' not in report.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "block (app.py:5)" in loopwatch("post", pid).stdout
        detached = loopwatch("detach", pid)
        assert (detached.returncode, detached.stdout) == (0, f"process {pid}: detached\n"), detached
        assert loopwatch("post", pid).returncode == 1, "the page went too"
        threads = [task.read_text().strip() for task in Path(f"/proc/{pid}/task").glob("*/comm")]
        assert "loopwatch" not in threads
        nothing = loopwatch("detach", pid)
        assert nothing.returncode == 1
        assert "nothing was attached" in nothing.stderr
        begun = load.done
        time.sleep(0.5)
        assert load.done > begun
    assert load.failed == 0
    stalls = [json.loads(line) for line in report.read_text().splitlines()]
    assert any(line["kind"] == "stall" and line["pid"] == pid for line in stalls)


TARGET = "import os, time; from scenario import say; say(pid=os.getpid()); {body}"


@remote
def test_a_target_that_does_not_run_python(tmp_path: Path) -> None:
    with started(TARGET.format(body="time.sleep(20)")) as program:
        next_fact(program)
        done = loopwatch("attach", program.pid, "--wait", "1.5s", TMPDIR=str(tmp_path))
        assert done.returncode == 1
        assert "has not run Python on its main thread for 1.5 s" in done.stderr
        assert "waiting for the main thread" in done.stderr
        assert list(tmp_path.iterdir()), "the script stays, for when it does"
        program.kill()
        program.wait()
    with subprocess.Popen(["/bin/sleep", "20"]) as other:
        loopwatch("attach", other.pid, TMPDIR=str(tmp_path))
        other.kill()
    assert not list(tmp_path.iterdir()), "the next call cleans up"


@remote
@pytest.mark.parametrize("spoils", ["sys.path.clear()", "sys.modules['threading'] = None"])
def test_a_target_that_can_import_nothing(tmp_path: Path, spoils: str) -> None:
    body = f"import sys; {spoils}; sys.modules.pop('json', None)\nwhile True: time.sleep(0.01)"
    with started(TARGET.format(body=body)) as program:
        next_fact(program)
        done = loopwatch("attach", program.pid, TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "loopwatch cannot be imported in process" in done.stderr
    assert not list(tmp_path.iterdir())


DROPPED = """
    import asyncio, os, time
    from scenario import say
    async def main():
        say(pid=os.getpid())
        while True:
            await asyncio.sleep(0.01)
    os.setgid(65534), os.setuid(65534)
    asyncio.run(main())
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root reaches into another user's process")


@remote
@as_root
def test_a_process_that_was_root_once() -> None:
    """/proc says that it is root's still, but what it may write is its new user's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as there:  # not pytest's, which is root's alone
        Path(there).chmod(0o1777)
        with started(DROPPED) as program:
            next_fact(program)
            done = loopwatch("attach", program.pid, TMPDIR=there)
            assert (done.returncode, done.stderr) == (0, ""), done
            assert "1 event loop watched" in done.stdout
            assert loopwatch("detach", program.pid, TMPDIR=there).returncode == 0
            assert not list(Path(there).iterdir())


@remote
@as_root
def test_a_process_that_sees_other_files(tmp_path: Path) -> None:
    source = "import os, sys, time; os.chroot(sys.argv[1]); print(flush=True)\nwhile True: time.sleep(0.01)"
    done = attach_to([sys.executable, "-c", source, str(tmp_path)], TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "it has other files" in done.stderr
    assert not list(tmp_path.iterdir())


@remote
def test_remote_debugging_switched_off() -> None:
    line = [
        sys.executable,
        "-X",
        "disable-remote-debug",
        "-c",
        "import time; print(flush=True); time.sleep(20)",
    ]
    done = attach_to(line)
    assert done.returncode == 1
    assert "switched off" in done.stderr, done


@remote
def test_loopwatch_is_not_importable_there(tmp_path: Path) -> None:
    line = [sys.executable, "-I", "-S", "-c", "import time; print(flush=True)\nwhile True: time.sleep(0.01)"]
    done = attach_to(line, env=environment(tmp_path))
    assert done.returncode == 1
    assert "cannot be imported" in done.stderr, done


@pytest.mark.parametrize("command", ["attach", "detach"])
def test_no_such_process(command: str) -> None:
    done = loopwatch(command, 999999999)
    assert (done.returncode, done.stderr) == (1, f"loopwatch {command}: there is no process 999999999\n")


MASTER = """
    import asyncio, os, sys, time
    from scenario import say

    async def work():
        while True:
            await asyncio.sleep(0.01)

    worker = os.fork()
    if worker:
        say(worker=worker)
        while True:
            time.sleep(0.01)
    asyncio.run(work())
"""


@remote
def test_a_master_without_a_loop_names_its_workers() -> None:
    with started(MASTER) as program:
        worker = next_fact(program)["worker"]
        try:
            attached = loopwatch("attach", program.pid)
            assert attached.returncode == 0, attached
            assert "no event loop was found" in attached.stdout
            assert f"\n  {worker}  " in attached.stdout
            post = loopwatch("post", program.pid).stdout
            assert "no loop is watched" in post
            assert f"that are Python: {worker}\n" in post
            assert "1 event loop watched" in loopwatch("attach", worker).stdout
            assert f"process {worker} runs" in loopwatch("post", program.pid).stdout
        finally:
            os.kill(worker, signal.SIGKILL)


def test_what_is_no_python() -> None:
    with subprocess.Popen(["/bin/sleep", "20"]) as program:
        done = loopwatch("attach", program.pid)
        program.kill()
    assert done.returncode == 1
    assert "does not look like a Python process" in done.stderr
    assert "-m loopwatch" not in done.stderr


@pytest.mark.skipif(hasattr(sys, "remote_exec"), reason="of Pythons that cannot do it")
def test_an_older_python_says_what_is_needed() -> None:
    done = loopwatch("attach", os.getpid())
    assert done.returncode == 1
    assert "of 3.14 or newer" in done.stderr
    assert f"runs Python 3.{sys.version_info[1]}" in done.stderr
    assert "-m loopwatch" not in done.stderr


@pytest.mark.parametrize("argument", ["python3.14", "renamed"])
def test_a_newer_python_says_what_reaches_it(tmp_path: Path, argument: str) -> None:
    """By its interpreter, also where it gives itself another name."""
    link = tmp_path / "python3.99"
    link.write_bytes(Path("/bin/sleep").read_bytes())
    link.chmod(0o755)
    with subprocess.Popen([argument, "20"], executable=link) as program:
        done = loopwatch("attach", program.pid)
        program.kill()
    assert done.returncode == 1
    assert "runs Python 3.99" in done.stderr
    name = argument if argument.startswith("python") else link
    assert f"{name} -m loopwatch attach {program.pid}" in done.stderr


@pytest.mark.parametrize("name", ["notes.txt", "seen.html", "seen.speedscope.json", "jsonl"])
def test_only_json_lines_are_appended_to(tmp_path: Path, name: str) -> None:
    done = loopwatch("attach", os.getpid(), "--report", tmp_path / name)
    assert done.returncode == 2
    assert "must end in .jsonl" in done.stderr
    assert not (tmp_path / name).exists()
