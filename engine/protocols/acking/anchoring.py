"""Tuples and their anchors: how a tree of tuples is summed up in exclusive ors (Storm: ``TupleImpl``,
``MessageId``, ``SpoutOutputCollectorImpl``, ``BoltOutputCollectorImpl``).

Rules.

* A tuple knows, per root, the edge that leads to it. A root tuple is sent to k receivers as k tuples with an edge each.
* A tuple emitted by a bolt gets, for each of its anchors and each receiver, a new edge. This edge goes into the tuple's
  entry of every root of the anchor, and into the anchor's own sum of emitted edges, by exclusive or. An anchor that is
  named twice counts twice. Without anchors, or with anchors that have no roots, the tuple is not tracked.
* Acknowledging a tuple says, per root, its own edge and the sum of the edges anchored to it. It leaves the tree in the
  same message that adds its children, so the value of a root is 0 only when nothing is left (except for accidents of
  probability 2**-64).

Ids of roots and edges are distinct integers of 64 bits. Storm draws them at random. After a collision a tree may seem
complete and is not, so ids must be spread evenly; they may be drawn or computed.
:class:`IdStream` computes them, from names that are never used twice. They are no choices of a run: another id could
have no other effect.

The messages pass between tasks, ackers and spouts (Storm: the streams of ``Acker``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

ACK, FAIL, RESET = "ack", "fail", "reset"
"""Kinds of :class:`Reply`: the tree is complete; it has failed; its timeout must restart."""


class Init(NamedTuple):
    """A spout has emitted a root. ``value``: exclusive or of the edges to its first tuples; ``task``: the spout."""

    root: int
    value: int
    task: str


class Ack(NamedTuple):
    """A tuple was handled. ``value``: its own edge and those of its children, exclusive or."""

    root: int
    value: int


class Fail(NamedTuple):
    """A tuple of the tree has failed."""

    root: int


class Reset(NamedTuple):
    """A tuple of the tree takes long: its time restarts."""

    root: int


AckerMessage = Init | Ack | Fail | Reset
"""Every message that an acker takes."""


class Reply(NamedTuple):
    """From an acker to the spout ``task``: the outcome of ``root``."""

    kind: str
    task: str
    root: int


KIND_NAMES: dict[type, str] = {Init: "init", Ack: "ack", Fail: "fail", Reset: "reset"}
"""The names under which messages to ackers are counted."""


NewId = Callable[[], int]
"""Gives out a fresh 64-bit id other than 0: an edge of 0 would leave no mark."""


class AnchoredTuple:
    """One tuple on its way. ``edges``: by root; none when it is not tracked. ``out``: exclusive or of the edges of all
    tuples that were emitted anchored to it. ``claims``: how many have still to say that they have handled it;
    ``failed``: one of them has said that it cannot."""

    __slots__ = ("claims", "edges", "failed", "out")

    def __init__(self, edges: dict[int, int] | None = None) -> None:
        self.edges: dict[int, int] = {} if edges is None else edges
        self.out = 0
        self.claims = 0
        self.failed = False

    def __repr__(self) -> str:
        return f"AnchoredTuple({self.edges!r}, out={self.out:#x})"


UNTRACKED = AnchoredTuple()
"""A tuple without roots. It has nothing to sum up, so one object serves for all of them."""


def root_tuples(root: int, receivers: int, new_id: NewId) -> tuple[list[AnchoredTuple], int]:
    """The tuples in which a spout sends a root to ``receivers`` receivers, and the value of its INIT."""
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
    """The messages for a tuple that has been handled."""
    # In one message, otherwise the tree is empty in between (mutant "acked before its children").
    return [Ack(root, edge ^ one.out) for root, edge in one.edges.items()]


def fails_of(one: AnchoredTuple) -> Sequence[Fail]:
    """The messages for a tuple that cannot be handled."""
    return [Fail(root) for root in one.edges]


def resets_of(one: AnchoredTuple) -> Sequence[Reset]:
    """The messages for a tuple that takes longer than its timeout."""
    return [Reset(root) for root in one.edges]


_MASK = (1 << 64) - 1


class IdStream:
    """The ids of one owner, ``name``: SplitMix64 (Steele, Lea, Flood 2014) over a counter. It maps numbers to
    numbers one to one, so no id of a stream ever comes again; 0, which would leave no mark, is left out."""

    __slots__ = ("_state",)

    def __init__(self, name: str) -> None:
        self._state = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")

    def __call__(self) -> int:
        while True:
            self._state = mixed = (self._state + 0x9E3779B97F4A7C15) & _MASK
            mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
            mixed ^= mixed >> 31
            if mixed:
                return mixed

    def fingerprint(self) -> int:
        """The state that determines the next ids."""
        return self._state
