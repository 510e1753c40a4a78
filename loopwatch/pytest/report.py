"""The sites where loops were blocked, over the whole session, from this process and from xdist's workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from loopwatch._cost import Cost
from loopwatch._paths import is_own, relative_path
from loopwatch._stall import OWN, Frame, Stall, own_seconds
from loopwatch._text import printable, seconds

SHOWN: Final = 10


class Site:
    def __init__(self, where: str, cause: str) -> None:
        self.where, self.cause = where, cause
        self.times, self.total, self.worst = 0, 0.0, 0.0
        self.worst_in = ""
        """The test in which the worst was."""

    def add(self, times: int, total: float, worst: float, worst_in: str) -> None:
        self.times += times
        self.total += total
        if worst > self.worst:
            self.worst, self.worst_in = worst, worst_in


class Summary:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._sites: dict[str, Site] = {}
        self.excused: dict[str, float] = {}
        """Seconds by cause, of what was not the program's."""

    def __bool__(self) -> bool:
        return bool(self._sites)

    def add(self, stall: Stall, cost: Cost, test: str) -> None:
        if cost.seconds > 0:
            site = self._sites.setdefault(cost.fingerprint, Site(self._where(cost.culprit), str(cost.cause)))
            site.add(1, cost.seconds, cost.seconds, test)
        for verdict, part in stall.breakdown.items():
            if verdict not in OWN:
                self._excuse(str(verdict), part)
        self._excuse("imports", own_seconds(stall.breakdown) - cost.seconds)

    def _excuse(self, cause: str, part: float) -> None:
        if part >= 0.0005:
            self.excused[cause] = self.excused.get(cause, 0.0) + part

    def _where(self, frame: Frame | None) -> str:
        if frame is None:
            return "?"
        return printable(f"{self._short(frame.filename)}:{frame.lineno} {frame.qualname}")

    def _short(self, path: str) -> str:
        if not is_own(path):
            return relative_path(path)
        shorter = os.path.relpath(path, self._root) if Path(path).is_absolute() else path
        return path if shorter.startswith("..") else shorter

    # --- between processes ---

    def to_plain(self) -> dict[str, Any]:
        sites = {fingerprint: vars(site) for fingerprint, site in self._sites.items()}
        return {"sites": sites, "excused": self.excused}

    def merge(self, plain: Mapping[str, Any]) -> None:
        for fingerprint, other in plain["sites"].items():
            site = self._sites.setdefault(fingerprint, Site(other["where"], other["cause"]))
            site.add(other["times"], other["total"], other["worst"], other["worst_in"])
        for cause, part in plain["excused"].items():
            self._excuse(cause, part)

    # --- text ---

    def lines(self) -> Iterator[str]:
        sites = sorted(self._sites.values(), key=lambda site: -site.total)
        if sites:
            yield f"{'total':>9} {'worst':>9} {'times':>5}  {'cause':<14}  where"
        for site in sites[:SHOWN]:
            yield (
                f"{seconds(site.total):>9} {seconds(site.worst):>9} {site.times:>5}  {site.cause:<14}  "
                f"{site.where} [{site.worst_in}]"
            )
        if len(sites) > SHOWN:
            rest = sites[SHOWN:]
            yield f"{seconds(sum(site.total for site in rest)):>9} at {len(rest)} more sites"
        if self.excused:
            yield f"Not counted: {', '.join(_excuses(self.excused.items()))}."


def _excuses(parts: Iterable[tuple[str, float]]) -> Iterator[str]:
    for cause, part in sorted(parts, key=lambda item: -item[1]):
        yield f"{seconds(part)} {cause}"
