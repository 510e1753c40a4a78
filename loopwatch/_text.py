"""A stall in words. Pure functions of a Stall: nothing is read, asked or remembered."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final, Protocol

from loopwatch._clues import library_functions, names
from loopwatch._culprit import find_import, inside_turn, is_import_machinery
from loopwatch._paths import library_module
from loopwatch._stall import Frame, Stall, ThreadInfo, Verdict

WIDTH: Final = 100
"""Columns of the full text; what must stay in one piece, as a path, may be longer."""
_BAR: Final = 40
_SHARE_SHOWN: Final = 0.005
"""Of the duration: a cause or site below it would be shown as 0%."""
_SITES_SHOWN: Final = 12


def seconds(value: float) -> str:
    """1.25 s, 340 ms, 12.5 ms: three digits that count."""
    if value >= 0.9995:
        return f"{value:.2f} s"
    return f"{value * 1000:.0f} ms" if value >= 0.0995 else f"{value * 1000:.1f} ms"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """1 stall, 2 stalls"""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def place(frame: Frame) -> str:
    """load (app.py:12)"""
    return spot(frame.qualname, frame.filename, frame.lineno)


def spot(function: str, filename: str, line: int) -> str:
    return f"{function} ({PurePath(filename).name}:{line})"


def summary(stall: Stall) -> str:
    """Duration, verdict, culprit, task: one line."""
    how_long = f"blocked for {seconds(stall.duration)}" + (" so far" if stall.ongoing else "")
    return printable(f"event loop {how_long}: {stall.verdict}{_where(stall)}")


def printable(text: str) -> str:
    """One line of harmless characters, whatever somebody called a task or a function."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _where(stall: Stall) -> str:
    text = f" in {place(stall.culprit)}" if stall.culprit else ""
    return f"{text}, task {stall.task.name!r}" if stall.task else text


def full_text(stall: Stall) -> str:
    """A sentence for everyone, then what a developer needs, and what to do."""
    parts: list[tuple[str, Iterable[str]]] = [
        ("", _wrapped(sentence(stall))),
        ("Why:", _causes(stall)),
        ("Steps:", _steps(stall)),
        ("Where:", _sites(stall)),
        (stack_title(stall), _stack(stall)),
        (holder_title(stall), _holder(stall)),
        ("Evidence:", _evidence(stall)),
        ("", _wrapped(f"What to do: {stall.hint}" if stall.hint else "")),
    ]
    lines: list[str] = []
    for title, body in parts:
        if found := list(body):
            lines += [*([""] if lines else []), *([title] if title else []), *found]
    return "\n".join(printable(line.expandtabs(4)) for line in lines)


def _wrapped(text: str, indent: str = "", hanging: str = "") -> list[str]:
    return textwrap.wrap(
        printable(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- the sentence ---


def sentence(stall: Stall) -> str:
    whose = "The event loop" if stall.thread == "MainThread" else f"The event loop of thread {stall.thread!r}"
    blocked, was = ("has been blocked for", "is") if stall.ongoing else ("was blocked for", "was")
    return f"{whose} {blocked} {seconds(stall.duration)}: {_SAYINGS[stall.verdict](stall, was)}."


def _culprit(stall: Stall) -> str:
    """load (orders.py line 20)"""
    if stall.culprit is None:
        return "it"
    name = stall.culprit.qualname if stall.culprit.qualname != "<module>" else "a module's own code"
    return f"{name} ({PurePath(stall.culprit.filename).name} line {stall.culprit.lineno})"


def _subject(stall: Stall) -> str:
    """load (orders.py line 20), in task 'checkout',"""
    if stall.task is None:
        return _culprit(stall)
    if stall.culprit is None:
        return f"task {stall.task.name!r}"
    return f"{_culprit(stall)}, in task {stall.task.name!r},"


def _imported(stall: Stall) -> str | None:
    """What the culprit imports, where it does."""
    found = find_import(stall.frames)
    if found is None or stall.culprit not in stall.frames[: found.by + 1]:
        return None
    return found.module or "a module"


def _doing(what: str) -> Callable[[Stall, str], str]:
    def say(stall: Stall, was: str) -> str:
        imported = _imported(stall)
        return f"{_subject(stall)} {was} {f'importing {imported}' if imported else what}"

    return say


def _say_lock(stall: Stall, was: str) -> str:
    functions = library_functions(stall)
    waits = (what for wanted, what in _LOCKS.items() if any(names(wanted, each) for each in functions))
    return _doing(f"waiting for {next(waits, 'a lock')}")(stall, was)


def _say_call(stall: Stall, was: str) -> str:
    syscall, target = stall.evidence.syscall, stall.evidence.target
    if _imported(stall) or not (syscall or target):
        return _doing("waiting in a blocking call")(stall, was)
    if syscall in _SLEEPS:
        return f"{_subject(stall)} {was} sleeping"
    if not target:
        return f"{_subject(stall)} {was} waiting in the system call {syscall}"
    return f"{_subject(stall)} {was} waiting for {target}" + (f" (system call {syscall})" if syscall else "")


def _say_gil(stall: Stall, was: str) -> str:
    name = stall.holder.name if stall.holder else "?"
    who = "another thread" if name == "?" else f"thread {name!r}"
    running = f", running {_culprit(stall)}," if stall.culprit else ""
    collecting = (stall.evidence.gc_time or 0.0) >= stall.breakdown[Verdict.GIL] / 2
    doing = "collecting garbage and holding" if collecting else "holding"
    what = f"task {stall.task.name!r}" if stall.task else "Python"
    return f"{who}{running} {was} {doing} the GIL, which the loop needs to run {what}"


def _say_gc(stall: Stall, was: str) -> str:
    generation = stall.evidence.gc_generation
    which = "" if generation is None else f" of generation {generation}"
    where = f", started in {_subject(stall).rstrip(',')}" if stall.culprit else ""
    return f"Python {was} collecting garbage{which}{where}"


def _say_many(stall: Stall, was: str) -> str:
    ran = "is running" if was == "is" else "ran"
    count = stall.evidence.callbacks
    mostly = f", most of the time {_culprit(stall)}" if stall.culprit else ""
    return f"it {ran} {count if count is not None else 'many'} short callbacks in one turn{mostly}"


def _say_unscheduled(stall: Stall, was: str) -> str:
    throttled = stall.evidence.throttled_time or 0.0
    quota = throttled >= stall.breakdown[Verdict.NOT_SCHEDULED] / 2
    why = "the quota of its container is used up" if quota else "the machine is busy, or short of memory"
    return f"its thread {was} ready to run, but without a CPU ({why})"


_LOCKS: Final = {
    "queue": "a queue",
    "concurrent.futures": "a future of another thread",
    "threading:Thread.join": "another thread to end",
    "threading:Event.wait": "an event of another thread",
}
_SLEEPS: Final = {"clock_nanosleep", "nanosleep"}
_SAYINGS: Final[dict[Verdict, Callable[[Stall, str], str]]] = {
    Verdict.SUSPENDED: lambda _, was: f"the whole process {was} stopped from outside",
    Verdict.NOT_SCHEDULED: _say_unscheduled,
    Verdict.GIL: _say_gil,
    Verdict.GC: _say_gc,
    Verdict.PYTHON: _doing("running Python code"),
    Verdict.NATIVE: _doing("running C code"),
    Verdict.LOCK: _say_lock,
    Verdict.BLOCKING_CALL: _say_call,
    Verdict.MANY_CALLBACKS: _say_many,
    Verdict.UNKNOWN: _doing("busy or waiting; which of the two could not be seen"),
}


# --- the tables ---


def _row(part: float, whole: float) -> str:
    share = f"{part / whole:4.0%}" if whole > 0 else ""
    return f"{seconds(part):>8} {share}"


def _causes(stall: Stall) -> Iterator[str]:
    for verdict, part in sorted(stall.breakdown.items(), key=lambda item: -item[1]):
        if part < _SHARE_SHOWN * stall.duration and verdict is not stall.verdict:
            continue
        filled = round(_BAR * min(part / stall.duration, 1.0)) if stall.duration > 0 else 0
        yield f"  {verdict:<14} {_row(part, stall.duration)}  {'#' * filled}".rstrip()
    if stall.overdue:
        yield "  It began with a wait that did not come back when it was due."


def _steps(stall: Stall) -> Iterator[str]:
    width = min(max(map(len, stall.steps), default=0), 40)
    for name, part in stall.steps.items():
        yield f"  {name:<{width}} {_row(part, stall.duration)}"


def _sites(stall: Stall) -> Iterator[str]:
    sites = [site for site in stall.sites if site[1] >= _SHARE_SHOWN * stall.duration]
    if [frame for frame, _ in sites] in ([], [stall.culprit]):
        return  # the sentence has said it
    for frame, part in sites[:_SITES_SHOWN]:
        yield f"  {_row(part, stall.duration)}  {frame.qualname} ({_short(frame.filename)}:{frame.lineno})"
        if line := stall.source.get((frame.filename, frame.lineno)):
            yield _cut(f"{'':17}{line}")
    if len(sites) > _SITES_SHOWN:
        yield f"  and {len(sites) - _SITES_SHOWN} more"


def _short(filename: str) -> str:
    return "/".join(PurePath(filename).parts[-2:])


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


# --- stacks ---


def stack_title(stall: Stall) -> str:
    holder = stall.holder
    if holder and stall.frames == holder.frames:
        return f"Stack of {called(holder)}, which held the GIL (most recent call last):"
    whose = "" if stall.culprit else " of the loop's thread"
    return f"Stack{whose} (most recent call last):"


def holder_title(stall: Stall) -> str:
    if stall.holder is None:
        return ""
    return f"The GIL was held by {called(stall.holder)} (most recent call last):"


def called(thread: ThreadInfo) -> str:
    return f"thread {thread.native_thread_id if thread.name == '?' else repr(thread.name)}"


def _stack(stall: Stall) -> Iterator[str]:
    yield from stack_lines(stall.frames, stall, stall.truncated)


def _holder(stall: Stall) -> Iterator[str]:
    if stall.holder and stall.holder.frames != stall.frames:
        yield from stack_lines(stall.holder.frames, stall)


_THREADS: Final = {"threading", "concurrent.futures.thread"}


class HasSource(Protocol):
    """A report, as far as it matters here."""

    @property
    def source(self) -> Mapping[tuple[str, int], str]: ...


def stack_lines(frames: Sequence[Frame], report: HasSource, truncated: int = 0) -> Iterator[str]:
    """As in a traceback, source where it is known. What started the loop, the import system and runs of one
    line are folded."""
    outer, why = outer_frames(frames)
    if outer:
        yield f"  [{counted(outer, 'frame')} that {why}]"
    last, times, machinery = None, 0, 0
    for index, frame in enumerate(frames[outer:], outer):
        if truncated and index == 128:
            yield f"  [{counted(truncated, 'frame')} missing here]"
        if is_import_machinery(frame):
            machinery += 1
            continue
        if machinery:
            yield f"  [{counted(machinery, 'frame')} of the import system]"
            machinery = 0
        key = (frame.filename, frame.lineno, frame.qualname)
        times = times + 1 if key == last else 1
        last = key
        if times > 3:
            continue
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.qualname}'
        if line := report.source.get((frame.filename, frame.lineno)):
            yield _cut(f"    {line}")
        if times == 3:
            yield "  [the same line again and again is shown three times]"
    if machinery:
        yield f"  [{counted(machinery, 'frame')} of the import system]"


def outer_frames(frames: Sequence[Frame]) -> tuple[int, str]:
    """How many of the outermost frames say nothing of this stall, and what they did."""
    loop = len(frames) - len(inside_turn(frames))
    if loop:
        handle = loop < len(frames) - 1 and frames[loop].qualname == "Handle._run"
        return loop + handle, "started and run the loop"
    threads = (library_module(frame.filename) in _THREADS for frame in frames[:-1])
    return sum(itertools.takewhile(bool, threads)), "started the thread"


# --- what is known beside ---

_NAMES: Final = {
    "cpu_time": "CPU time",
    "gil_wait": "wait for the GIL",
    "run_queue_wait": "wait for a CPU",
    "throttled_time": "throttled",
    "gc_time": "garbage collection",
    "gc_generation": "generation",
    "major_faults": "major page faults",
    "callbacks": "callbacks in the turn",
    "syscall": "system call",
    "target": "waits for",
    "watchdog_late": "watchdog late by",
}
_SHOWN_AT_0: Final = {"cpu_time", "gc_generation"}


def _evidence(stall: Stall) -> Iterator[str]:
    known = [
        f"{name} {_value(value)}"
        for field, name in _NAMES.items()
        if (value := getattr(stall.evidence, field)) or (value is not None and field in _SHOWN_AT_0)
    ]
    if stall.labels:
        known += [f"{name}={value}" for name, value in stall.labels.items()]
    qualities = Counter(sample.quality for sample in stall.samples)
    counts = ", ".join(f"{count} {quality}" for quality, count in qualities.most_common())
    known.append(f"{counted(len(stall.samples), 'sample')}{f' ({counts})' if counts else ''}")
    yield from _wrapped("; ".join(known), "  ", "  ")
    began = stall.started_at.isoformat(sep=" ", timespec="milliseconds")
    task = f"; task {stall.task.name!r} ({stall.task.coroutine})" if stall.task else ""
    yield from _wrapped(
        f"stall {stall.id}, began {began}; thread {stall.thread!r} ({stall.native_thread_id}){task}; "
        f"fingerprint {stall.fingerprint}",
        "  ",
        "  ",
    )


def _value(value: float | int | str) -> str:
    return seconds(value) if isinstance(value, float) else str(value)
