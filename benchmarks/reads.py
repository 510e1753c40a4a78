"""What a guarded read costs: microseconds a call, for each backend and number of segments.

    LOOPWATCH_TEST=1 python setup.py build_ext --inplace && python benchmarks/reads.py

Segments of 80 bytes, about a frame or a code object's head, a page and a half apart: none shares a page with
the next. The least of several rounds: the machine's noise only adds.
"""

import ctypes
import os
import platform
import sys

from loopwatch import _testcore

LENGTH = 80
APART = 6144
BACKENDS = {"memfd": 1, "process_vm_readv": 2, "pipe": 3, "/proc/self/mem": 4}
SEGMENTS = (1, 16, 64)
REPEATS = 7


def main() -> None:
    area = ctypes.create_string_buffer(os.urandom(max(SEGMENTS) * APART))
    address = ctypes.addressof(area)
    mem_fd = os.open("/proc/self/mem", os.O_RDONLY)
    print(f"CPython {platform.python_version()}, Linux {platform.release()}")
    print(f"us a call, {LENGTH} bytes a segment")
    print(f"{'segments':18}" + "".join(f"{n:>9}" for n in SEGMENTS))
    for name, backend in BACKENDS.items():
        costs = []
        for n in SEGMENTS:
            pairs = [(address + i * APART, LENGTH) for i in range(n)]
            costs.append([_testcore.time_reads(backend, mem_fd, pairs, 20_000 // n) for _ in range(REPEATS)])
        if None in costs[0]:
            print(f"{name:18}does not work here")
        else:
            print(f"{name:18}" + "".join(f"{min(cost) / 1e3:9.2f}" for cost in costs))


if __name__ == "__main__":
    sys.exit(main())
