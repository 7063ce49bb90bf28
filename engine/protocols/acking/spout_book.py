"""The spout's side of acking: the pending roots, and their outcomes (Storm: ``SpoutExecutor``).

Rules.

* An emit with a message id is pending until the acker says ACK or FAIL, or until its time is over: that counts as
  failed, too. A reply for a root that is not pending (any more) is ignored.
* Its time is over at the second rotation after the emit, or after the last RESET: between one and two timeouts.
* Without ackers nothing is tracked, and an emit is acknowledged at once. Without a message id nothing is tracked
  either, and no outcome is reported.
* At most ``max_pending`` roots are pending (Storm: ``topology.max.spout.pending``); then the spout waits.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, NamedTuple, TypeVar

from engine.protocols.acking.anchoring import ACK, FAIL, UNTRACKED, AnchoredTuple, Init, NewId, Reply, root_tuples
from engine.protocols.acking.rotating_map import RotatingMap

SPOUT_BUCKETS = 2

ACKED, FAILED, TIMED_OUT = "acked", "failed", "timed out"
"""The outcome of a message: its tree is complete; a tuple of it failed; no reply came for too long."""


class SplitProgress:
    """How far a spout may commit a split: up to the lowest record that is not acknowledged. A position covers every
    record before it. So one pending record holds back all positions after it, and records after it that were
    acknowledged come again after a restart.

    ``position``: where reading begins; opaque, ``None`` = at the beginning.
    """

    __slots__ = ("_done", "_first", "_positions", "position")

    def __init__(self, position: Any = None) -> None:
        self.position = position
        self._first = 0
        """Number of the oldest record that is not covered."""
        self._positions: deque[Any] = deque()
        """The position after each record from that one on."""
        self._done: dict[int, None] = {}
        """Numbers of those that were acknowledged."""

    def read(self, position_behind: Any) -> int:
        """The next record was read, and the split stands at ``position_behind``. Returns the record's number."""
        self._positions.append(position_behind)
        return self._first + len(self._positions) - 1

    def acked(self, number: int) -> None:
        """A record is acknowledged. It may have been acknowledged before: then nothing changes."""
        assert number < self._first + len(self._positions), (number, self._first, len(self._positions))
        if number < self._first:
            return
        self._done[number] = None
        # A position says that everything before it was acknowledged (mutant "offsets beyond pending records").
        while self._positions and self._first in self._done:
            del self._done[self._first]
            self.position = self._positions.popleft()
            self._first += 1

    @property
    def covered_records(self) -> int:
        """Records that were read and are covered by the position: they are not read again."""
        return self._first

    @property
    def open_records(self) -> int:
        """Records that were read and are not covered by the position: a restart reads them again."""
        return len(self._positions)

    def fingerprint(self) -> object:
        """The covered records, and those acknowledged after them."""
        return repr(self.position), len(self._positions), tuple(sorted(one - self._first for one in self._done))


M = TypeVar("M")


class Outcome(NamedTuple, Generic[M]):
    """The outcome of a message. ``root``: under which it was emitted; ``None`` when it was not tracked."""

    message_id: M
    result: str
    root: int | None


class SpoutEmission(NamedTuple, Generic[M]):
    """The result of an emit: a tuple per receiver, the message to the acker, and the outcome if it is known already."""

    tuples: list[AnchoredTuple]
    init: Init | None
    outcome: Outcome[M] | None


class SpoutBook(Generic[M]):
    """The pending roots of the spout ``task``, whose messages have ids of type M. ``has_ackers``: whether any acker
    tracks them; ``max_pending``: ``None`` = no limit."""

    def __init__(self, task: str, *, has_ackers: bool = True, max_pending: int | None = None) -> None:
        assert max_pending is None or max_pending >= 1, max_pending
        self.task = task
        self._has_ackers = has_ackers
        self.max_pending = max_pending
        """The most roots that may be pending; ``None``: any number."""
        self._pending: RotatingMap[int, M] = RotatingMap(SPOUT_BUCKETS)

    def emit(self, message_id: M | None, receivers: int, new_id: NewId) -> SpoutEmission[M]:
        """Emit one message to ``receivers`` receivers. ``message_id`` ``None``: the outcome is not reported."""
        if message_id is None or not self._has_ackers:
            outcome = None if message_id is None else Outcome(message_id, ACKED, None)
            return SpoutEmission([UNTRACKED] * receivers, None, outcome)
        root = new_id()
        tuples, value = root_tuples(root, receivers, new_id)
        return SpoutEmission(tuples, self.track(message_id, root, value), None)

    def track(self, message_id: M, root: int, value: int) -> Init:
        """A message is out under ``root``, in tuples whose edges sum up to ``value``; returns the acker's message."""
        assert self._has_ackers, "without ackers nobody would ever answer"
        self._pending.put(root, message_id)
        return Init(root, value, self.task)

    def on_reply(self, reply: Reply) -> Outcome[M] | None:
        """An acker replies; ``None`` when the reply has no effect."""
        message_id = self._pending.remove(reply.root)
        if message_id is None:
            return None
        if reply.kind == ACK:
            return Outcome(message_id, ACKED, reply.root)
        if reply.kind == FAIL:
            return Outcome(message_id, FAILED, reply.root)
        self._pending.put(reply.root, message_id)
        return None

    def tick(self) -> tuple[Outcome[M], ...]:
        """A timeout is over: messages that have been pending for too long have failed."""
        expired = self._pending.rotate()
        # Failed, so that the record is sent again (mutant "timed-out roots forgotten").
        return tuple(Outcome(message_id, TIMED_OUT, root) for root, message_id in expired.items())

    @property
    def is_full(self) -> bool:
        """Whether no further root may be pending."""
        return self.max_pending is not None and len(self._pending) >= self.max_pending

    @property
    def pending(self) -> tuple[M, ...]:
        """The messages that are pending, those that time out first come first."""
        return tuple(message_id for _, message_id in self._pending.items())

    def __len__(self) -> int:
        return len(self._pending)

    def fingerprint(self) -> object:
        """Which roots are pending, and how old they are."""
        return self._pending.fingerprint()
