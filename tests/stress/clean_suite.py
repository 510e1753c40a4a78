"""No false failure: a clean async suite, again and again beside CPU hogs, under pytest --loopwatch.

    python tests/stress/clean_suite.py [--rounds 200] [--processes 10] [--hogs 4]

Each process runs the suite rounds/processes times. No test blocks a loop for longer than a few milliseconds of its
own; what the machine does to it must fail none. Exit status 1, and the failures, where one did.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

SUITE = """
import asyncio
import os
import threading

import pytest

ROUNDS = int(os.environ["CLEAN_SUITE_ROUNDS"])
each_round = pytest.mark.parametrize("round", range(ROUNDS))


def work(n=2000):
    return sum(i * i for i in range(n))


@pytest.fixture
async def server():
    async def echo(reader, writer):
        while data := await reader.readline():
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()
    server.close()


@each_round
async def test_sleeps(round):
    await asyncio.gather(*(asyncio.sleep(0.001 * i) for i in range(10)))


@each_round
async def test_echo(round, server):
    reader, writer = await asyncio.open_connection(*server)
    for i in range(20):
        writer.write(b"%d\\n" % i)
        assert await reader.readline() == b"%d\\n" % i
    writer.close()
    await writer.wait_closed()


@each_round
async def test_queue_between_tasks(round):
    queue = asyncio.Queue(4)

    async def produce():
        for i in range(100):
            await queue.put(i)

    task = asyncio.create_task(produce())
    assert [await queue.get() for _ in range(100)] == list(range(100))
    await task


@each_round
async def test_work_in_threads(round):
    assert len(await asyncio.gather(*(asyncio.to_thread(work) for _ in range(8)))) == 8


@each_round
async def test_timeout(round):
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)


@each_round
async def test_short_work_on_the_loop(round):
    for _ in range(20):
        work()
        await asyncio.sleep(0)


@each_round
def test_run_in_a_thread(round):
    thread = threading.Thread(target=asyncio.run, args=(asyncio.sleep(0.01),))
    thread.start()
    thread.join()


@each_round
def test_own_runner(round):
    with asyncio.Runner() as runner:
        for _ in range(3):
            runner.run(asyncio.sleep(0.001))
"""


@contextlib.contextmanager
def hogs(number: int) -> Iterator[None]:
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
            hog.wait()


def run(directory: Path, rounds: int) -> subprocess.CompletedProcess[str]:
    library = str(Path(__file__).parents[2])
    environment = os.environ | {"CLEAN_SUITE_ROUNDS": str(rounds), "PYTHONPATH": library}
    command = [sys.executable, "-m", "pytest", "-q", "--loopwatch", "-p", "no:cacheprovider"]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--hogs", type=int, default=4)
    given = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as name, hogs(given.hogs):
        directory = Path(name)
        (directory / "test_clean.py").write_text(textwrap.dedent(SUITE))
        ini = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        (directory / "pytest.ini").write_text(ini)
        for i in range(given.processes):
            began = time.monotonic()
            done = run(directory, given.rounds // given.processes)
            load = " ".join(f"{value:.1f}" for value in os.getloadavg())
            last = done.stdout.strip().rpartition("\n")[2]
            print(f"{i + 1}: {last} in {time.monotonic() - began:.0f} s, load {load}", flush=True)
            if done.returncode:
                failed += 1
                print(done.stdout + done.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
