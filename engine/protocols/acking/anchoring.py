"""Tuples and what they are anchored to: how a tree of tuples is summed up in exclusive ors (Storm: ``TupleImpl``,
``MessageId``, ``SpoutOutputCollectorImpl``, ``BoltOutputCollectorImpl``).

Rules.

* A tuple knows, per root, the edge that leads to it. A root tuple is sent to k receivers as k tuples with an edge each.
* A tuple emitted by a bolt gets, for each of its anchors and each receiver, a new edge. It goes into the tuple's entry
  of every root of the anchor, and into the anchor's own sum of what it has emitted, by exclusive or. An anchor that is
  named twice counts twice. Without anchors, or with anchors that have no roots, the tuple is not tracked.
* Acknowledging a tuple says, per root, its own edge and the sum of what was anchored to it: it leaves the tree in the
  same message that adds its children, so that the value of a root is 0 only when nothing is left (but for accidents of
  probability 2**-64).

Ids are integers of 64 bits, handed in: nothing here draws one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from engine.protocols.acking.ack_messages import Ack, Fail, Reset

NewId = Callable[[], int]
"""Gives out a fresh 64-bit id other than 0: an edge of 0 would leave no mark."""


class AnchoredTuple:
    """One tuple on its way. ``edges``: by root; none when it is not tracked. ``out``: exclusive or of the edges of all
    that was emitted anchored to it."""

    __slots__ = ("edges", "out")

    def __init__(self, edges: dict[int, int] | None = None) -> None:
        self.edges: dict[int, int] = {} if edges is None else edges
        self.out = 0

    def __repr__(self) -> str:
        return f"AnchoredTuple({self.edges!r}, out={self.out:#x})"


UNTRACKED = AnchoredTuple()
"""A tuple without roots. It has nothing to sum up, so that all of them may be one."""


def root_tuples(root: int, receivers: int, new_id: NewId) -> tuple[list[AnchoredTuple], int]:
    """The tuples in which a spout sends a root to so many receivers, and the value of its INIT."""
    edges = [new_id() for _ in range(receivers)]
    value = 0
    for edge in edges:
        value ^= edge
    return [AnchoredTuple({root: edge}) for edge in edges], value


def child_of(anchors: Iterable[AnchoredTuple], new_id: NewId) -> AnchoredTuple:
    """The tuple for one receiver that a bolt emits anchored to ``anchors``."""
    edges: dict[int, int] = {}
    for anchor in anchors:
        if anchor.edges:
            edge = new_id()
            anchor.out ^= edge
            for root in anchor.edges:
                edges[root] = edges.get(root, 0) ^ edge
    return AnchoredTuple(edges) if edges else UNTRACKED


def acks_of(one: AnchoredTuple) -> Sequence[Ack]:
    """What is said when a tuple has been handled."""
    # In one message, or the tree is empty in between (mutant "acked before its children").
    return [Ack(root, edge ^ one.out) for root, edge in one.edges.items()]


def fails_of(one: AnchoredTuple) -> Sequence[Fail]:
    """What is said when a tuple cannot be handled."""
    return [Fail(root) for root in one.edges]


def resets_of(one: AnchoredTuple) -> Sequence[Reset]:
    """What is said when a tuple takes longer than its timeout."""
    return [Reset(root) for root in one.edges]
