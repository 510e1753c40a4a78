"""In a process of a program under `loopwatch run`: every loop is watched, and what is seen goes to the run's directory
(_run_directory.py), or straight to its report."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loopwatch import _env, _everywhere
from loopwatch._clock import monotonic
from loopwatch._hang_log import HangLog
from loopwatch._linefile import LineFile
from loopwatch._options import Options
from loopwatch._outlets import outlets
from loopwatch._page import process_start
from loopwatch._process import process_started
from loopwatch._registry import registry
from loopwatch._terminal import Terminal
from loopwatch.cli._run_directory import LOOPS, note_failure
from loopwatch.jsonl import JsonLines

if TYPE_CHECKING:
    from loopwatch._watch import Watch

ORIGIN: Final = "loopwatch run"
_EVERY_FIRST: Final = 1.0
_EVERY_LAST: Final = 60.0
_EVERY_SHARE: Final = 0.25
"""Of the time that it has gone on: what a process that is killed takes along unwritten is not most of its life."""
_DELIVERY_SECONDS: Final = 0.5
_FORMATTER: Final = logging.Formatter()


class Records(JsonLines):
    """Notes each loop beside its lines, and writes a loop's last line when it ends: the process may be killed after
    that, as servers do with themselves that were told to end."""

    def __init__(self, directory: Path, to: Path) -> None:
        self._directory = directory
        self._loops_file = LineFile(directory / LOOPS)
        self._noted: set[tuple[int, int]] = set()
        self._finishing: set[int] = set()
        self._began = monotonic()
        self._note("-")
        super().__init__(to, every=_EVERY_FIRST)

    def follow(self, watch: Watch) -> None:
        super().follow(watch)
        loop = os.getpid(), watch.key
        if loop not in self._noted:
            self._noted.add(loop)
            self._note(str(watch.key))
        self._finish_with_worker()

    def unfollow(self, watch: Watch) -> None:  # noqa: ARG002
        if asyncio._get_running_loop() is not None:  # that one must not wait
            attempt = functools.partial(outlets.attempt, self.name, self._write_ended)
            registry().alarms.call_later(0.0, attempt)
            return
        _everywhere.deliver(_DELIVERY_SECONDS)
        self._write_ended()

    def renew(self) -> None:
        super().renew()
        self._began, self.every = monotonic(), _EVERY_FIRST

    def tick(self) -> None:
        super().tick()
        age = monotonic() - self._began
        self.every = min(_EVERY_LAST, max(_EVERY_FIRST, _EVERY_SHARE * age))

    def close(self) -> None:
        super().close()
        self._loops_file.close()

    def _write_ended(self) -> None:
        self._write_loops(self._loops.ended())

    def _write(self, line: bytes) -> None:
        try:
            self._directory.stat()
        except FileNotFoundError:  # the run is over, and nobody is left to read it
            return
        except PermissionError:  # of a process that has dropped its rights
            pass
        with self._telling():
            super()._write(line)

    def _note(self, loop: str) -> None:
        pid = os.getpid()
        with self._telling():
            self._loops_file.write(f"{pid} {loop} {process_started()} {process_start(pid)}\n".encode())

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Who started the run hears of what cannot be written, unless it is over."""
        try:
            yield
        except FileNotFoundError:
            pass
        except OSError:
            note_failure(self._directory)
            raise

    def _finish_with_worker(self) -> None:
        """A process of multiprocessing ends without atexit."""
        util: Any = sys.modules.get("multiprocessing.util")
        process: Any = sys.modules.get("multiprocessing.process")
        if util is None or process is None or process.parent_process() is None:
            return
        if os.getpid() not in self._finishing:
            self._finishing.add(os.getpid())
            util.Finalize(None, finish, args=(self,), exitpriority=-1000)


def finish(records: Records) -> None:
    _everywhere.unwatch_all(ORIGIN)
    records.close()


def _tell_hang(terminal: Terminal, record: logging.LogRecord) -> None:
    """What has ended is for the summary."""
    terminal.write(f"loopwatch: process {os.getpid()}: {_FORMATTER.format(record)}\n")


def begin(told: dict[str, Any]) -> None:
    terminal = Terminal.of_this_process()
    options: Options = {
        "threshold": told["threshold"],
        "log": False if terminal is None else HangLog(functools.partial(_tell_hang, terminal)),
        "log_every": 0.0,
    }
    if "dump_to" not in _env.defaults():
        options["dump_to"] = False if terminal is None else terminal.descriptor
    if "hang_after" in told:
        options["hang_after"] = told["hang_after"]
    records = Records(Path(told["directory"]), Path(told["records"]))
    atexit.register(finish, records)
    try:
        _everywhere.watch_all({**options, "status": True}, origin=ORIGIN)
    except OSError:  # no place for a page: nobody can look in meanwhile, the rest works
        _everywhere.watch_all(options, origin=ORIGIN)
