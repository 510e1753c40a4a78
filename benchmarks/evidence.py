"""What the evidence of one sample costs: microseconds of CPU, for each thing that the watchdog reads.

    LOOPWATCH_TEST=1 python setup.py build_ext --inplace && python benchmarks/evidence.py

For threads that are blocked in different calls: the thread's files (schedstat, stat, syscall), the cgroup's,
and what the call waits for. The least of several rounds: the machine's noise only adds.
"""

import os
import platform
import select
import socket
import threading
import time
from collections.abc import Callable

from loopwatch import _testcore

ROUNDS = 2000
REPEATS = 7


def main() -> None:
    done = threading.Event()
    read_end, _ = os.pipe()
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    poller = select.poll()
    pipes = [os.pipe() for _ in range(5)]
    for fd in (client.fileno(), read_end, *(fds[0] for fds in pipes)):
        poller.register(fd, select.POLLIN)
    kinds: dict[str, Callable[[], object]] = {
        "runs": lambda: [None for _ in iter(done.is_set, True)],
        "lock": done.wait,
        "sleep": lambda: time.sleep(3600),
        "read of a pipe": lambda: os.read(read_end, 1),
        "recv": lambda: client.recv(1),
        "poll of 7": poller.poll,
    }
    print(f"CPython {platform.python_version()}, Linux {platform.release()}")
    print(f"{'us of CPU':18}{'thread':>9}{'cgroup':>9}{'target':>9}  target")
    for name, target in kinds.items():
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        time.sleep(0.1)
        assert thread.native_id
        costs = [_testcore.time_thread_files(thread.native_id, ROUNDS) for _ in range(REPEATS)]
        least = [min(cost[i] for cost in costs) / 1e3 for i in range(3)]
        print(f"{name:18}" + "".join(f"{cost:9.2f}" for cost in least) + f"  {costs[0][3]}")
        if name == "runs":
            done.set()
            thread.join()
            done.clear()


if __name__ == "__main__":
    main()
