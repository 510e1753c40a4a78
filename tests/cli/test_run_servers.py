"""loopwatch run on real servers: every worker is watched, and they answer and end as without it."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_run import LOOPWATCH, environment, write

from loopwatch import report

APP = """
import asyncio, os, time

def block():
    time.sleep(0.25)

async def asgi(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["path"] == "/slow":
        block()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"""
AIOHTTP = """
import os, sys, time
from aiohttp import web

def block():
    time.sleep(0.25)

async def answer(request):
    if request.path == "/slow":
        block()
    return web.Response(text=str(os.getpid()))

app = web.Application()
app.router.add_get("/slow", answer)
app.router.add_get("/", answer)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""

SERVERS = {
    "uvicorn": ["-m", "uvicorn", "app:asgi", "--port", "{port}"],
    "uvicorn, 2 workers": ["-m", "uvicorn", "app:asgi", "--port", "{port}", "--workers", "2"],
    "hypercorn": ["-m", "hypercorn", "app:asgi", "--bind", "127.0.0.1:{port}"],
    "gunicorn": [
        "-m", "gunicorn", "app:asgi", "-k", "uvicorn_worker.UvicornWorker", "-w", "2", "-b", "127.0.0.1:{port}"
    ],
    "aiohttp": ["aiohttp_app.py", "{port}"],
}  # fmt: skip
PACKAGES = {"uvicorn, 2 workers": "uvicorn", "gunicorn": "uvicorn_worker"}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


@contextlib.contextmanager
def serving(
    tmp_path: Path, line: list[str], port: int, output: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[str]]:
    """`output`: a pipe that nobody reads is full after some thousand requests, and the server waits."""
    program = subprocess.Popen(
        line,
        env=environment(tmp_path),
        cwd=tmp_path,
        text=True,
        stdout=output,
        stderr=output,
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError):
                get(port, "/")
                break
            assert program.poll() is None, program.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield program
    finally:
        if program.poll() is None:
            program.kill()
        program.communicate()


def neutral(text: str) -> str:
    """Without what differs from one run to the next, sorted: workers write as they come."""
    lines = [re.sub(r"\d+", "N", line) for line in text.splitlines()]
    return "\n".join(sorted(line for line in lines if line))


@pytest.mark.parametrize("server", SERVERS)
def test_a_server(tmp_path: Path, server: str) -> None:
    pytest.importorskip(PACKAGES.get(server, server))
    write(tmp_path, APP, "app.py")
    write(tmp_path, AIOHTTP, "aiohttp_app.py")
    ended = []
    for prefix in ([sys.executable], [*LOOPWATCH, "run", "--report", "seen.jsonl"]):
        port = free_port()
        line = [*prefix, *(part.format(port=port) for part in SERVERS[server])]
        with serving(tmp_path, line, port) as program:
            blocked = [get(port, "/slow") for _ in range(3)]
            program.send_signal(signal.SIGTERM)
            out, error = program.communicate(timeout=30)
        own, _, summary = error.partition("loopwatch: ")
        ended.append((program.returncode, neutral(out), neutral(own)))
    assert ended[0] == ended[1]
    assert len(blocked) == 3
    assert re.search(r"\b3 x blocking-call in block \(\w+\.py:\d+\)", summary), summary
    workers = 2 if server in ("uvicorn, 2 workers", "gunicorn") else 1
    watched = re.match(r"(\d+) event loops? w", summary)
    assert watched, summary
    assert int(watched[1]) >= workers
    made = report.load(tmp_path / "seen.jsonl")
    assert not made.problems
    answered = [lane for lane in made.lanes if lane.stalls]
    assert sum(len(lane.stalls) for lane in answered) >= 3
    for lane in answered:
        assert lane.busy >= sum(stall.duration for stall in lane.stalls) / 2, "however the server ends"
    for page in (tmp_path / "runtime").rglob("*.page"):  # of a worker that was blocked when it was killed
        assert f"loopwatch post {page.stem}\n" in summary
