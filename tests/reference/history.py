"""What a loop did, kept in full: the twin of src/history/, which keeps it by the second and in marks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from reference import histogram

S = 10**9
Kind = Literal["off", "wait", "busy"]


class Span(NamedTuple):
    kind: Kind
    begin: int
    end: int
    gil: int = 0
    """A busy one begins with a wait for the GIL of this length."""

    def within(self, lower: int, upper: int) -> int:
        return max(0, min(self.end, upper) - max(self.begin, lower))

    def gil_within(self, lower: int, upper: int) -> int:
        return Span("busy", self.begin, min(self.end, self.begin + self.gil)).within(lower, upper)


class Cell(NamedTuple):
    number: int
    busy: int
    idle: int
    worst: int
    gil_wait: int


class Window(NamedTuple):
    buckets: list[tuple[int, int]]
    turns: int
    busy: int
    idle: int
    gil_wait: int
    worst: int


@dataclass
class History:
    """Spans that follow each other, the first one a run's begin; the last one goes on until `now`."""

    spans: list[Span] = field(default_factory=list)

    def calls(self) -> Iterator[tuple[str, int]]:
        """What a pulse calls for these spans: all but the end of the last one."""
        last = None
        for span in self.spans:
            if span.kind == "wait":
                yield "wait", span.begin
            elif span.kind == "off":
                yield "run_end", span.begin
            else:
                yield ("back" if last == "wait" else "run_begin"), span.begin
                if span.gil:
                    yield "gil", span.gil
            last = span.kind

    @property
    def origin(self) -> int:
        return self.spans[0].begin

    @property
    def now(self) -> int:
        return self.spans[-1].end

    def _sum(self, kind: Kind, lower: int, upper: int) -> int:
        return sum(span.within(lower, upper) for span in self.spans if span.kind == kind)

    def _gil(self, lower: int, upper: int) -> int:
        return sum(span.gil_within(lower, upper) for span in self.spans)

    def cells(self, n: int) -> list[Cell]:
        last = self.now // S
        return [
            self._cell(number, number * S, min((number + 1) * S, self.now))
            for number in range(max(self.origin // S, last - n + 1), last + 1)
        ]

    def _cell(self, number: int, lower: int, upper: int) -> Cell:
        whole = [span.end - span.begin for span in self._turns() if lower <= span.end < upper]
        ages = [upper - span.begin for span in self._turns() if span.begin < upper <= span.end]
        return Cell(
            number,
            self._sum("busy", lower, upper),
            self._sum("wait", lower, upper),
            max(whole + ages, default=0),
            self._gil(lower, upper),
        )

    def _turns(self) -> list[Span]:
        return [span for span in self.spans if span.kind == "busy"]

    def window(self, begin: int) -> Window:
        """Of the time from `begin` on, which is not within a turn."""
        first = bisect_right(self.spans, begin, key=lambda span: span.end)
        return History([Span("off", begin, begin), *self.spans[first:]])._since(begin)

    def _since(self, begin: int) -> Window:
        lengths = [span.end - span.begin for span in self._turns() if span.begin >= begin]
        return Window(
            sorted(Counter(map(histogram.bucket, lengths)).items()),
            len(lengths),
            self._sum("busy", begin, self.now),
            self._sum("wait", begin, self.now),
            self._gil(begin, self.now),
            max(lengths, default=0),
        )
