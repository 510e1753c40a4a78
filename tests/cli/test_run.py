"""loopwatch run: the program is what it is without it, and every loop of it is watched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from programs import HERE, LIBRARY, wait_until

from loopwatch import _core, _page
from loopwatch.cli import _pages

LOOPWATCH = [sys.executable, "-m", "loopwatch"]


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOPWATCH", "PYTHON"))}
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    path = os.pathsep.join((str(LIBRARY), str(HERE)))
    return {
        **kept,
        "PYTHONPATH": path,
        "XDG_RUNTIME_DIR": str(runtime),
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
    }


def finish(tmp_path: Path, *line: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line,
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )


def write(tmp_path: Path, source: str, name: str = "program.py") -> str:
    (tmp_path / name).write_text(textwrap.dedent(source), encoding="utf-8")
    return name


def both(tmp_path: Path, *program: str, **more: Any) -> tuple[Any, Any, str]:
    """The program without and with loopwatch; and the summary, which is taken off the latter's standard error."""
    bare = finish(tmp_path, sys.executable, *program, **more)
    watched = finish(tmp_path, *LOOPWATCH, "run", *program, **more)
    error, _, summary = watched.stderr.partition("loopwatch: ")
    watched.stderr = error
    return bare, watched, summary


def same(bare: Any, watched: Any) -> bool:
    return (bare.returncode, bare.stdout, bare.stderr) == (watched.returncode, watched.stdout, watched.stderr)


SHAPES = {
    "status": "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)",
    "argv": "import sys; print(sys.argv, __name__, __file__, sys.path[0], __spec__, sys.flags.no_site)",
    "traceback": "import asyncio\nasync def main(): raise ValueError('so')\nasyncio.run(main())",
    "exit text": "import sys; sys.exit('bye')",
    "main": "import __main__, sys; print(sorted(vars(__main__))); print(sys.modules['__main__'].__file__)",
    "stdin": "print(input())",
    "path": "import sys; print([entry for entry in sys.path])",
    "killed": "import os, signal; print('x', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT); import time; time.sleep(5)",
    "aborted": "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()",
    "atexit": "import atexit; atexit.register(print, 'last'); print('first')",
    "signals": "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGINT))",
    "multiprocessing": """
        import multiprocessing, os, sys
        def work(n):
            return n * 2, __name__
        if __name__ == "__main__":
            for way in ("spawn", "fork", "forkserver"):
                with multiprocessing.get_context(way).Pool(2) as pool:
                    print(pool.map(work, range(4)))
    """,
    "syntax": "print('",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_program_is_what_it_is(tmp_path: Path, shape: str) -> None:
    if shape == "multiprocessing" and sys.version_info >= (3, 12):
        pytest.skip("forking with threads warns, with our thread or without")
    program = write(tmp_path, SHAPES[shape])
    bare, watched, summary = both(tmp_path, program, "--threshold", "a b", input="typed\n")
    assert same(bare, watched), (bare, watched)
    assert summary.endswith("\n")


def test_a_module(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    write(tmp_path, "", "package/__init__.py")
    write(
        tmp_path, "import sys; print(sys.argv, __name__, __spec__.name, sys.path[0])", "package/__main__.py"
    )
    bare, watched, _ = both(tmp_path, "-m", "package", "-x", "--threshold")
    assert same(bare, watched)
    assert "package.__main__" in bare.stdout


def test_a_command(tmp_path: Path) -> None:
    script = tmp_path / "command"
    script.write_text(f"#!{sys.executable}\nimport sys; print(sys.argv)\n")
    script.chmod(0o755)
    done = finish(tmp_path, *LOOPWATCH, "run", "./command", "-m", "x")
    assert (done.returncode, done.stdout) == (0, "['./command', '-m', 'x']\n")
    assert finish(tmp_path, *LOOPWATCH, "run", "/bin/sh", "-c", "exit 4").returncode == 4


@pytest.mark.parametrize(
    "line", [[], ["no-such-command"], ["--threshold", "x", "a.py"], ["--report", "a.txt", "a.py"]]
)
def test_usage_errors(tmp_path: Path, line: list[str]) -> None:
    done = finish(tmp_path, *LOOPWATCH, "run", *line)
    assert done.returncode == 2
    assert "loopwatch run: " in done.stderr


def test_another_sitecustomize_is_found(tmp_path: Path) -> None:
    write(tmp_path, "print('theirs')", "sitecustomize.py")
    program = write(tmp_path, "import sitecustomize; print(sitecustomize.__file__)")
    line = [*LOOPWATCH, "run", program]
    path = os.pathsep.join((str(tmp_path), str(LIBRARY)))
    done = subprocess.run(
        line,
        env=environment(tmp_path, PYTHONPATH=path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(tmp_path / "sitecustomize.py") in done.stdout.splitlines()


def test_a_program_without_a_loop_does_not_import_asyncio(tmp_path: Path) -> None:
    program = write(tmp_path, "import sys; print([n for n in ('asyncio', 'loopwatch') if n in sys.modules])")
    done = finish(tmp_path, *LOOPWATCH, "run", program)
    assert done.stdout == "[]\n"
    assert "no event loop ran" in done.stderr


# --- what is watched ---

LOOPS = {
    "asyncio.run": "asyncio.run(main())",
    "two in threads": """
        other = threading.Thread(target=lambda: asyncio.run(main()))
        other.start(); asyncio.run(main()); other.join()
    """,
    "fork": """
        pid = os.fork()
        asyncio.run(main())
        if pid: os.waitpid(pid, 0)
    """,
    "fork and _exit": """
        pid = os.fork()
        asyncio.run(main())
        if pid: os.waitpid(pid, 0)
        else: os._exit(0)
    """,
    "spawn": """
        if __name__ == "__main__":
            worker = multiprocessing.get_context("spawn").Process(target=work)
            worker.start(); worker.join(); asyncio.run(main())
    """,
    "subprocess": """
        if len(sys.argv) == 1: subprocess.run([sys.executable, __file__, "child"], check=True)
        asyncio.run(main())
    """,
    "uvloop": "import uvloop; uvloop.run(main())",
}
PRELUDE = """
import asyncio, multiprocessing, os, subprocess, sys, threading, time
async def main():
    await asyncio.sleep(0.02)
    time.sleep(0.2)
    await asyncio.sleep(0.02)
def work():
    asyncio.run(main())
"""


@pytest.mark.parametrize("how", LOOPS)
def test_every_loop_is_watched(tmp_path: Path, how: str) -> None:
    if how == "uvloop":
        pytest.importorskip("uvloop")
    program = write(tmp_path, PRELUDE + textwrap.dedent(LOOPS[how]))
    done = finish(tmp_path, *LOOPWATCH, "run", "--report", "seen.jsonl", program)
    assert (done.returncode, done.stdout) == (0, ""), done
    single = how in ("asyncio.run", "uvloop")
    lines = [json.loads(line) for line in (tmp_path / "seen.jsonl").read_text().splitlines()]
    stalls = [line["stall"] for line in lines if line["kind"] == "stall" and not line["stall"]["ongoing"]]
    blocked = [stall for stall in stalls if stall["culprit"]["qualname"] == "main"]
    assert len(blocked) == (1 if single else 2)
    assert ("1 event loop was" if single else "2 event loops were") in done.stderr
    assert f"{1 if single else 2} x blocking-call in main (program.py:5)" in done.stderr


def test_a_report_in_html(tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    done = finish(
        tmp_path, *LOOPWATCH, "run", "--report", "seen.html", write(tmp_path, PRELUDE + "asyncio.run(main())")
    )
    assert done.returncode == 0, done
    text = (tmp_path / "seen.html").read_text(encoding="utf-8")
    assert text.startswith("<!")
    assert "program.py" in text


def test_a_program_that_watches_itself(tmp_path: Path) -> None:
    source = PRELUDE.replace(
        "async def main():", "import loopwatch\nasync def main():\n    loopwatch.install(log=False)"
    )
    done = finish(tmp_path, *LOOPWATCH, "run", write(tmp_path, source + "asyncio.run(main())"))
    assert done.returncode == 0, done
    assert "1 x blocking-call in main" in done.stderr


def test_without_a_place_for_a_page(tmp_path: Path) -> None:
    program = write(tmp_path, PRELUDE + "asyncio.run(main())")
    line = [*LOOPWATCH, "run", program]
    env = environment(tmp_path)
    (tmp_path / "runtime" / "loopwatch").mkdir(mode=0o777)
    (tmp_path / "runtime" / "loopwatch").chmod(0o777)  # anybody's
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "1 x blocking-call in main" in done.stderr


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    program = write(tmp_path, PRELUDE + "asyncio.run(main())")
    line = [*LOOPWATCH, "run", program]
    env = environment(tmp_path, LOOPWATCH="0")
    done = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "no event loop ran" in done.stderr


@pytest.mark.parametrize(
    ("limit", "body", "status"),
    [
        ("100ms", "asyncio.run(main())", 1),
        ("2s", "asyncio.run(main())", 0),
        ("100ms", "asyncio.run(main()); sys.exit(5)", 5),
        ("100ms", "", 0),
    ],
)
def test_fail_over(tmp_path: Path, limit: str, body: str, status: int) -> None:
    program = write(tmp_path, PRELUDE + body)
    done = finish(tmp_path, *LOOPWATCH, "run", "--fail-over", limit, program)
    assert done.returncode == status, done
    assert ("--fail-over" in done.stderr) is (status == 1)


# --- signals, and the end ---


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGTTIN, signal.SIGWINCH]
)
def test_signals_reach_the_program(tmp_path: Path, number: signal.Signals) -> None:
    source = f"""
        import signal, sys, time
        signal.signal({int(number)}, lambda *_: sys.exit(9))
        print("ready", flush=True)
        time.sleep(20)
    """
    line = [*LOOPWATCH, "run", write(tmp_path, source)]
    program = subprocess.Popen(line, env=environment(tmp_path), cwd=tmp_path, stdout=-1, stderr=-1, text=True)
    assert program.stdout is not None
    program.stdout.readline()
    program.send_signal(number)
    program.communicate(timeout=20)
    assert program.returncode == 9


def test_the_program_dies_with_the_one_that_runs_it(tmp_path: Path) -> None:
    line = [
        *LOOPWATCH,
        "run",
        write(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(20)"),
    ]
    program = subprocess.Popen(line, env=environment(tmp_path), cwd=tmp_path, stdout=-1, text=True)
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    program.kill()
    program.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def _page_of(pid: int) -> Path | None:
    try:
        return _pages.page_of(str(pid))
    except FileNotFoundError:
        return None


def test_a_program_that_is_killed_in_a_stall(tmp_path: Path) -> None:
    program = write(
        tmp_path, PRELUDE.replace("0.2)", "20)") + "print(os.getpid(), flush=True)\nasyncio.run(main())"
    )
    line = [*LOOPWATCH, "run", program]
    run = subprocess.Popen(line, env=environment(tmp_path), cwd=tmp_path, stdout=-1, stderr=-1, text=True)
    assert run.stdout is not None
    pid = int(run.stdout.readline())
    page = wait_until(lambda: _page_of(run.pid))
    assert page.name == f"{pid}.page", "of the program, by the number of loopwatch run"
    wait_until(lambda: _page.read(page).body.get("current"))
    os.kill(pid, signal.SIGKILL)
    _, error = run.communicate(timeout=20)
    assert run.returncode == -signal.SIGKILL
    assert "at its end blocked for" in error
    if not _core.PORTABLE:
        assert "in main (program.py:5)" in error
