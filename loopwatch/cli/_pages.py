"""What a status page says, in words: lines for a terminal or a file, without anything that could move a cursor."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from loopwatch import _text
from loopwatch._page import Page
from loopwatch._stall import Frame
from loopwatch._text import printable, seconds, spot
from loopwatch.cli import _families, _page_check, _pythons
from loopwatch.cli._page_source import frame_of, source_line
from loopwatch.cli._say import say

# --- which page ---


def page_of(text: str) -> Path:
    """Of a process id, or a path. FileNotFoundError, or ValueError where several processes are meant."""
    if text.isdecimal():
        return _families.page_of_process(int(text))
    if not text or not os.path.lexists(text):
        raise FileNotFoundError(f"{text!r} is neither a process id nor the path of a status page")
    return Path(text)


def asked_for(text: str, command: str) -> Page | None:
    """The page that a command's argument names. None: it was said why there is none."""
    try:
        return _page_check.read(page_of(text))
    except OSError as problem:
        told = f"{problem.filename}: {problem.strerror}" if problem.strerror else str(problem)
    except ValueError as problem:
        told = str(problem)
    say(printable(f"loopwatch {command}: {told}"))
    return None


# --- what it says ---


@dataclass(frozen=True, slots=True)
class Now:
    """The moment at which a page is looked at."""

    ns: int
    """Of a page that is not written to any more, when it was written last."""
    alive: bool
    """The process."""
    stopped: bool
    """The process, which is there and does nothing."""
    written: bool
    """Whether the process keeps the page still."""


def moment(page: Page, *, lost: bool = False) -> Now:
    """`lost`: the page is no longer where it was read."""
    alive = page.alive
    stopped = alive and page.stopped
    written = alive and not stopped and not lost
    return Now(time.monotonic_ns() if written else int(page.body.get("at", 0)), alive, stopped, written)


def title(page: Page, now: Now) -> str:
    head = page.head
    state = "is stopped" if now.stopped else "runs" if now.alive else "is gone"
    return printable(
        f"process {page.pid} {state}: {command_of(page)} ({head['python']}, loopwatch {head['loopwatch']})"
    )


def command_of(page: Page) -> str:
    return shlex.join(page.head["argv"]) or "?"


def no_loop_lines(page: Page, now: Now) -> Iterator[str]:
    """Where there is nothing to see: the workers of a pre-fork master run the loops."""
    if page.body.get("loops"):
        return
    children = _pythons.below(page.pid) if now.alive else {}
    below = f"; processes below it that are Python: {', '.join(map(str, children))}" if children else ""
    yield ("no loop is watched" if now.alive else "no loop was watched") + below


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


def age_ns(stall: Mapping[str, Any]) -> int:
    """Of one that goes on, when the page was written: it may have ended since."""
    return max(0, int(stall["seen"] - stall["begin"]))


def current_line(stall: Mapping[str, Any], now: Now) -> str:
    """blocked for 3.20 s so far: gil in spin (worker.py:12), task 'x'"""
    how_long = "so far" if now.written else "when this was written"
    return printable(
        f"blocked for {nanoseconds(age_ns(stall))} {how_long}: {stall['verdict']}{_where(stall)}"
    )


def last_line(stall: Mapping[str, Any]) -> str:
    """blocked when it died, for 3.20 s: gil in spin (worker.py:12), task 'x'"""
    return printable(
        f"blocked when it died, for {nanoseconds(age_ns(stall))}: {stall['verdict']}{_where(stall)}"
    )


def past(page: Page) -> list[Mapping[str, Any]]:
    """Stalls that have ended, of all loops, the one that began last first."""
    return sorted(page.body.get("stalls", ()), key=lambda stall: -int(stall["begin"]))


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
    """As in a stall's own text, with what says nothing of the stall folded; and with the lines of the files, where they
    can be read and are still what they were."""
    lines: list[str] = []
    frames: list[Frame] = []
    for line in stall.get("stack", "").splitlines():
        if (frame := frame_of(line)) is not None:
            frames.append(frame)
        else:
            lines += [*_folded(frames, page), line]
            frames = []
    return [printable(line) for line in [*lines, *_folded(frames, page)]]


def _folded(frames: Sequence[Frame], page: Page) -> Iterator[str]:
    return _text.stack_lines(frames, _Sources(page, frames))


class _Sources:
    """The lines of these frames."""

    def __init__(self, page: Page, frames: Sequence[Frame]) -> None:
        places = {(frame.filename, frame.lineno) for frame in frames}
        self.source: Mapping[tuple[str, int], str] = {place: source_line(page, *place) for place in places}


def written_line(page: Page) -> str:
    """last change written at 2026-12-01 06:18:12, 476 ms ago"""
    written = datetime.fromtimestamp(page.written_ns / 1e9).astimezone()
    ago = max(0.0, time.time() - page.written_ns / 1e9)
    return f"last change written at {written:%Y-%m-%d %H:%M:%S}" + (
        f", {seconds(ago)} ago" if ago < 60 else ""
    )


# --- all of it ---


def report(page: Page) -> Iterator[str]:
    """For `loopwatch post`, and whoever pipes."""
    now = moment(page)
    yield title(page, now)
    body = page.body
    if not body:  # its watchdog has not begun
        yield from no_loop_lines(page, now)
        return
    yield written_line(page)
    for loop in body["loops"]:
        row = loop_row(loop, page, now)
        yield (
            f"loop of {row.thread}: {row.state}; in the last seconds busy {row.busy}, worst turn {row.worst}, "
            f"waits p99 {row.waiting}, gc {row.gc}; in all {row.turns} turns, stalls: {row.stalls}"
        )
    yield from no_loop_lines(page, now)
    yield from executor_lines(page, now)
    for stall in body["current"]:
        yield ""
        yield f"The loop of {thread_of(stall, body)} {'is' if now.written else 'was'} {current_line(stall, now)}"
        if causes := causes_line(stall):
            yield f"  so far: {causes}"
        yield from stack_lines(stall, page)
    if body["stalls"]:
        yield ""
        yield "Last stalls:"
        for stall in past(page):
            yield f"  {past_line(stall, page)}"


def thread_of(stall: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    names = {loop["key"]: loop.get("thread", "?") for loop in body["loops"]}
    return printable(str(names.get(stall["key"], "?")))
