"""After each test nothing of loopwatch may be left: no thread, no watch, no attribute on a loop."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's doing: no test means it.
settings.register_profile("loopwatch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loopwatch")

HOOKED = {"close", "run_forever", "run_in_executor", "set_default_executor"}  # of a loop
HOOKED_SELECTOR = {"close", "select"}


def left_behind() -> list[str]:
    from loopwatch._outlets import outlets  # here: tests of the native half alone need no package
    from loopwatch._registry import registry

    left = [f"{thread!r}" for thread in threading.enumerate() if thread.name.startswith("loopwatch")]
    left += [f"{watch!r}" for watch in registry().watches()]
    left += [f"the exporter {outlet.name}" for outlet in outlets._open]
    left += [
        f"{callback!r} in gc.callbacks"
        for callback in gc.callbacks
        if getattr(callback, "__name__", "") == "gc_stamp"
    ]
    for loop in [thing for thing in gc.get_objects() if isinstance(thing, asyncio.BaseEventLoop)]:
        left += [f"{name} on {loop!r}" for name in HOOKED & vars(loop).keys()]
        selector = getattr(loop, "_selector", None)
        left += [
            f"{name} on the selector of {loop!r}"
            for name in HOOKED_SELECTOR & getattr(selector, "__dict__", {}).keys()
        ]
    left += [
        f"submit on {pool!r}"
        for pool in [thing for thing in gc.get_objects() if isinstance(thing, ThreadPoolExecutor)]
        if "submit" in vars(pool)
    ]
    return left


blamed: set[str] = set()
"""What a test was blamed for and cannot be ended: those after it are not, and do not wait for it."""


def end_what_is_left() -> None:
    """A test that failed left it: those after it count threads and hooks."""
    from loopwatch._everywhere import uninstall_all
    from loopwatch._registry import registry

    uninstall_all()
    for watch in registry().watches():
        watch.uninstall()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    if (testcore := sys.modules.get("loopwatch._testcore")) is not None:
        testcore.stop_watchdog(2_000_000_000)  # its own copy of the watchdog, which no Watch stops
    deadline = time.monotonic() + 5  # a reporter that ends itself needs a moment
    while (left := set(left_behind()) - blamed) and time.monotonic() < deadline:
        time.sleep(0.01)
    if left:
        end_what_is_left()
        blamed.update(left_behind())
    assert not left
