"""What the programs of the tests of forks begin with."""

from __future__ import annotations

from textwrap import dedent

from programs import run_program

PRELUDE = """
import asyncio, multiprocessing, os, subprocess, sys, threading, time
import loopwatch
from scenario import THRESHOLD, block, blocked_once, culprits, left_on, native_threads, new_loop
from scenario import no_thread_of_ours, our_threads, quiet, say
from scenario import wait_until, pulse_of

def reap(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def fork(child):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid
"""


def run(source: str, **options: object) -> dict[str, object]:
    return run_program(PRELUDE + dedent(source), **options).check()  # type: ignore[arg-type]
