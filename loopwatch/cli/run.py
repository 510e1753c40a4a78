"""loopwatch run: a program as it is, with every event loop of its processes watched, and a summary at the end."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from loopwatch.cli import USAGE_ERROR, add_command
from loopwatch.cli._durations import duration, threshold_time
from loopwatch.cli._say import say

if TYPE_CHECKING:
    from loopwatch.cli._records import Run

EXAMPLES = """\
  loopwatch run app.py --port 8000
  loopwatch run -m mypackage.server
  loopwatch run uvicorn app:app --workers 2
  loopwatch run --threshold 50ms --report stalls.html app.py
  loopwatch run --fail-over 200ms -m pytest tests

The program's own arguments come after its name, as they are. `loopwatch top PID` shows it while it runs.
"""

_INJECT: Final = Path(__file__).parent / "inject"
_NEVER: Final = "never"


class Limit(NamedTuple):
    seconds: float
    text: str
    """As it was written."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = add_command(
        commands, "run", run, summary="run a program with every event loop of it watched", examples=EXAMPLES
    )
    command.usage = "loopwatch run [options] SCRIPT.py|-m MODULE|COMMAND [argument ...]"
    command.add_argument(
        "--threshold",
        type=threshold_time,
        metavar="TIME",
        help="what counts as a stall (default: LOOPWATCH_THRESHOLD, or 100ms; at most what --fail-over says)",
    )
    command.add_argument(
        "--report",
        type=_report_path,
        metavar="FILE",
        help="what was seen, as FILE.html, FILE.speedscope.json or FILE.jsonl (written as it comes)",
    )
    command.add_argument(
        "--hang-after",
        type=_hang_after,
        metavar="TIME|never",
        help="say on standard error what a loop is blocked in once it is for so long, and at each tenfold age "
        "(default: LOOPWATCH_HANG_AFTER, or 1s)",
    )
    command.add_argument(
        "--fail-over",
        type=lambda text: Limit(threshold_time(text), text),
        metavar="TIME",
        help="exit with status 1 where a stall of the program's own doing was longer, and it succeeded otherwise",
    )
    command.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module, as python -m has it"
    )
    command.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="a script or a command")


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _records, _run_directory, _summary, _supervise

    limit: Limit | None = arguments.fail_over
    with contextlib.ExitStack() as stack:
        try:
            command = _command(arguments.module, arguments.program)
            threshold = _threshold(arguments.threshold, limit.seconds if limit else None)
            directory = stack.enter_context(_run_directory.made())
            records = _records_file(directory, arguments.report)
        except (OSError, TypeError, ValueError) as problem:
            say(f"loopwatch run: {problem}")
            return USAGE_ERROR
        told = {"directory": str(directory), "records": str(records), "threshold": threshold}
        if arguments.hang_after is not None:
            told["hang_after"] = None if arguments.hang_after == _NEVER else arguments.hang_after
        status = _supervise.run(command, _environment(told))
        seen = _records.load(records, directory / _run_directory.LOOPS)
        seen.complete = not _run_directory.has_failed(directory)
        failed = not _tell(seen, records, arguments.report, threshold)
    if status == 0 and limit is not None and (why := _summary.failure(seen, limit.seconds, limit.text)):
        say(why)
        failed = True
    return 1 if failed and status == 0 else _supervise.end_as(status)


# --- what is run, and where ---


def _command(module: list[str] | None, program: list[str]) -> list[str]:
    """With the path of an executable first."""
    if module:
        return [sys.executable, "-m", *module, *program]  # which argparse parts at a "--"
    if program[:1] == ["--"]:  # ends our own options
        program = program[1:]
    if not program:
        raise ValueError("name a script, a command, or -m and a module")
    name = program[0]
    path = Path(name)
    if os.sep in name and path.suffix != ".py" and path.is_file() and os.access(path, os.X_OK):
        return list(program)
    if os.sep in name or path.suffix == ".py":
        return [sys.executable, *program]
    beside = Path(sys.executable).parent  # a virtual environment that is not activated
    if found := shutil.which(name) or shutil.which(name, path=str(beside)):
        return [found, *program[1:]]
    if not path.exists():  # last: a package or a file that is called as a command is must not hide it
        raise ValueError(f"{name}: no such script or command")
    return [sys.executable, *program]


def _threshold(chosen: float | None, fail_over: float | None) -> float:
    """Of every watch: what is to fail the program must be seen. ValueError where a variable says what cannot be."""
    from loopwatch._options import make_settings

    options: dict[str, Any] = {} if chosen is None else {"threshold": chosen}
    threshold = make_settings("loopwatch run", options).threshold
    return threshold if fail_over is None else min(threshold, fail_over)


def _environment(told: Mapping[str, Any]) -> Mapping[str, str]:
    path = os.environ.get("PYTHONPATH")
    options = {
        **told,
        "library": str(Path(__file__).parents[2]),
        "tag": sys.implementation.cache_tag,
    }
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_INJECT), *([path] if path else [])]),
        "LOOPWATCH_RUN": json.dumps(options),
    }


def _hang_after(text: str) -> float | str:
    return _NEVER if text == _NEVER else duration(text)


# --- reports ---


def _report_path(text: str) -> Path:
    """What could not be written at the end is an error before the program runs."""
    from loopwatch import report
    from loopwatch.report.place import check_place

    try:
        report.check(text)
        check_place(Path(text))
    except (ImportError, ValueError) as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
    except OSError as problem:
        raise argparse.ArgumentTypeError(problem.strerror) from problem
    return Path(text)


def _records_file(directory: Path, report: Path | None) -> Path:
    """What the processes write to: JSON lines are the report itself, from the begin on."""
    from loopwatch.cli._run_directory import RECORDS
    from loopwatch.report.place import replace

    if report is None or not _is_json_lines(report):
        return directory / RECORDS
    replace(report, "")
    return report.absolute()  # the program may go elsewhere


def _is_json_lines(path: Path) -> bool:
    from loopwatch import report

    return report.check(path) == ".jsonl"


def _tell(seen: Run, records: Path, to: Path | None, threshold: float) -> bool:
    """On standard error, and in the report. False: that could not be written."""
    from loopwatch._text import counted, printable
    from loopwatch.cli import _records, _summary

    for line in _summary.summary(seen, threshold):
        say(line)
    written = to is not None and _write_report(seen, records, to)
    if written:
        stalls = counted(len(seen.stalls) + len(seen.unfinished), "stall")
        say(printable(f"loopwatch: {stalls} in the report {to}"))
    for line in _summary.kept(_records.remove_pages(seen)):
        say(line)
    return written or to is None


def _write_report(seen: Run, records: Path, to: Path) -> bool:
    from loopwatch import report
    from loopwatch.cli import _records
    from loopwatch.cli.report import Progress

    progress = Progress()
    try:
        _records.append(seen.more, records)
        if not _is_json_lines(to):
            report.write(to, records, progress=progress)
    except (OSError, ValueError, ImportError) as problem:
        progress.end()
        say(f"loopwatch run: {to}: {problem}")
        return False
    progress.end()
    return True
