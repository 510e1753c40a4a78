"""A full thread pool in words: what a saturation report is, and its text."""

from __future__ import annotations

import dataclasses
import functools
import logging
import textwrap
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from loopwatch._build import source_lines
from loopwatch._culprit import blamed_frame, function_of
from loopwatch._limit import HeldBack
from loopwatch._log import LimitedLog, in_the_last, log_report
from loopwatch._options import Logger
from loopwatch._pool import ExecutorState
from loopwatch._stall import Frame, ThreadInfo, no_source
from loopwatch._text import WIDTH, counted, place, printable, seconds, stack_lines
from loopwatch._workers import WORKERS_MAX

if TYPE_CHECKING:
    from loopwatch._executors import Executor

_STACKS_SHOWN: Final = 8
_HINT: Final = (
    "What to do: calls that wait for the same slow thing fill the pool for all others; give each blocking "
    "dependency an executor of its own, with as many threads as it can serve, and limit how many calls "
    "are submitted at once (a semaphore) rather than let them queue."
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Saturation:
    """A call has waited for a worker of a full thread pool for longer than the threshold."""

    executor: Executor
    waited: float
    """Seconds that the oldest call in the queue has waited so far."""
    state: ExecutorState
    workers: tuple[ThreadInfo, ...] = ()
    """What the workers were doing: at most 32; without frames where none could be read."""
    culprit: Frame | None = None
    """Where most workers are: in each the innermost frame of the program's own code, by function."""
    source: Mapping[tuple[str, int], str] = field(default_factory=no_source)
    """(filename, lineno) → the line, for the frames that `format()` shows."""

    @property
    def summary(self) -> str:
        """One line, for a log."""
        state = self.state
        where = f", most in {place(self.culprit)}" if self.culprit else ""
        return printable(
            f"executor {state.name!r} is full: a call has waited for {seconds(self.waited)}; "
            f"{state.busy} of {state.max_workers} workers busy{where}; {state.queued} queued"
        )

    def format(self) -> str:
        """The full text: a plain sentence first, then what the workers do, then what to do about it."""
        state = self.state
        lines = textwrap.wrap(
            f"Thread pool {printable(state.name)!r} is full: all of its {state.max_workers} workers are busy, "
            f"and {state.queued} calls wait for one, the first of them for {seconds(self.waited)}. The event "
            "loop is not blocked; who awaits these calls waits.",
            WIDTH,
        )
        groups = Counter(worker.frames for worker in self.workers if worker.frames)
        for frames, count in groups.most_common(_STACKS_SHOWN):
            lines += ["", f"{count} of the workers (most recent call last):", *stack_lines(frames, self)]
        if len(groups) > _STACKS_SHOWN:
            lines += ["", f"and {len(groups) - _STACKS_SHOWN} other stacks"]
        counts = f"submitted {state.submitted}; completed {state.completed}"
        lines += ["", f"  {counts}; saturated for {seconds(state.saturated)} in all"]
        lines += ["", *textwrap.wrap(_HINT, WIDTH)]
        return "\n".join(printable(line.expandtabs(4)) for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready. Each stack once: "workers" index "stacks"."""
        stacks: dict[tuple[Frame, ...], int] = {}
        workers = [
            {
                "name": worker.name,
                "native_thread_id": worker.native_thread_id,
                "stack": stacks.setdefault(worker.frames, len(stacks)),
            }
            for worker in self.workers
        ]
        return {
            "executor": self.state.name,
            "waited": self.waited,
            "state": dataclasses.asdict(self.state),
            "workers": workers,
            "stacks": [[dataclasses.asdict(frame) for frame in stack] for stack in stacks],
            "culprit": dataclasses.asdict(self.culprit) if self.culprit else None,
            "source": [[filename, lineno, line] for (filename, lineno), line in self.source.items()],
            "summary": self.summary,
        }

    def __repr__(self) -> str:
        return f"<Saturation: {self.summary}>"


def build_saturation(
    executor: Executor,
    state: ExecutorState,
    seen: tuple[Sequence[threading.Thread], Mapping[int, tuple[Frame, ...]]],
    own: tuple[str, ...],
    redact: Callable[[str], str],
) -> Saturation:
    """`seen`: the workers, and the frames of those that could be looked at, by ident."""
    threads, frames = seen
    workers = tuple(
        ThreadInfo(thread.name, thread.native_id or 0, frames.get(thread.ident or 0, ()))
        for thread in threads[:WORKERS_MAX]
    )
    return Saturation(
        executor=executor,
        waited=state.oldest_wait,
        state=state,
        workers=workers,
        culprit=busiest(workers, own),
        source=source_lines(_shown_frames(workers), redact),
    )


class SaturationLog(LimitedLog[Saturation]):
    """With a limit for each executor."""

    def take(self, saturation: Saturation) -> None:
        name = saturation.state.name
        if self.limiter.ask(name, saturation.waited):
            self._log(saturation, saturation.summary)
        else:
            self.limiter.hold_back(name, saturation, saturation.waited)

    def _tell_sum(self, held_back: HeldBack[Saturation]) -> None:
        self._log(held_back.worst, held_back_summary(held_back))

    def _log(self, saturation: Saturation, message: str) -> None:
        self._write(functools.partial(log_saturation, self._logger, saturation, message))


def log_saturation(logger: Logger, saturation: Saturation, message: str) -> None:
    """WARNING"""
    report = {"saturation": saturation}
    log_report(logger, logging.WARNING, message, saturation.culprit, report, saturation.format)


def held_back_summary(held_back: HeldBack[Saturation]) -> str:
    """2 more reports of executor 'io' in the last 60 s were held back: a call had waited for up to 1.25 s"""
    worst = held_back.worst
    where = f", most workers in {place(worst.culprit)}" if worst.culprit else ""
    return printable(
        f"{counted(held_back.count, 'more report')} of executor {worst.state.name!r} being full "
        f"{in_the_last(held_back)}: a call had waited for {seconds(worst.waited)} at most{where}"
    )


def busiest(workers: Sequence[ThreadInfo], own: tuple[str, ...]) -> Frame | None:
    """The `culprit` of a saturation; `own` as given to install()."""
    found = [frame for worker in workers if (frame := blamed_frame(worker.frames, own))]
    functions = Counter(map(function_of, found))
    if not functions:
        return None
    function, _ = functions.most_common(1)[0]
    lines = Counter(frame for frame in found if function_of(frame) == function)
    return lines.most_common(1)[0][0]


def _shown_frames(workers: Sequence[ThreadInfo]) -> list[Frame]:
    """Those whose source `format()` shows."""
    groups = Counter(worker.frames for worker in workers)
    return [frame for frames, _ in groups.most_common(_STACKS_SHOWN) for frame in frames]
