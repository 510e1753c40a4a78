"""What a status page says, in words: lines for a terminal or a file, without anything that could move a cursor."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from loopwatch import _page
from loopwatch._page import Page
from loopwatch._text import printable, seconds, spot
from loopwatch.cli._page_check import sound
from loopwatch.cli._page_source import source_line

_FRAME: Final = re.compile(r'  File "(?P<file>.*)", line (?P<line>-?[0-9]{1,9}), in (?P<function>.*)')
_DEPTH_MAX: Final = 8


# --- which page ---


def page_of(text: str) -> Path:
    """Of a process id, or a path. A process without a page whose descendants have one stands for these: `loopwatch run`
    and the master of a pre-fork server. FileNotFoundError, or ValueError where there are several."""
    if not text.isdecimal():
        return Path(text)
    pid = int(text)
    try:
        return _page.find(pid)
    except FileNotFoundError as problem:
        found = {child: path for child in _descendants(pid) if (path := _page_or_none(child))}
        if len(found) > 1:
            numbers = ", ".join(map(str, found))
            raise ValueError(
                f"process {pid} has no status page; several of its children have one: {numbers}"
            ) from None
        if not found:
            raise FileNotFoundError(str(problem)) from None
        return next(iter(found.values()))


def _page_or_none(pid: int) -> Path | None:
    try:
        return _page.find(pid)
    except FileNotFoundError:
        return None


def _descendants(pid: int, depth: int = 0) -> Iterator[int]:
    if depth > _DEPTH_MAX:
        return
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child, depth + 1)


def read(path: Path) -> Page:
    """OSError where it cannot be read, PageError where it is no page."""
    try:
        return sound(_page.read(path))
    except RecursionError:
        raise _page.PageError(f"{path} is not a status page of loopwatch: it is nested too deeply") from None


def asked_for(text: str, command: str) -> Page | None:
    """The page that a command's argument names. None: it was said why there is none."""
    try:
        return read(page_of(text))
    except (OSError, ValueError) as problem:
        print(printable(f"loopwatch {command}: {problem}"), file=sys.stderr)
        return None


# --- what it says ---


@dataclass(frozen=True, slots=True)
class Now:
    """The moment at which a page is looked at."""

    ns: int
    """Of a page that is not written to any more, when it was written last."""
    alive: bool
    """The process."""
    written: bool
    """Whether the process keeps the page still."""


def moment(page: Page, *, lost: bool = False) -> Now:
    """`lost`: the page is no longer where it was read."""
    alive = page.alive
    written = alive and not lost
    return Now(time.monotonic_ns() if written else int(page.body.get("at", 0)), alive, written)


def title(page: Page, now: Now) -> str:
    head = page.head
    command = shlex.join(head["argv"]) or "?"
    state = "runs" if now.alive else "is gone"
    return printable(
        f"process {page.pid} {state}: {command} ({head['python']}, loopwatch {head['loopwatch']})"
    )


def nanoseconds(value: float) -> str:
    return seconds(value / 1e9)


def utilization(loop: Mapping[str, Any], page: Page, now: Now) -> float | None:
    """Of about the last ten seconds. What goes on since the page was written goes on still."""
    recent = loop.get("recent")
    if recent is None or "phase" not in loop or not {"busy", "idle"} <= recent.keys():
        return None
    if loop["pulse"] == "heartbeat":
        return None
    since = max(0, now.ns - page.body["at"])
    kept = max(0.0, 1 - since / max(1.0, recent["seconds"] * 1e9))
    busy, idle = recent["busy"] * kept, recent["idle"] * kept
    if loop["phase"] == "busy":
        busy += since
    else:
        idle += since
    return busy / (busy + idle) if busy + idle else None


@dataclass(frozen=True, slots=True)
class LoopRow:
    """One loop, each cell in words; "-" where this pulse or this moment cannot tell."""

    thread: str
    state: str
    busy: str
    worst: str
    waiting: str
    gc: str
    turns: str
    stalls: str


LOOP_TITLES: Final = LoopRow(
    "loop of thread", "state", "busy", "worst turn", "waits p99", "gc", "turns", "stalls"
)


def loop_row(loop: Mapping[str, Any], page: Page, now: Now) -> LoopRow:
    recent: Mapping[str, Any] = loop.get("recent", {})
    share = utilization(loop, page, now)
    phase = str(loop.get("phase", "?"))
    state = {"off": "does not run", "waiting": "waits"}.get(phase, phase)

    def told(name: str) -> str:
        return nanoseconds(recent[name]) if name in recent else "-"

    return LoopRow(
        thread=printable(str(loop.get("thread", "?"))),
        state=printable(state),
        busy="-" if share is None else f"{share:.0%}",
        worst=told("worst"),
        waiting=told("waiting_p99"),
        gc=told("gc"),
        turns="-" if loop["pulse"] == "heartbeat" else str(loop.get("turns", "-")),
        stalls=str(loop["stalls"]),
    )


def current_line(stall: Mapping[str, Any], now: Now) -> str:
    """blocked for 3.20 s so far: gil in spin (worker.py:12), task 'x'"""
    age = (now.ns if now.written else stall["seen"]) - stall["begin"]
    how_long = "so far" if now.written else "when this was written"
    return printable(f"blocked for {nanoseconds(age)} {how_long}: {stall['verdict']}{_where(stall)}")


def past_line(stall: Mapping[str, Any], page: Page) -> str:
    began = datetime.fromtimestamp((stall["begin"] + page.wall_offset_ns) / 1e9).astimezone()
    return printable(
        f"{began:%H:%M:%S}  {nanoseconds(stall['end'] - stall['begin'])}  {stall['verdict']}{_where(stall)}"
    )


def _where(stall: Mapping[str, Any]) -> str:
    place = task = ""
    if "function" in stall:
        place = f" in {spot(stall['function'], stall['file'], stall['line'])}"
    if stall.get("task"):
        task = f", task {stall['task']!r}"
    return place + task


def executor_lines(page: Page, now: Now) -> Iterator[str]:
    """executor 'default' was full 2.0 s ago: a call had waited for 1.20 s; 12 of 12 workers busy, 30 queued"""
    for it in page.body.get("executors") or ():
        ago = nanoseconds(max(0, now.ns - it["at"]))
        yield printable(
            f"executor {it['name']!r} was full {ago} ago: a call had waited for {seconds(it['waited'])}; "
            f"{it['busy']} of {it['workers']} workers busy, {it['queued']} queued"
        )


def causes_line(stall: Mapping[str, Any]) -> str:
    causes = sorted(stall["causes"].items(), key=lambda item: -item[1])
    return printable(", ".join(f"{cause} {nanoseconds(ns)}" for cause, ns in causes))


def stack_lines(stall: Mapping[str, Any], page: Page) -> list[str]:
    """As a traceback has them; with the lines of the files, where they can be read and are still what they were."""
    lines = []
    for line in stall.get("stack", "").splitlines():
        lines.append(printable(line))
        frame = _FRAME.fullmatch(line)
        if frame and (code := source_line(page, frame["file"], int(frame["line"]))):
            lines.append(f"    {printable(code)}")
    return lines


# --- all of it ---


def report(page: Page) -> Iterator[str]:
    """For `loopwatch post`, and whoever pipes."""
    now = moment(page)
    yield title(page, now)
    body = page.body
    if not body:
        yield (
            "It has not written anything yet." if now.alive else "It was gone before it had written anything."
        )
        return
    written = datetime.fromtimestamp(body["wall"] / 1e9).astimezone()
    ago = max(0.0, time.time() - body["wall"] / 1e9)
    yield f"last change written at {written:%Y-%m-%d %H:%M:%S}" + (
        f", {seconds(ago)} ago" if ago < 60 else ""
    )
    for loop in body["loops"]:
        row = loop_row(loop, page, now)
        yield (
            f"loop of {row.thread}: {row.state}; in the last seconds busy {row.busy}, worst turn {row.worst}, "
            f"waits p99 {row.waiting}, gc {row.gc}; in all {row.turns} turns, stalls: {row.stalls}"
        )
    if not body["loops"]:
        yield "no loop was watched"
    yield from executor_lines(page, now)
    for stall in body["current"]:
        yield ""
        yield f"The loop of {thread_of(stall, body)} {'is' if now.alive else 'was'} {current_line(stall, now)}"
        if causes := causes_line(stall):
            yield f"  so far: {causes}"
        yield from stack_lines(stall, page)
    if body["stalls"]:
        yield ""
        yield "Last stalls:"
        for stall in body["stalls"]:
            yield f"  {past_line(stall, page)}"


def thread_of(stall: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    names = {loop["key"]: loop.get("thread", "?") for loop in body["loops"]}
    return printable(str(names.get(stall["key"], "?")))
