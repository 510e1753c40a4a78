"""loopwatch run: a program as it is, with every event loop of its processes watched, and a summary at the end."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from loopwatch.cli import USAGE_ERROR, add_command
from loopwatch.cli._durations import threshold_time

EXAMPLES = """\
  loopwatch run app.py --port 8000
  loopwatch run -m mypackage.server
  loopwatch run uvicorn app:app --workers 2
  loopwatch run --threshold 50ms --report stalls.html app.py
  loopwatch run --fail-over 200ms -m pytest tests

The program's own arguments come after its name, as they are. `loopwatch top PID` shows it while it runs.
"""

_INJECT: Final = Path(__file__).parent / "inject"


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
        help="what was seen, as FILE.html, FILE.speedscope.json or FILE.jsonl",
    )
    command.add_argument(
        "--fail-over",
        type=threshold_time,
        metavar="TIME",
        help="exit with status 1 where a stall of the program's own doing was longer, and it succeeded otherwise",
    )
    command.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module, as python -m has it"
    )
    command.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="a script or a command")


def run(arguments: argparse.Namespace) -> int:
    from loopwatch.cli import _records, _supervise
    from loopwatch.cli._launched import RECORDS

    try:
        command = _command(arguments.module, arguments.program)
        threshold = _threshold(arguments.threshold, arguments.fail_over)
    except (OSError, TypeError, ValueError) as problem:
        print(f"loopwatch run: {problem}", file=sys.stderr)
        return USAGE_ERROR
    with tempfile.TemporaryDirectory(prefix="loopwatch-run-") as name:
        directory = Path(name)
        status = _supervise.run(command, _environment(directory, threshold))
        seen = _records.load(directory)
        for line in _records.summary(seen, threshold):
            print(line, file=sys.stderr)
        failed = arguments.report is not None and not _write_report(directory / RECORDS, arguments.report)
    if status == 0 and arguments.fail_over is not None and seen.worst_own > arguments.fail_over:
        print(
            f"loopwatch: failed: a stall was longer than --fail-over {arguments.fail_over:g}s",
            file=sys.stderr,
        )
        return 1
    return 1 if failed and status == 0 else _supervise.end_as(status)


# --- what is run, and where ---


def _command(module: list[str] | None, program: list[str]) -> list[str]:
    """With the path of an executable first."""
    if module:
        return [sys.executable, "-m", *module]
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
    from loopwatch.cli._launched import OPTIONS

    options = OPTIONS if chosen is None else {**OPTIONS, "threshold": chosen}
    threshold = make_settings("loopwatch run", dict(options)).threshold
    return threshold if fail_over is None else min(threshold, fail_over)


def _environment(directory: Path, threshold: float) -> Mapping[str, str]:
    path = os.environ.get("PYTHONPATH")
    options = {
        "directory": str(directory),
        "threshold": threshold,
        "library": str(Path(__file__).parents[2]),
        "tag": sys.implementation.cache_tag,
    }
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_INJECT), *([path] if path else [])]),
        "LOOPWATCH_RUN": json.dumps(options),
    }


# --- reports ---


def _report_path(text: str) -> Path:
    """What could not be written at the end is an error before the program runs."""
    from loopwatch import report

    try:
        report.check(text)
    except (ValueError, ImportError) as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
    return Path(text)


def _write_report(records: Path, to: Path) -> bool:
    from loopwatch import report
    from loopwatch.cli.report import Progress

    progress = Progress()
    try:
        records.touch()  # where no process had a loop there is none
        report.write(to, records, progress=progress)
    except (OSError, ValueError, ImportError) as problem:
        progress.end()
        print(f"loopwatch run: {to}: {problem}", file=sys.stderr)
        return False
    progress.end()
    return True
