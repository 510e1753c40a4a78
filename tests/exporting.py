"""What the programs of the tests of exporters begin with, and the libraries that they need."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import pytest
from programs import run_program

PRELUDE = """
import asyncio, json, os, sys, threading, time
import loopwatch
from loopwatch._outlets import outlets
from scenario import THRESHOLD, block, blocked_once, new_loop, our_threads, no_thread_of_ours, quiet, say, wait_until
"""


def needs(*names: str) -> pytest.MarkDecorator:
    missing = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def run(source: str, *args: str | Path, **options: object) -> dict[str, object]:
    return run_program(PRELUDE + dedent(source), *args, **options).check()  # type: ignore[arg-type]
