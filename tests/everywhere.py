"""What the programs of the tests of install_all() begin with."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from programs import run_program

PRELUDE = """
import asyncio, gc, os, sys, threading, time
import loopwatch
from loopwatch import _core
from loopwatch._registry import registry
from scenario import BLOCK, block, blocked_once, culprits, left_on, new_loop, no_thread_of_ours
from scenario import our_threads, quiet, say, wait_until

seen = []

def watch_all(**options):
    loopwatch.install_all(**quiet(**{"on_stall": seen.append, **options}))

def settle():
    for watch in registry().watches():
        watch.flush()
"""


def run(source: str, **options: Any) -> dict[str, Any]:
    return run_program(PRELUDE + dedent(source), **options).check()


def need_uvloop() -> None:
    pytest.importorskip("uvloop")
