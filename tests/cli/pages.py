"""Status pages that no watchdog wrote: whole, with whatever in them."""

from __future__ import annotations

import json
import struct
import time
import zlib
from pathlib import Path
from typing import Any

from loopwatch import _page

FACTS: dict[str, Any] = {
    "pid": 999999999,
    "start": None,
    "ancestors": [[999999998, 7]],
    "created": time.time_ns(),
    "argv": ["python", "app.py"],
    "python": "CPython 3.11.7",
    "loopwatch": "0.1.0",
}


def body() -> dict[str, Any]:
    stall = {
        "id": 1,
        "key": 1,
        "begin": 5_000_000_000,
        "verdict": "python",
        "function": "spin",
        "file": "/srv/app.py",
        "line": 3,
        "task": "Task-1",
    }
    recent = {
        "seconds": 9.5,
        "turns": 10,
        "busy": 8_000,
        "idle": 1_000,
        "gil_wait": 0,
        "worst": 70,
        "waiting_p99": 9,
    }
    loop = {
        "key": 1,
        "thread": "MainThread",
        "tid": 7,
        "phase": "busy",
        "since": 5_000_000_000,
        "pulse": "turn",
    }
    loop |= {"threshold": 100_000_000, "max": 5, "stalls": 2, "recent": recent}
    loop |= {"turns": 10, "busy": 8_000, "idle": 1_000, "gil_wait": 0}
    executor = {
        "name": "default",
        "at": 5_500_000_000,
        "waited": 0.2,
        "busy": 12,
        "workers": 12,
        "queued": 3,
    }
    now = {"seen": 6_000_000_000, "causes": {"python": 900_000_000}, "coroutine": "main"}
    return {
        "at": 6_000_000_000,
        "wall": 1_764_000_000_000_000_000,
        "loops": [loop],
        "more_loops": 0,
        "executors": [executor],
        "stalls": [stall | {"end": 5_900_000_000, "thread": "MainThread"}],
        "current": [stall | now | {"stack": '  File "/srv/app.py", line 3, in spin'}],
    }


def write_page(path: Path, said: Any, facts: Any = FACTS) -> Path:
    """In the place of the one that is there, if there is one."""
    text = json.dumps(said).encode()
    begin = struct.pack("=QI", 1, len(text))
    half = begin + struct.pack("=I", zlib.crc32(text, zlib.crc32(begin))) + text
    data = _page.make_head(facts) + half.ljust(_page.HALF_BYTES, b"\0")
    new = path.with_suffix(".new")
    new.write_bytes(data.ljust(_page.SIZE, b"\0"))
    return new.replace(path)
