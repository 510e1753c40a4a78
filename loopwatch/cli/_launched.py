"""In a process of a program under `loopwatch run`: every loop is watched, and what is seen goes to the run's directory.

records.jsonl   JSON lines of every process, as stalls end (loopwatch.jsonl)
loops           "PID KEY" for each loop that was watched, also of a process that is killed
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loopwatch import _everywhere
from loopwatch._linefile import LineFile
from loopwatch._options import Options
from loopwatch.jsonl import JsonLines

if TYPE_CHECKING:
    from loopwatch._watch import Watch

ORIGIN: Final = "loopwatch run"
RECORDS: Final = "records.jsonl"
LOOPS: Final = "loops"
OPTIONS: Final[Options] = {"log": False, "dump_to": False}
"""Of every watch, whatever the environment says."""


class Records(JsonLines):
    """Notes each loop beside its lines."""

    def __init__(self, directory: Path) -> None:
        self._loops_file = LineFile(directory / LOOPS)
        self._noted: set[tuple[int, int]] = set()
        self._finishing: set[int] = set()
        super().__init__(directory / RECORDS)

    def follow(self, watch: Watch) -> None:
        super().follow(watch)
        loop = os.getpid(), watch.key
        if loop not in self._noted:
            self._noted.add(loop)
            with contextlib.suppress(FileNotFoundError):
                self._loops_file.write(b"%d %d\n" % loop)
        self._finish_with_worker()

    def close(self) -> None:
        super().close()
        self._loops_file.close()

    def _write(self, line: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):  # the run is over, and nobody is left to read it
            super()._write(line)

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


def begin(told: dict[str, Any]) -> None:
    options: Options = {"threshold": told["threshold"], **OPTIONS}
    records = Records(Path(told["directory"]))
    atexit.register(finish, records)
    try:
        _everywhere.watch_all({**options, "status": True}, origin=ORIGIN)
    except OSError:  # no place for a page: nobody can look in meanwhile, the rest works
        _everywhere.watch_all(options, origin=ORIGIN)
