"""What src/histogram.c computes with shifts, from a plain list of edges."""

from bisect import bisect_right
from itertools import pairwise

FIRST_OCTAVE = 1 << 10
TOP = 1 << 42
PARTS = 128

EDGES = [i * FIRST_OCTAVE // PARTS for i in range(PARTS)]
while (octave := EDGES[-1] + EDGES[-1] - EDGES[-2]) < TOP:
    EDGES += [octave + i * octave // PARTS for i in range(PARTS)]

BUCKETS = len(EDGES)
EDGES.append(TOP)


def bucket(value: int) -> int:
    """The bucket that a value is counted in; values from TOP on are counted in the last one."""
    return min(bisect_right(EDGES, value) - 1, BUCKETS - 1)


def edge(number: int) -> int:
    """The least value of a bucket; of BUCKETS, the end of the last one."""
    return EDGES[number]


def widths() -> list[int]:
    return [upper - lower for lower, upper in pairwise(EDGES)]
