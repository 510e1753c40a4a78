"""E9: the GIL in a service, and what a request costs.

An ASGI application serves light requests (an await of 5 ms) beside heavy ones that parse JSON for 22 ms: in the
handler, in a thread, in a pool of processes. `json.loads` holds the GIL for its whole call, so that a thread does
not help the light ones much; a process does. The median does not show any of it.

The CPU time of the loop's thread by request says how many of them one process can serve; that of the process
would have the workers in it.

    python benchmarks/experiments/e9_gil_service.py [--short] [--form inline | thread | process]
"""

from __future__ import annotations

import asyncio
import collections
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import begin, parser, share, verdict

import loopwatch
from loopwatch import RouteStats, Stall, Verdict
from loopwatch.asgi import LoopwatchMiddleware

LIGHT_WAIT, HEAVY_SECONDS = 0.005, 0.022
LIGHT_CLIENTS, HEAVY_EVERY, SECONDS = 10, 0.05, 20.0
THRESHOLD = 0.01
FORMS = ("inline", "thread", "process")
PUBLISHED = {"inline": "55.3", "thread": "46.9", "process": "6.1"}
EXPECTED = {"inline": {Verdict.NATIVE}, "thread": {Verdict.GIL}}
MACHINE = {Verdict.NOT_SCHEDULED, Verdict.SUSPENDED}
"""Stalls that the machine makes are no part of the comparison."""
LIGHT, HEAVY = "GET /light", "GET /heavy/{size}"

App = Callable[..., Awaitable[None]]


# --- the application ----------------------------------------------------------------------------------------


def parse(text: str) -> int:
    return len(json.loads(text))


class Service:
    """Without a framework, so that what is measured is the work; it names its routes itself."""

    def __init__(self, form: str, text: str) -> None:
        self.text = text
        self.pool: ThreadPoolExecutor | ProcessPoolExecutor | None = None
        if form == "thread":
            self.pool = ThreadPoolExecutor(4, thread_name_prefix="parser")
        elif form == "process":
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            self.pool.submit(parse, "[]").result()

    async def __call__(self, scope: dict[str, Any], _receive: Any, send: Any) -> None:
        if scope["path"] == "/light":
            scope["loopwatch.route"] = "/light"
            await asyncio.sleep(LIGHT_WAIT)
        else:
            scope["loopwatch.route"] = "/heavy/{size}"
            if self.pool is None:
                parse(self.text)
            else:
                await asyncio.get_running_loop().run_in_executor(self.pool, parse, self.text)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()


async def ask(app: App, path: str) -> float:
    """Seconds until the answer."""

    async def ignore(_message: Any = None) -> None:
        pass

    began = time.perf_counter()
    await app({"type": "http", "method": "GET", "path": path}, ignore, ignore)
    return time.perf_counter() - began


# --- one run ------------------------------------------------------------------------------------------------


@dataclass
class Run:
    light: list[float] = field(default_factory=list)
    """Milliseconds."""
    stalls: list[Stall] = field(default_factory=list)
    routes: dict[str, RouteStats] = field(default_factory=dict)
    thread_cpu: float = 0.0
    process_cpu: float = 0.0


async def load(app: App, seconds: float, run: Run) -> None:
    """Ten clients ask for light ones, one after the other; a heavy one comes every 50 ms."""
    end = time.monotonic() + seconds

    async def light() -> None:
        while time.monotonic() < end:
            run.light.append(await ask(app, "/light") * 1e3)

    async def heavy() -> None:
        while time.monotonic() < end:
            await asyncio.gather(ask(app, "/heavy/1"), asyncio.sleep(HEAVY_EVERY))

    await asyncio.gather(heavy(), *(light() for _ in range(LIGHT_CLIENTS)))


def serve(form: str, text: str, seconds: float) -> Run:
    run, service = Run(), Service(form, text)
    began, began_process = time.thread_time(), time.process_time()
    with loopwatch.Runner(
        threshold=THRESHOLD, log=False, dump_to=False, on_stall=run.stalls.append
    ) as runner:
        runner.run(load(LoopwatchMiddleware(service), seconds, run))
        watch = runner.watch
    run.thread_cpu, run.process_cpu = time.thread_time() - began, time.process_time() - began_process
    assert watch is not None
    run.routes = dict(watch.routes)
    service.close()
    return run


def document() -> str:
    """As much JSON as takes 22 ms here."""
    entries = 10_000
    while True:
        text = json.dumps([{"id": number, "name": f"name {number}", "tags": []} for number in range(entries)])
        best = min(timed(text) for _ in range(5))
        if best >= HEAVY_SECONDS * 0.9:
            return text
        entries = round(entries * max(1.1, HEAVY_SECONDS / best))


def timed(text: str) -> float:
    began = time.thread_time()
    parse(text)
    return time.thread_time() - began


# --- what loopwatch said ------------------------------------------------------------------------------------


def report(form: str, run: Run) -> None:
    p99 = share(run.light, 0.99)
    print(f"{form}: light requests p50 {statistics.median(run.light):.1f} ms (published 5.1), "
          f"p99 {p99:.1f} ms (published {PUBLISHED[form]}), {len(run.light)} of them")  # fmt: skip
    said = collections.Counter(stall.verdict for stall in run.stalls)
    seen = ", ".join(f"{cause} {count}" for cause, count in said.most_common())
    print(f"  stalls over {THRESHOLD * 1e3:.0f} ms: {seen or 'none'}")
    own = [stall for stall in run.stalls if stall.verdict not in MACHINE]
    if form in EXPECTED:
        right = [stall for stall in own if stall.verdict in EXPECTED[form]]
        met = len(right) >= 0.9 * len(own) > 0
        print(
            f"  {len(right)} of the {len(own)} that the program made are {min(EXPECTED[form])}: {verdict(met)}"
        )
        blame(form, right)
    for name in (LIGHT, HEAVY):
        route = run.routes[name]
        assert route.cpu_per_request
        assert route.ceiling
        print(f"  {name:18} {route.count:6} requests, {route.cpu_per_request * 1e3:7.3f} ms CPU and "
              f"{route.busy / route.count * 1e3:7.3f} ms of the loop each, ceiling {route.ceiling:7.0f}/s, "
              f"worst stall caused {route.worst_caused * 1e3:5.1f} ms, "
              f"suffered {route.worst_suffered * 1e3:5.1f} ms")  # fmt: skip
    counted = sum(route.cpu for route in run.routes.values())
    print(f"  CPU: {counted:.2f} s in requests, {run.thread_cpu:.2f} s of the loop's thread, "
          f"{run.process_cpu:.2f} s of the process")  # fmt: skip
    print(flush=True)


def blame(form: str, stalls: list[Stall]) -> None:
    if not stalls:
        return
    places = collections.Counter(stall.culprit.qualname for stall in stalls if stall.culprit)
    if form == "thread":
        holders = collections.Counter(stall.holder.name.partition("_")[0] for stall in stalls if stall.holder)
        print(f"    holder: {dict(holders.most_common(3))}, where: {dict(places.most_common(3))}")
    else:
        labels = collections.Counter(stall.labels.get("route", "none") for stall in stalls)
        print(f"    where: {dict(places.most_common(3))}, routes: {dict(labels.most_common(3))}")
    worst = max(stalls, key=lambda stall: stall.duration)
    print(f"    the worst: {worst.summary}")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--form", choices=FORMS, help="that one only")
    args = begin(arguments)
    text, p99 = document(), {}
    best = min(timed(text) for _ in range(5))
    print(f"{len(text) / 1e6:.1f} MB of JSON take {best * 1e3:.0f} ms of CPU time\n")
    for form in FORMS:
        if args.form in (None, form):
            run = serve(form, text, 2.0 if args.short else SECONDS)
            p99[form] = share(run.light, 0.99)
            report(form, run)
    if len(p99) == len(FORMS):
        gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        if gil:
            met = min(p99["inline"], p99["thread"]) > 2 * p99["process"]
            print(f"inline and in a thread the light ones wait, beside a process they do not: {verdict(met)}")
        else:
            met = p99["thread"] < (p99["inline"] + p99["process"]) / 2
            print(f"without a GIL a thread is nearer to a process than to inline: {verdict(met)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
