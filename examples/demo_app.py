"""A web service with a mistake in it, requests from another process, and what loopwatch says (`make demo`).

One handler calls a client library that blocks, three functions down. Whoever asks for anything else at that
moment waits too, and nothing in the service's own log says why.

Exit status 0 if the stall was reported.
"""

import asyncio
import contextlib
import http.client
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import loopwatch

HOST = "127.0.0.1"


# --- the service ---


def fetch_exchange_rates() -> dict[str, float]:
    time.sleep(0.4)  # stands for a blocking call: `requests.get`, a database driver, a file on a slow disk
    return {"EUR": 1.0, "CHF": 0.94}


def price_in(currency: str) -> float:
    return 120 * fetch_exchange_rates()[currency]


async def make_invoice() -> str:
    return f"CHF {price_in('CHF'):.2f}\n"


async def invoice(request: Request) -> PlainTextResponse:
    customer = request.path_params["customer"]
    return PlainTextResponse(await asyncio.create_task(make_invoice(), name=f"invoice for {customer}"))


async def health(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok\n")


stalls: list[loopwatch.Stall] = []


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    with loopwatch.install(threshold=0.1, on_stall=stalls.append) as watch:
        yield
        print(f"The whole run, by pulse {watch.pulse!r} and capture {watch.capture!r}: {watch.lag!r}")


app = Starlette(routes=[Route("/health", health), Route("/invoice/{customer}", invoice)], lifespan=lifespan)


# --- its visitors, in a process of their own ---


def get(port: int, path: str) -> float:
    """Seconds until the answer."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    connection.request("GET", path)
    connection.getresponse().read()
    connection.close()
    return time.perf_counter() - began


def visit(port: int) -> None:
    get(port, "/health")
    usual = min(get(port, "/health") for _ in range(20))
    customer = threading.Thread(target=get, args=(port, "/invoice/ada"))
    customer.start()
    worst = 0.0
    while customer.is_alive():
        worst = max(worst, get(port, "/health"))
        time.sleep(0.01)
    customer.join()
    print(f"GET /health took {usual * 1e3:.1f} ms, and {worst * 1e3:.0f} ms while an invoice was made.")


# --- both together ---


def serve() -> None:
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, loop="asyncio", log_config=None))

        def send_visitors() -> None:
            try:
                subprocess.run([sys.executable, __file__, str(port)], check=True, timeout=60)
            finally:
                server.should_exit = True

        visitors = threading.Thread(target=send_visitors, name="visitors")
        visitors.start()
        server.run(sockets=[listening])
        visitors.join()


def main() -> int:
    if sys.argv[1:]:
        visit(int(sys.argv[1]))
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    serve()
    if not stalls:
        print("loopwatch reported no stall", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
