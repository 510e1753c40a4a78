"""E2: a server, and why a probe belongs outside of it.

A TCP server answers `ping` at once and hashes an upload of 40 MB in 21 rounds of SHA-256, on the loop or in a
thread. Another process pings every 20 ms, from a blocking client; a task of the server's own loop pings too. The
client outside waits for a whole upload; the one inside never sees more than its own turn. loopwatch names the
function, and for how long.

    python benchmarks/experiments/e2_outside_client.py [--short]
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import begin, parser, share, verdict

import loopwatch
from loopwatch import Stall

SIZE, ROUNDS, UPLOADS, PING_EVERY = 40_000_000, 21, 6, 0.02
THRESHOLD = 0.05
AGREES = 0.1
"""Of the worst ping, or 20 ms: what stall and ping may differ by; a ping may come a while into the stall."""
PUBLISHED = {"inline": "0.30, 533, 1297", "to_thread": "0.28, 0.57, 0.60"}
PUBLISHED_INSIDE = 0.35


# --- the server ---------------------------------------------------------------------------------------------


def checksum(body: bytes) -> str:
    digest = hashlib.sha256()
    for _ in range(ROUNDS):
        digest.update(body)
    return digest.hexdigest()


class Server:
    def __init__(self, form: str, size: int) -> None:
        self.form, self.size = form, size
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while line := await reader.readline():
            if line == b"ping\n":
                writer.write(b"pong\n")
            else:
                body = await reader.readexactly(self.size)
                if self.form == "inline":
                    digest = checksum(body)
                else:
                    digest = await asyncio.to_thread(checksum, body)
                writer.write(digest.encode() + b"\n")

    async def close(self) -> None:
        """Their readers come to an end, and so do the clients."""
        for writer in self.writers:
            writer.close()
        await asyncio.sleep(0.2)


async def ping_inside(port: int, times: list[float]) -> None:
    """A client on the server's own loop."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        began = time.perf_counter()
        writer.write(b"ping\n")
        await reader.readline()
        times.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(PING_EVERY)


# --- the clients: processes of their own --------------------------------------------------------------------


def ping_outside(port: int) -> None:
    """Until the server goes; prints milliseconds."""
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            began = time.perf_counter()
            try:
                connection.send(b"ping\n")
                if not connection.recv(16):
                    break
            except ConnectionError:
                break
            times.append((time.perf_counter() - began) * 1e3)
            time.sleep(PING_EVERY)
    print(json.dumps(times))


def upload(port: int, size: int, uploads: int) -> None:
    body = bytes(size)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for _ in range(uploads):
            time.sleep(0.5)
            connection.sendall(b"upload\n")
            connection.sendall(body)
            connection.recv(128)
        time.sleep(0.5)


# --- one run ------------------------------------------------------------------------------------------------


async def run(form: str, size: int, uploads: int) -> tuple[list[float], list[float]]:
    """Milliseconds of the pings, from outside and from inside."""
    server = Server(form, size)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20)
    port = listener.sockets[0].getsockname()[1]
    inside = list[float]()
    own = asyncio.create_task(ping_inside(port, inside))

    async def client(*arguments: object) -> asyncio.subprocess.Process:
        words = [__file__, *map(str, arguments)]
        return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)

    pinging = await client("--ping", port)
    uploading = await client("--upload", port, size, uploads)
    await uploading.wait()
    own.cancel()
    listener.close()
    await server.close()
    output, _ = await pinging.communicate()
    return json.loads(output), inside


def in_checksum(stall: Stall) -> bool:
    return any(frame.qualname == "checksum" for sample in stall.samples for frame in sample.frames)


def report(form: str, outside: list[float], inside: list[float], stalls: list[Stall]) -> None:
    print(f"{form}: {len(outside)} pings from outside, p50 {statistics.median(outside):.2f} ms, "
          f"p99 {share(outside, 0.99):.2f}, max {max(outside):.2f} (published {PUBLISHED[form]}); "
          f"from inside max {max(inside):.2f} (published {PUBLISHED_INSIDE})")  # fmt: skip
    hashed = [stall for stall in stalls if in_checksum(stall)]
    named = [stall for stall in hashed if stall.culprit and stall.culprit.qualname == "checksum"]
    print(f"  loopwatch: {len(stalls)} stalls, {len(hashed)} while it hashed, {len(named)} for which that is "
          f"blamed and not the machine")  # fmt: skip
    if form == "inline" and hashed:
        worst = max(hashed, key=lambda stall: stall.duration)
        longest = worst.duration * 1e3
        print(f"  the worst: {worst.summary}")
        met = abs(longest - max(outside)) <= max(20.0, AGREES * max(outside))
        print(f"  its duration and the worst ping agree: {verdict(met)}")
    print(flush=True)


def main() -> int:
    if sys.argv[1:2] == ["--ping"]:
        ping_outside(int(sys.argv[2]))
        return 0
    if sys.argv[1:2] == ["--upload"]:
        upload(*map(int, sys.argv[2:5]))
        return 0
    args = begin(parser(__doc__))
    size, uploads = (SIZE // 10, 2) if args.short else (SIZE, UPLOADS)
    for form in PUBLISHED:
        stalls = list[Stall]()
        outside, inside = loopwatch.run(
            run(form, size, uploads), threshold=THRESHOLD, log=False, dump_to=False, on_stall=stalls.append
        )
        report(form, outside, inside, [stall for stall in stalls if not stall.ongoing])
    return 0


if __name__ == "__main__":
    sys.exit(main())
