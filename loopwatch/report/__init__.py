"""A report to look at, made of watches that are there or of files of JSON lines.

    loopwatch.report.write("report.html", watch)
    loopwatch.report.write("week.html", "web-1.jsonl", "web-2.jsonl")

A source is a Watch, a Stall, the path of a file that `loopwatch.jsonl.JsonLines` wrote, an object of such a line,
or an iterable of these. What two sources both have is in the report once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from loopwatch.report.load import Progress, Source, load, silent
from loopwatch.report.model import Report
from loopwatch.report.place import check_place, replace

__all__ = ["FORMATS", "Report", "check", "load", "render", "write"]

FORMATS: Final = (".html", ".jsonl", ".speedscope.json")
"""By the end of the path."""


def check(path: str | os.PathLike[str]) -> str:
    """Which of FORMATS write() would make of this path; for who wants to know before there is anything to write.
    ValueError where its name ends in none of them, ImportError where the extra `html` is needed and not installed."""
    name = Path(path).name.lower()
    suffix = next((suffix for suffix in FORMATS if name.endswith(suffix)), None)
    if suffix is None:
        raise ValueError(
            f"a report's name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {name!r}"
        )
    if suffix == ".html":
        from loopwatch.report.html import library_files

        library_files()
    return suffix


def render(report: Report, suffix: str) -> str:
    """What a file of that format holds. ImportError as of check()."""
    match suffix:
        case ".html":
            from loopwatch.report.html import text
        case ".jsonl":
            from loopwatch.report.lines import text
        case _:
            from loopwatch.report.speedscope import text
    return text(report)


def write(path: str | os.PathLike[str], *sources: Source, progress: Progress = silent) -> Report:
    """Write a report of all sources, in the format that the path ends in: .html, .jsonl or .speedscope.json.

    A file that is there is replaced, once the new one is whole. Lines of a source that are broken or of another
    program are left out, and counted in `Report.problems`. `progress` is called with what is done, and the share
    of it from 0 to 1. ValueError and ImportError as of check(), and OSError where no file can be put there, before
    anything is read; OSError where a source cannot be read."""
    suffix = check(path)
    check_place(Path(path))
    report = load(*sources, progress=progress)
    progress("writing", 0.0)
    replace(Path(path), render(report, suffix))
    return report
