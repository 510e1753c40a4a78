"""E7: a gateway that streams, and what each request sets up on the loop.

40 clients hold streams, a chunk every 20 ms; a new request comes every 250 ms on average. The naive form
builds three TLS contexts, parses a tokenizer of 200,000 entries, compresses 1 MB that cannot be compressed
and scores 400 candidates in Python, for each request, on the loop. The fixed form builds contexts and
tokenizer once, leaves the body as it is, scores in C, and freezes the heap.

The program times its own parts (`loopwatch.step`'s places, and a clock in gc.callbacks), so what loopwatch
says of the same stalls can be held against it: each part within 10 points. Beside it, what one stack at the
threshold would have blamed.

    python benchmarks/experiments/e7_gateway.py [--short] [--form naive | fixed]
"""

from __future__ import annotations

import asyncio
import gc
import json
import operator
import os
import random
import socket
import ssl
import statistics
import subprocess
import sys
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import begin, parser, share, verdict

import loopwatch
from loopwatch import Stall, Verdict

CLIENTS, CHUNK_EVERY = 40, 0.02
REQUESTS, REQUEST_EVERY = 75, 0.25
THRESHOLD = 0.05
ENTRIES, CANDIDATES, DIMENSIONS = 200_000, 400, 480
HEAP = 500_000
REMEMBERED = 10_000
POINTS = 0.10
FUNCTIONS = {
    "TLS": "build_contexts",
    "tokenizer": "load_tokenizer",
    "compression": "compress",
    "scoring": "score",
}
PARTS = [*FUNCTIONS, "GC"]
PUBLISHED = {
    "stalls per request": ("0.67 to 0.69", "0"),
    "median stall, ms": ("95 to 116", "none"),
    "worst stall, ms": ("261 to 277", "none"),
    "loop time in stalls, %": ("33 to 36", "0"),
    "chunks over 50 ms late, %": ("7.4 to 7.8", "0"),
    "slowest 1 % of chunks, ms late": ("227 to 249", "11 to 19"),
    "median set-up, ms": ("81 to 90", "11 to 16"),
    "worst GC pause, ms": ("176 to 191", "3 to 4"),
}


# --- the work of a request ----------------------------------------------------------------------------------


def build_contexts() -> list[ssl.SSLContext]:
    contexts = []
    for _ in range(3):
        contexts.append(ssl.create_default_context())  # noqa: PERF401 - a frame of its own on 3.11
    return contexts


def load_tokenizer(text: str) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = json.loads(text)
    return tokens


def compress(body: bytes) -> bytes:
    return zlib.compress(body)


def score(candidates: list[list[float]], query: list[float]) -> int:
    best, winner = float("-inf"), 0
    for index, candidate in enumerate(candidates):
        total = 0.0
        for a, b in zip(candidate, query, strict=True):
            total += a * b
        if total > best:
            best, winner = total, index
    return winner


def score_in_c(candidates: list[list[float]], query: list[float]) -> int:
    """What NumPy is for; here without it."""
    totals = [sum(map(operator.mul, candidate, query)) for candidate in candidates]
    return totals.index(max(totals))


# --- the program's own clocks -------------------------------------------------------------------------------


@dataclass
class Request:
    """What one request's set-up took, by the program's own clocks."""

    began_at: float = 0.0
    """By the wall clock, as a stall's begin."""
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))


class Collections:
    """How long the collector ran, and its longest pause; CPU time, since what the machine takes is not its."""

    def __init__(self) -> None:
        self.total = self.worst = self._began = self._began_cpu = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began, self._began_cpu = time.perf_counter(), time.thread_time()
            return
        self.total += time.thread_time() - self._began_cpu
        self.worst = max(self.worst, time.perf_counter() - self._began)


# --- the server ---------------------------------------------------------------------------------------------


class Gateway:
    def __init__(self, fixed: bool) -> None:
        chance = random.Random(3)
        self.fixed = fixed
        self.collections = Collections()
        self.requests: list[Request] = []
        self.body = chance.randbytes(1_000_000)
        self.tokens = json.dumps({f"token{number}": number for number in range(ENTRIES)})
        self.query = [chance.random() for _ in range(DIMENSIONS)]
        self.candidates = [[chance.random() for _ in range(DIMENSIONS)] for _ in range(CANDIDATES)]
        self.heap = [[number, {}] for number in range(HEAP)]
        self.history = deque[object](maxlen=6)
        self.serving: set[asyncio.Task[None]] = set()
        if fixed:
            self.contexts, self.tokenizer = build_contexts(), load_tokenizer(self.tokens)
            gc.collect()
            gc.freeze()
        gc.callbacks.append(self.collections)

    @contextmanager
    def part(self, request: Request, name: str) -> Iterator[None]:
        began, collected = time.perf_counter(), self.collections.total
        with loopwatch.step(name):
            yield
        request.parts[name] += time.perf_counter() - began - (self.collections.total - collected)

    def set_up(self) -> int:
        request = Request(began_at=time.time())
        began, collected = time.perf_counter(), self.collections.total
        winner = self.set_up_fixed() if self.fixed else self.set_up_naively(request)
        self.remember()
        request.seconds = time.perf_counter() - began
        request.parts["GC"] = self.collections.total - collected
        self.requests.append(request)
        return winner

    def remember(self) -> None:
        """What a service keeps of a request: it makes the collector come back."""
        self.history.append([{"candidate": number, "tags": []} for number in range(REMEMBERED)])

    def set_up_fixed(self) -> int:
        return score_in_c(self.candidates, self.query)

    def set_up_naively(self, request: Request) -> int:
        with self.part(request, "TLS"):
            contexts = build_contexts()
        with self.part(request, "tokenizer"):
            tokenizer = load_tokenizer(self.tokens)
        with self.part(request, "compression"):
            body = compress(self.body)
        with self.part(request, "scoring"):
            winner = score(self.candidates, self.query)
        self.history.append((contexts, len(tokenizer), len(body)))
        return winner

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            if await reader.readline() == b"request\n":
                writer.write(b"%d\n" % self.set_up())
            else:
                await self.stream(writer)
            await writer.drain()
        except ConnectionError:
            pass  # the client has gone
        finally:
            writer.close()

    async def stream(self, writer: asyncio.StreamWriter) -> None:
        due = time.monotonic()
        while not writer.is_closing():
            writer.write(b"%f\n" % due)
            await writer.drain()
            due += CHUNK_EVERY
            await asyncio.sleep(due - time.monotonic())


# --- the clients: a process of their own --------------------------------------------------------------------


async def hold_stream(port: int, lateness: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"stream\n")
    while line := await reader.readline():
        lateness.append(time.monotonic() - float(line))


async def request(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"request\n")
    await reader.readline()
    writer.close()


async def clients(port: int, requests: int) -> None:
    chance, lateness = random.Random(5), list[float]()
    streams = [asyncio.create_task(hold_stream(port, lateness)) for _ in range(CLIENTS)]
    await asyncio.sleep(0.3)
    pending = []
    for _ in range(requests):
        await asyncio.sleep(chance.expovariate(1 / REQUEST_EVERY))
        pending.append(asyncio.create_task(request(port)))
    await asyncio.gather(*pending)
    for stream in streams:
        stream.cancel()
    print(json.dumps(lateness))


# --- one run ------------------------------------------------------------------------------------------------


@dataclass
class Run:
    gateway: Gateway
    stalls: list[Stall]
    lateness: list[float]
    seconds: float


async def serve_clients(gateway: Gateway, requests: int) -> list[float]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=2 * CLIENTS)
    port = listener.getsockname()[1]
    command = [sys.executable, __file__, "--clients", str(port), str(requests)]
    server = await asyncio.start_server(gateway.serve, sock=listener)
    client = subprocess.Popen(command, stdout=subprocess.PIPE)
    output, _ = await asyncio.to_thread(client.communicate)
    await asyncio.wait(gateway.serving)
    server.close()
    lateness: list[float] = json.loads(output)
    return lateness


def run(fixed: bool, requests: int) -> Run:
    gateway, stalls = Gateway(fixed), list[Stall]()
    began = time.perf_counter()
    lateness = loopwatch.run(
        serve_clients(gateway, requests),
        threshold=THRESHOLD,
        log=False,
        hang_after=None,
        on_stall=stalls.append,
    )
    gc.callbacks.remove(gateway.collections)
    gc.unfreeze()
    return Run(gateway, stalls, lateness, time.perf_counter() - began)


def figures(run: Run) -> dict[str, float]:
    """Of the stalls in which a request was set up; those of the machine alone are not the gateway's."""
    durations = [stall.duration * 1e3 for stall, _ in matched(run)]
    setups = [request.seconds * 1e3 for request in run.gateway.requests]
    late = [seconds * 1e3 for seconds in run.lateness]
    return {
        "stalls per request": len(durations) / len(setups),
        "median stall, ms": statistics.median(durations) if durations else 0.0,
        "worst stall, ms": max(durations, default=0.0),
        "loop time in stalls, %": sum(durations) / run.seconds / 10,
        "chunks over 50 ms late, %": sum(ms > 50 for ms in late) / len(late) * 100,
        "slowest 1 % of chunks, ms late": share(late, 0.99),
        "median set-up, ms": statistics.median(setups),
        "worst GC pause, ms": run.gateway.collections.worst * 1e3,
    }


def matched(run: Run) -> list[tuple[Stall, list[Request]]]:
    """Each stall with the requests that were set up in it."""
    pairs = []
    for stall in run.stalls:
        begin = stall.started_at.timestamp()
        requests = [
            request
            for request in run.gateway.requests
            if begin <= request.began_at + request.seconds / 2 <= begin + stall.duration
        ]
        if requests:
            pairs.append((stall, requests))
    return pairs


# --- what loopwatch said ------------------------------------------------------------------------------------


def blamed(stall: Stall) -> dict[str, float]:
    """Seconds of each part: GC by the breakdown, the others by the samples that are not of a collection."""
    seconds = {"GC": stall.breakdown.get(Verdict.GC, 0.0)}
    for name, function in FUNCTIONS.items():
        seconds[name] = sum(
            sample.weight
            for sample in stall.samples
            if sample.verdict != Verdict.GC and any(frame.qualname == function for frame in sample.frames)
        )
    return seconds


def at_threshold(stall: Stall) -> str | None:
    """What a watchdog with one stack would blame."""
    for sample in stall.samples:
        if sample.offset >= THRESHOLD:
            names = {frame.qualname for frame in sample.frames}
            return next((name for name, function in FUNCTIONS.items() if function in names), None)
    return None


def compare(run: Run) -> None:
    pairs = matched(run)
    if not pairs:
        print("  no stall: nothing to blame\n")
        return
    true, said, sites, steps = (defaultdict[str, float](float) for _ in range(4))
    for stall, requests in pairs:
        for name in PARTS:
            true[name] += sum(request.parts[name] for request in requests)
            said[name] += blamed(stall)[name]
            steps[name] += stall.steps.get(name, 0.0)
        for name, function in FUNCTIONS.items():
            sites[name] += sum(s for frame, s in stall.sites if frame.qualname == function)
    blames = [at_threshold(stall) for stall, _ in pairs]
    true_total = sum(request.seconds for _, requests in pairs for request in requests)
    said_total = sum(stall.duration for stall, _ in pairs)
    print(f"  {'share of the stalls, %':24}{'true':>8}{'said':>8}{'sites':>8}{'steps':>8}{'one stack':>11}")
    off = 0.0
    for name in PARTS:
        row = [true[name] / true_total, said[name] / said_total]
        off = max(off, abs(row[0] - row[1]))
        row += [sites[name] / said_total, steps[name] / said_total, blames.count(name) / len(blames)]
        print(
            f"  {name:24}" + "".join(f"{100 * x:{w}.1f}" for x, w in zip(row, (8, 8, 8, 8, 11), strict=True))
        )
    print(f"  off by {100 * off:.1f} points at most (10): {verdict(off <= POINTS)}")
    print("  sites and steps contain the collections that began in them\n")
    worst = max((stall for stall, _ in pairs), key=lambda stall: stall.duration)
    print(f"  the worst: {worst.summary}\n")


def main() -> int:
    if sys.argv[1:2] == ["--clients"]:
        asyncio.run(clients(int(sys.argv[2]), int(sys.argv[3])))
        return 0
    arguments = parser(__doc__)
    arguments.add_argument("--form", choices=("naive", "fixed"), help="that one only")
    args = begin(arguments)
    requests = 12 if args.short else REQUESTS
    for index, form in enumerate(("naive", "fixed")):
        if args.form in (None, form):
            done = run(form == "fixed", requests)
            print(f"{form}, {requests} requests: {os.getloadavg()[0]:.2f} load")
            print(f"  {'':34}{'published':>14}{'here':>10}")
            for name, value in figures(done).items():
                print(f"  {name:34}{PUBLISHED[name][index]:>14}{value:10.2f}")
            compare(done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
