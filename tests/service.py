"""A small service that is watched and exported: for tests with a real Prometheus and real pre-fork servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator

import prometheus_client
from prometheus_client import multiprocess
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

import loopwatch
from loopwatch import prometheus

THRESHOLD = 0.1
BLOCK = 0.25

prometheus.collector(every=0.2)


def read_a_slow_disk() -> None:
    time.sleep(BLOCK)


async def slow(_: Request) -> PlainTextResponse:
    read_a_slow_disk()
    return PlainTextResponse("slow\n")


async def item(request: Request) -> JSONResponse:
    await asyncio.to_thread(time.sleep, 0.01)
    return JSONResponse({"id": request.path_params["id"], "pid": os.getpid()})


async def metrics(_: Request) -> PlainTextResponse:
    registry = prometheus_client.REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = prometheus_client.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
    began = time.perf_counter()
    text = prometheus_client.generate_latest(registry)
    seconds = time.perf_counter() - began
    return PlainTextResponse(
        text, media_type="text/plain; version=0.0.4", headers={"x-seconds": f"{seconds:.6f}"}
    )


@contextlib.asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    with loopwatch.install(threshold=THRESHOLD, log=False):
        yield


app = Starlette(
    routes=[Route("/slow", slow), Route("/items/{id}", item), Route("/metrics", metrics)], lifespan=lifespan
)
with contextlib.suppress(ImportError):
    from loopwatch.asgi import LoopwatchMiddleware

    app.add_middleware(LoopwatchMiddleware)
