"""Where a loop's busy time goes: plain immutable data, and the difference of two of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from loopwatch._culprit import function_of
from loopwatch._stall import Frame, Verdict


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One function to look at, at its heaviest line. Of a stall it would be the culprit."""

    frame: Frame | None
    """None: what is not in any row, because there were too many or nobody's frames could be read."""
    seconds: float
    """Busy time of the loop."""
    share: float
    """Of the profile's seconds, 0 to 1."""
    samples: int
    """How often the loop was seen there; in `watch.slow_turns` how many slow turns were mostly there."""
    worst: float = 0.0
    """Seconds of the longest of these turns; 0.0 in `watch.profile`."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        frame = self.frame
        return {
            "frame": None if frame is None else {item.name: getattr(frame, item.name) for item in _FRAME},
            "seconds": self.seconds,
            "share": self.share,
            "samples": self.samples,
            "worst": self.worst,
        }


_FRAME = dataclasses.fields(Frame)


def _no_tasks() -> Mapping[str, float]:
    return MappingProxyType({})


def _no_causes() -> Mapping[Verdict, float]:
    return MappingProxyType({})


@dataclass(frozen=True, repr=False)
class Profile(Sequence[ProfileRow]):
    """A snapshot. As a sequence, its rows. `newer - older` is the profile of the time between the two."""

    seconds: float = 0.0
    """Busy time of the loop that was seen, all of it: the rows and `other` add up to it."""
    samples: int = 0
    rows: tuple[ProfileRow, ...] = ()
    """Largest first."""
    other: ProfileRow = ProfileRow(None, 0.0, 0.0, 0)
    tasks: Mapping[str, float] = field(default_factory=_no_tasks)
    """Seconds by the qualified name of the coroutine whose task ran, largest first."""
    causes: Mapping[Verdict, float] = field(default_factory=_no_causes)
    """Seconds by what the loop's thread did, as in `Stall.breakdown`."""

    def __post_init__(self) -> None:
        for name in ("tasks", "causes"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def top(self, n: int = 10) -> tuple[ProfileRow, ...]:
        """The n largest rows, fewer where there are no more. TypeError: n is no whole number."""
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"n must be a whole number, not {n!r}")
        return self.rows[: max(0, n)]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ProfileRow]:
        return iter(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __bool__(self) -> bool:
        """Whether anything was seen."""
        return self.samples > 0

    def __sub__(self, older: object) -> Profile:
        """What came after `older`, a snapshot of the same watch. The `worst` of a row that did not grow in it is
        an upper bound. A row that was given up in between, because there were too many, may have less than it
        had: its difference is left out, and `other` is what remains of the seconds."""
        return _difference(self, older) if isinstance(older, Profile) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.seconds, self.samples, self.rows))

    def __repr__(self) -> str:
        return f"<Profile of {self.seconds:.3f} s in {self.samples} samples, {len(self.rows)} rows>"

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.seconds, self.samples, self.rows, self.other, dict(self.tasks), dict(self.causes))
        return Profile, parts

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "seconds": self.seconds,
            "samples": self.samples,
            "rows": [row.to_dict() for row in self.rows],
            "other": self.other.to_dict(),
            "tasks": dict(self.tasks),
            "causes": {str(verdict): seconds for verdict, seconds in self.causes.items()},
        }


def _grown(newer: Mapping[Any, float], older: Mapping[Any, float]) -> dict[Any, float]:
    grown = {key: seconds - older.get(key, 0.0) for key, seconds in newer.items()}
    return dict(sorted(((k, s) for k, s in grown.items() if s > 0.0), key=lambda pair: -pair[1]))


def _row_between(
    newer: ProfileRow, older: ProfileRow | None, seconds: float, samples: int, total: float
) -> ProfileRow:
    worst = newer.worst if older is None or newer.worst > older.worst else min(newer.worst, seconds)
    return ProfileRow(newer.frame, seconds, seconds / total if total else 0.0, samples, worst)


def _difference(newer: Profile, older: Profile) -> Profile:
    before = {function_of(row.frame): row for row in older.rows if row.frame is not None}
    total = max(0.0, newer.seconds - older.seconds)
    count = max(0, newer.samples - older.samples)
    rows = []
    for row in newer.rows:
        known = before.get(function_of(row.frame)) if row.frame is not None else None
        seconds = row.seconds - (known.seconds if known else 0.0)
        samples = row.samples - (known.samples if known else 0)
        # Sums of seconds are rounded, so what did not grow is told by its samples.
        if seconds > 0.0 and samples >= 0 and (samples or seconds > _ROUNDING):
            rows.append(_row_between(row, known, seconds, samples, total))
    rows.sort(key=lambda row: -row.seconds)
    in_rows, seen = sum(row.seconds for row in rows), sum(row.samples for row in rows)
    other = _row_between(newer.other, older.other, max(0.0, total - in_rows), max(0, count - seen), total)
    return Profile(
        total,
        count,
        tuple(rows),
        other,
        _grown(newer.tasks, older.tasks),
        _grown(newer.causes, older.causes),
    )


_ROUNDING = 1e-9
