"""What the native half saw of busy time, gathered by function in bounded memory.

Its accounts come to the reporter now and then, when they are full, and to whoever reads a profile, so that it is
complete. Both add to one table, which is exact in its totals: what is given up for want of room goes to the row
"other".
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from loopwatch._build import Context, looks_of, with_somebody_to_blame
from loopwatch._capture import look_at
from loopwatch._clock import monotonic
from loopwatch._culprit import Function, blamed_frame, function_of, heaviest_line
from loopwatch._profile import Profile, ProfileRow
from loopwatch._stall import Frame, Verdict

if TYPE_CHECKING:
    from loopwatch._core import Record

SITES_MAX: Final = 500
"""So many functions are kept for sure, the largest; twice as many for a while."""
LINES_MAX: Final = 8
"""Of a function."""
TASKS_MAX: Final = 500

_ASK_NS: Final = 250_000_000
_AWAIT_SECONDS: Final = 0.25


class HasProfile(Protocol):
    """A Slot, as far as it matters here."""

    def profile(self, slow: bool, timeout_ns: int) -> Record | None: ...


@dataclass(slots=True)
class _Sums:
    seconds: float = 0.0
    samples: int = 0
    worst: float = 0.0

    def add(self, seconds: float, samples: int, worst: float) -> None:
        self.seconds += seconds
        self.samples += samples
        self.worst = max(self.worst, worst)

    def row(self, frame: Frame | None, total: float) -> ProfileRow:
        share = self.seconds / total if total else 0.0
        return ProfileRow(frame, self.seconds, share, self.samples, self.worst)


@dataclass(slots=True)
class _Site(_Sums):
    lines: dict[Frame, float] = field(default_factory=dict)

    def add_line(self, frame: Frame, seconds: float) -> None:
        if frame not in self.lines and len(self.lines) >= LINES_MAX:
            least = min(self.lines, key=self.lines.__getitem__)
            # The newcomer takes over what the least one had: a line that goes on growing is kept.
            self.lines[frame] = self.lines.pop(least)
        self.lines[frame] = self.lines.get(frame, 0.0) + seconds

    @property
    def frame(self) -> Frame:
        return heaviest_line(self.lines)


class Table:
    """Sums by function, coroutine and cause; plain arithmetic, for one thread at a time."""

    def __init__(self, sites_max: int = SITES_MAX, tasks_max: int = TASKS_MAX) -> None:
        self._sites_max, self._tasks_max = sites_max, tasks_max
        self._sites: dict[Function, _Site] = {}
        self._other = _Sums()
        self._all = _Sums()
        self._tasks: dict[str, float] = {}
        self._causes: dict[Verdict, float] = {}

    def __len__(self) -> int:
        return len(self._sites)

    def add(
        self,
        frame: Frame | None,
        seconds: float,
        samples: int = 1,
        *,
        worst: float = 0.0,
        coroutine: str | None = None,
        cause: Verdict = Verdict.UNKNOWN,
    ) -> None:
        self._all.add(seconds, samples, worst)
        self._causes[cause] = self._causes.get(cause, 0.0) + seconds
        if coroutine:
            self._add_task(coroutine, seconds)
        if frame is None:
            self._other.add(seconds, samples, worst)
            return
        site = self._sites.get(function_of(frame))
        if site is None:
            if len(self._sites) >= 2 * self._sites_max:
                self._give_up_the_least()
            site = self._sites[function_of(frame)] = _Site()
        site.add(seconds, samples, worst)
        site.add_line(frame, seconds)

    def _give_up_the_least(self) -> None:
        """Half of them at once, so that each addition costs little on average."""
        by_weight = sorted(self._sites.items(), key=lambda item: -item[1].seconds)
        for _, site in by_weight[self._sites_max :]:
            self._other.add(site.seconds, site.samples, site.worst)
        self._sites = dict(by_weight[: self._sites_max])

    def _add_task(self, coroutine: str, seconds: float) -> None:
        if coroutine not in self._tasks and len(self._tasks) >= 2 * self._tasks_max:
            by_weight = sorted(self._tasks.items(), key=lambda item: -item[1])
            self._tasks = dict(by_weight[: self._tasks_max])
        self._tasks[coroutine] = self._tasks.get(coroutine, 0.0) + seconds

    def snapshot(self) -> Profile:
        total = self._all.seconds
        sites = sorted(self._sites.values(), key=lambda site: -site.seconds)
        return Profile(
            total,
            self._all.samples,
            tuple(site.row(site.frame, total) for site in sites),
            self._other.row(None, total),
            dict(sorted(self._tasks.items(), key=lambda item: -item[1])),
            {cause: self._causes[cause] for cause in Verdict if cause in self._causes},
        )


class _Account:
    """One of the two accounts: its table, and which of its records are in it."""

    def __init__(self, slow: bool) -> None:
        self.slow = slow
        self.table = Table()
        self.taken = 0
        """The number of the last record that came by way of the reporter, or was asked for."""


class Profiler:
    """The accounts of one watch. Any thread."""

    def __init__(
        self,
        slot: HasProfile,
        own: tuple[str, ...],
        redact: Callable[[str], str] | None,
        on_reporter: Callable[[], bool],
    ) -> None:
        self._slot, self._own, self._on_reporter = slot, own, on_reporter
        self._redact = functools.lru_cache(TASKS_MAX)(redact) if redact is not None else None
        self._sampled, self._slow = _Account(slow=False), _Account(slow=True)
        self._changed = threading.Condition()

    def renew(self) -> None:
        """In a forked child: whoever had the lock is not here, and the numbers begin anew."""
        self._changed = threading.Condition()
        self._sampled.taken = self._slow.taken = 0

    def take(self, record: Record) -> None:
        """On the reporter's thread."""
        account = self._slow if record["kind"] == "slow" else self._sampled
        with self._changed:
            self._add(account, record)
            self._note(account, record["id"])

    def look(self, record: Record, loop: asyncio.AbstractEventLoop | None) -> None:
        """On the reporter's thread, with the GIL (capture="gil"): the watchdog has seen the cause, and that the loop
        was busy; where it is now is most likely where it was."""
        seen = look_at(record["ident"], loop)
        frames, task = seen if seen is not None else ((), None)
        coroutine = task.coroutine if task is not None else None
        with self._changed:
            for cause, ns in record["breakdown"].items():
                verdict = Verdict(cause)
                # It waited for a GIL that another thread had, which is over.
                frame = None if verdict is Verdict.GIL else blamed_frame(frames, self._own, coroutine)
                shown = self._shown(coroutine)
                self._sampled.table.add(frame, ns / 1e9, record["id"], coroutine=shown, cause=verdict)

    def read(self, *, slow: bool) -> Profile:
        """Everything up to now. Waits, half a second at most, for the watchdog and for the reporter."""
        account = self._slow if slow else self._sampled
        record = self._slot.profile(slow, _ASK_NS)
        with self._changed:
            if record is not None:
                self._await_earlier(account, record["id"])
                self._add(account, record)
            return account.table.snapshot()

    def _await_earlier(self, account: _Account, number: int) -> None:
        """The records before this one are on their way, by the reporter."""
        if not self._on_reporter():
            deadline = monotonic() + _AWAIT_SECONDS
            while account.taken < number - 1:
                left = deadline - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
        self._note(account, number)

    def _note(self, account: _Account, number: int) -> None:
        account.taken = max(account.taken, number)
        self._changed.notify_all()

    # --- with the lock ---

    def _add(self, account: _Account, record: Record) -> None:
        # Without the loop: the tasks' names, which it would be asked for, are of no use here.
        looks = looks_of(record, Context(own=self._own))
        blamed = set(with_somebody_to_blame(looks))
        for index, (look, (count, worst_ns)) in enumerate(zip(looks, record["tallied"], strict=True)):
            sample = look.sample
            coroutine = look.task.coroutine if look.task is not None else None
            frame = blamed_frame(sample.frames, self._own, look.coroutine) if index in blamed else None
            account.table.add(
                frame,
                sample.weight,
                count,
                worst=worst_ns / 1e9,
                coroutine=self._shown(coroutine),
                cause=sample.verdict,
            )

    def _shown(self, coroutine: str | None) -> str | None:
        return self._redact(coroutine) if self._redact is not None and coroutine else coroutine
