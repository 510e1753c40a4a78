"""Requests to an ASGI application in this process, and a connection to a server on another thread's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


def scope_of(path: str, method: str = "GET", kind: str = "http", **more: Any) -> dict[str, Any]:
    scope: dict[str, Any] = {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"here")],
        "server": ("here", 80),
        "client": ("there", 1234),
        "scheme": "http" if kind == "http" else "ws",
    }
    if kind == "websocket":
        del scope["method"]
        scope["subprotocols"] = []
    return scope | more


async def ask(app: Callable[..., Any], path: str, method: str = "GET", **more: Any) -> int:
    """One request without a body; the status."""
    statuses: list[int] = []
    asked = False
    finished = asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await finished.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        elif not message.get("more_body"):
            finished.set()

    await app(scope_of(path, method, **more), receive, send)
    return statuses[0] if statuses else 0


async def converse(app: Callable[..., Any], path: str, *texts: str, **more: Any) -> list[str]:
    """One websocket: connects, sends each text, disconnects when each is answered; the answers."""
    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    queue.put_nowait({"type": "websocket.connect"})
    for text in texts:
        queue.put_nowait({"type": "websocket.receive", "text": text})
    answers: list[str] = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            answers.append(message["text"])
            if len(answers) == len(texts):
                queue.put_nowait({"type": "websocket.disconnect", "code": 1000})

    await app(scope_of(path, kind="websocket", **more), queue.get, send)
    return answers
