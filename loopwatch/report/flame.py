"""The samples of many stalls as one tree of functions: where, seen from the loop, the stalled time went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from loopwatch._culprit import Function, function_of, inside_turn
from loopwatch._stall import Frame, Stall, Verdict

NODES_MAX: Final = 3000
"""More would be too small to see; the lightest are left out."""


@dataclass(slots=True)
class Node:
    frame: Frame | None
    """At its line when it was first seen; None: the root."""
    seconds: float = 0.0
    causes: dict[Verdict, float] = field(default_factory=lambda: defaultdict(float))
    children: dict[Function, Node] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        return max(self.causes, key=self.causes.__getitem__, default=Verdict.UNKNOWN)

    def by_weight(self) -> list[Node]:
        return sorted(self.children.values(), key=lambda node: -node.seconds)


def weighted_stacks(stall: Stall) -> Iterator[tuple[Sequence[Frame], float, Verdict]]:
    """(frames, seconds, cause), outermost first, without what started and runs the loop; of a stall without
    samples its one stack. They add up to its duration, as its samples do."""
    if not stall.samples:
        yield inside_turn(stall.frames), stall.duration, stall.verdict
    for sample in stall.samples:
        yield inside_turn(sample.frames), sample.weight, sample.verdict


def tree(stalls: Iterable[Stall]) -> Node:
    root = Node(None)
    for stall in stalls:
        for frames, seconds, verdict in weighted_stacks(stall):
            _count(root, seconds, verdict)
            node = root
            for frame in frames:
                node = node.children.setdefault(function_of(frame), Node(frame))
                _count(node, seconds, verdict)
    _prune(root)
    return root


def _count(node: Node, seconds: float, verdict: Verdict) -> None:
    node.seconds += seconds
    node.causes[verdict] += seconds


def _prune(root: Node) -> None:
    """Keep the heaviest. None is kept without its parent, which is at least as heavy, and comes before it."""
    nodes, queue = [], [root]
    while queue:
        node = queue.pop()
        nodes.append(node)
        queue.extend(node.children.values())
    if len(nodes) <= NODES_MAX:
        return
    least = sorted((node.seconds for node in nodes), reverse=True)[NODES_MAX]
    for node in nodes:
        node.children = {key: child for key, child in node.children.items() if child.seconds > least}
