"""What counting a request costs: a step, a request that does nothing, and a request of a real server.

    python benchmarks/requests.py [--short] [--loop uvloop]

All in pairs, without and with the middleware, on one watched loop; CPU time of the loop's thread. The steps are
suspensions of a coroutine that does nothing else. The request that does nothing is an application called as a
server calls it, which answers in two messages. The server is uvicorn with a Starlette application of one route;
a client in another process sends requests over one connection, the next when the last is answered.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from common import apart, begin, interval, loops, parser, spread

import loopwatch
from loopwatch import _core
from loopwatch.asgi import LoopwatchMiddleware

STEPS, CALLS, REQUESTS = 20_000, 5_000, 400  # of a round
PROCESSES, PAIRS = 4, 20

App = Callable[..., Any]


class Suspend:
    def __await__(self) -> Any:
        yield


SUSPEND = Suspend()


async def suspend(times: int) -> None:
    for _ in range(times):
        await SUSPEND


async def hello(scope: Any, _receive: Any, send: Any) -> None:
    scope["loopwatch.route"] = "/hello"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def swallow(_message: Any) -> None:
    pass


# --- the arms -----------------------------------------------------------------------------------------------


async def steps(counted: bool) -> None:
    coroutine = suspend(STEPS)
    request = _core.Request({}, lambda _scope: None)
    request.route = _core.Route(1)
    for _ in _core.Stepper(request, coroutine) if counted else coroutine.__await__():
        pass


async def calls(counted: bool) -> None:
    app: App = LoopwatchMiddleware(hello) if counted else hello
    for _ in range(CALLS):
        await app({"type": "http", "method": "GET", "path": "/hello"}, swallow, swallow)


class Servers:
    """The same application without and with the middleware, each on a port of its own; and the client."""

    async def start(self) -> None:
        made = [await self.serve(counted) for counted in (False, True)]
        command = [sys.executable, __file__, "--client", *map(str, made)]
        pipe = asyncio.subprocess.PIPE
        self.client = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        await self.wait()

    async def wait(self) -> None:
        assert self.client.stdout is not None
        await self.client.stdout.readline()

    async def serve(self, counted: bool) -> int:
        import uvicorn
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        async def answer(_request: Any) -> PlainTextResponse:
            return PlainTextResponse("hello")

        app = Starlette(routes=[Route("/hello/{name}", answer)])
        if counted:
            app.add_middleware(LoopwatchMiddleware)
        config = uvicorn.Config(app, log_level="error", lifespan="off")
        config.load()
        state = uvicorn.Server(config).server_state
        protocol: Any = config.http_protocol_class
        server = await asyncio.get_running_loop().create_server(
            lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def __call__(self, counted: bool) -> None:
        assert self.client.stdin is not None
        self.client.stdin.write(b"%d %d\n" % (counted, REQUESTS))
        await self.wait()

    async def stop(self) -> None:
        assert self.client.stdin is not None
        self.client.stdin.close()
        await self.client.wait()


def client(ports: list[int]) -> None:
    """Reads "ARM REQUESTS" lines."""
    arms = [socket.create_connection(("127.0.0.1", port)) for port in ports]
    print("connected", flush=True)
    for line in sys.stdin:
        arm, requests = map(int, line.split())
        for _ in range(requests):
            arms[arm].send(b"GET /hello/you HTTP/1.1\r\nHost: here\r\n\r\n")
            answer = b""
            while not answer.endswith(b"hello"):
                answer += arms[arm].recv(4096)
        print("answered", flush=True)


# --- pairs --------------------------------------------------------------------------------------------------


async def compare(arm: Callable[[bool], Coroutine[Any, Any, None]], pairs: int) -> list[list[int]]:
    """[nanoseconds without, with] for each pair; two to get warm."""
    costs = []
    for i in range(-2, pairs):
        cost = [0, 0]
        for counted in (False, True) if i % 2 else (True, False):
            began = time.thread_time_ns()
            await arm(counted)
            cost[counted] = time.thread_time_ns() - began
        if i >= 0:
            costs.append(cost)
    return costs


async def measure(pairs: int) -> dict[str, list[list[int]]]:
    servers = Servers()
    await servers.start()
    gc.collect()
    gc.freeze()
    found = {
        "step": await compare(steps, pairs),
        "call": await compare(calls, pairs),
        "server": await compare(servers, pairs),
    }
    await servers.stop()
    return found


def report(name: str, short: bool) -> None:
    found: dict[str, list[list[int]]] = {}
    for _ in range(1 if short else PROCESSES):
        for arm, costs in apart("--loop", name, "--measure", 3 if short else PAIRS).items():
            found.setdefault(arm, []).extend(costs)
    print(name)
    for arm, each, what in (
        ("step", STEPS, "a step"),
        ("call", CALLS, "a request that does nothing"),
        ("server", REQUESTS, "a request of uvicorn and Starlette"),
    ):
        added = spread([(counted - plain) / each / 1e3 for plain, counted in found[arm]])
        plain = spread([plain / each / 1e3 for plain, _ in found[arm]])
        print(f"  {what:36} {plain.text(2)} us; counting adds {added.text(2)} us")
    ratios = [plain / counted for plain, counted in found["server"]]
    low, high = interval(ratios)
    print(f"  requests per CPU second, to uncounted {spread(ratios).text()}, "
          f"95 % interval {low:.3f} to {high:.3f}", flush=True)  # fmt: skip


def main() -> int:
    arguments = parser(__doc__)
    loops.add_argument(arguments)
    arguments.add_argument("--client", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    early = arguments.parse_args()
    if early.client:
        client(early.client)
        return 0
    if early.measure:
        loop = loops.new(early.loop)
        loopwatch.install(loop, log=False)
        print(json.dumps(loop.run_until_complete(measure(early.measure))))
        loop.close()
        return 0
    args = begin(arguments)
    for name in loops.wanted(args):
        report(name, args.short)
    return 0


if __name__ == "__main__":
    sys.exit(main())
