"""Messages per CPU second of an echo server, watched to unwatched.

A server process has two loops, one of them watched, each with 50 connections (an asyncio.Protocol that
writes back what it gets) to a client in another process. Rounds of messages go to one and to the other, in
pairs. A message is answered before its connection sends the next. Each server process measures some of the
pairs, and the loop that is made first is the watched one in every other process. The ratio has a 95 %
interval: of the median, by resampling the pairs.

    python benchmarks/echo.py [--short] [--loop uvloop]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import select
import socket
import subprocess
import sys
import time
from typing import Any

from common import apart, begin, interval, loops, parser, spread, verdict

import loopwatch

CONNECTIONS = 50
SIZE = 64
MESSAGES = {"asyncio": 10_000, "uvloop": 40_000}  # of a round
SERVERS, PAIRS = 8, 16  # pairs of each server process
REACH = {"asyncio": 1.00, "uvloop": 0.98}


# --- the client ---------------------------------------------------------------------------------------------


def connect(port: int) -> dict[int, socket.socket]:
    made = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    for connection in made:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return {connection.fileno(): connection for connection in made}


def converse(connections: dict[int, socket.socket], messages: int) -> None:
    """Each connection sends, waits for the answer, and sends again; `messages` in all."""
    message = bytes(SIZE)
    poll = select.epoll()
    for number, connection in connections.items():
        poll.register(number, select.EPOLLIN)
        connection.send(message)
    sent, answered = len(connections), 0
    while answered < messages:
        for number, _ in poll.poll():
            connections[number].recv(SIZE)
            answered += 1
            if sent < messages:
                connections[number].send(message)
                sent += 1
    poll.close()


def client(ports: list[int]) -> None:
    """Reads "ARM MESSAGES" lines from standard input."""
    arms = [connect(port) for port in ports]
    print("connected", flush=True)
    for line in sys.stdin:
        arm, messages = map(int, line.split())
        converse(arms[arm], messages)


# --- the server ---------------------------------------------------------------------------------------------


class Arm:
    """A loop and its server."""

    def __init__(self, name: str) -> None:
        self.loop = loops.new(name)
        self.connected = 0
        self.left = 0
        listening = self.loop.create_server(lambda: Echo(self), "127.0.0.1", 0)
        self.server = self.loop.run_until_complete(listening)
        self.port: int = self.server.sockets[0].getsockname()[1]

    async def accept(self) -> None:
        while self.connected < CONNECTIONS:
            await asyncio.sleep(0.01)

    def serve(self, messages: int) -> None:
        self.left = messages
        self.loop.run_forever()

    def close(self) -> None:
        self.server.close()
        self.loop.close()


class Echo(asyncio.Protocol):
    def __init__(self, arm: Arm) -> None:
        self.arm = arm

    def connection_made(self, transport: Any) -> None:
        self.write = transport.write
        self.arm.connected += 1

    def data_received(self, data: bytes) -> None:
        self.write(data)
        arm = self.arm
        arm.left -= 1
        if not arm.left:
            arm.loop.stop()


def serve(name: str, pairs: int, messages: int, watched_first: bool) -> list[list[list[float]]]:
    """For each pair [unwatched, watched], each [messages per CPU second of the process, of the thread]."""
    made = [Arm(name), Arm(name)]
    plain, watched = reversed(made) if watched_first else made
    loopwatch.install(watched.loop, log=False)
    command = [sys.executable, __file__, "--client", *(str(arm.port) for arm in (plain, watched))]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as talker:
        assert talker.stdin is not None
        assert talker.stdout is not None
        for arm in (plain, watched):
            arm.loop.run_until_complete(arm.accept())
        talker.stdout.readline()
        gc.collect()
        gc.freeze()
        rates = []
        for i in range(-2, pairs):  # two to get warm
            rate: dict[int, list[float]] = {}
            for number in (0, 1) if i % 2 else (1, 0):
                talker.stdin.write(f"{number} {messages}\n")
                process, thread = time.process_time(), time.thread_time()
                (plain, watched)[number].serve(messages)
                rate[number] = [
                    messages / (time.process_time() - process),
                    messages / (time.thread_time() - thread),
                ]
            if i >= 0:
                rates.append([rate[0], rate[1]])
        talker.stdin.close()
    plain.close()
    watched.close()
    return rates


# --- all of it ----------------------------------------------------------------------------------------------


def measure(name: str, servers: int, pairs: int, messages: int) -> list[list[list[float]]]:
    """Server processes one after another."""
    rates: list[list[list[float]]] = []
    for i in range(servers):
        rates += apart("--loop", name, "--server", pairs, messages, i % 2)
    return rates


def report(name: str, short: bool) -> None:
    rates = measure(name, *((2, 5, 1000) if short else (SERVERS, PAIRS, MESSAGES[name])))
    whole = [watched[0] / plain[0] for plain, watched in rates]
    thread = [watched[1] / plain[1] for plain, watched in rates]
    low, high = interval(whole)
    print(f"{name}, {CONNECTIONS} connections, messages of {SIZE} bytes, {len(rates)} pairs of rounds")
    print(
        f"  unwatched              {spread([plain[0] for plain, _ in rates]).text(0)} messages per CPU second"
    )
    print(f"  the whole process      {spread(whole).text()}, 95 % interval {low:.3f} to {high:.3f}: "
          f"{verdict(high >= REACH[name])}")  # fmt: skip
    low, high = interval(thread)
    print(
        f"  the loop's thread      {spread(thread).text()}, 95 % interval {low:.3f} to {high:.3f}", flush=True
    )


def main() -> int:
    arguments = parser(__doc__)
    loops.add_argument(arguments)
    arguments.add_argument("--client", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--server", nargs=3, type=int, help=argparse.SUPPRESS)
    early = arguments.parse_args()
    if early.client:
        client(early.client)
        return 0
    if early.server:
        pairs, messages, watched_first = early.server
        print(json.dumps(serve(early.loop, pairs, messages, bool(watched_first))))
        return 0
    args = begin(arguments)
    for name in loops.wanted(args):
        report(name, args.short)
    return 0


if __name__ == "__main__":
    sys.exit(main())
