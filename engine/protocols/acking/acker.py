"""The acker: keeps for every root whether its tree of tuples is complete, in constant space (Storm: ``Acker``).

Rules.

* Per root: a 64-bit value, the spout's task once it is known, and whether a tuple failed; about 20 bytes however
  large the tree is.
* INIT and ACK create the entry if there is none (messages may overtake each other) and exclusive-or their value in.
  FAIL marks it, RESET only touches it; both create it, too.
* After each message, if the spout is known: value 0 -> complete, forget it and say ACK; else failed -> forget it and
  say FAIL; else, if the message was RESET, pass that on to the spout. The value is tested first: a late INIT
  can turn a failed tree into a complete one.
* A message for a root that was forgotten creates an entry that can never be completed; it expires.
* Entries expire by rotation, silently: the spout has a timeout of its own, which is shorter. Creating an entry, FAIL
  and RESET restart its time; ACK does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.protocols.acking.anchoring import ACK, FAIL, RESET, Ack, AckerMessage, Fail, Init, Reply, Reset
from engine.protocols.acking.rotating_map import RotatingMap

ACKER_BUCKETS = 3
"""An entry lives for two to three timeouts: longer than the root is pending at its spout."""

ENTRY_BYTES = 20
"""The size of an entry: root, value, task."""


@dataclass(slots=True)
class _Entry:
    value: int = 0
    task: str | None = None
    failed: bool = False


class Acker:
    """One acker. Takes messages, and answers with messages to a spout."""

    def __init__(self, buckets: int = ACKER_BUCKETS) -> None:
        self._pending: RotatingMap[int, _Entry] = RotatingMap(buckets)

    def receive(self, message: AckerMessage) -> Reply | None:
        """Take in one message; returns the message to a spout, if there is one."""
        pending, root = self._pending, message.root
        entry = pending.get(root)
        is_new = entry is None
        if entry is None:
            entry = _Entry()
        match message:
            case Init(_, value, task):
                entry.value ^= value
                entry.task = task
            case Ack(_, value):
                entry.value ^= value
            case Fail():
                entry.failed = True
        if is_new or isinstance(message, Fail | Reset):
            pending.put(root, entry)
        if entry.task is None:
            return None
        if entry.value == 0:
            kind = ACK
        elif entry.failed:
            kind = FAIL
        elif isinstance(message, Reset):
            return Reply(RESET, entry.task, root)
        else:
            return None
        pending.remove(root)
        return Reply(kind, entry.task, root)

    def knows_spout_of(self, root: int) -> bool:
        """Whether an INIT of ``root`` has come, and it is still pending."""
        entry = self._pending.get(root)
        # The network may deliver an INIT twice (mutant "INIT counted twice").
        return entry is not None and entry.task is not None

    def tick(self) -> tuple[int, ...]:
        """A timeout is over: forget entries without news. Returns their roots; no spout is told."""
        return tuple(self._pending.rotate())

    @property
    def pending_roots(self) -> tuple[int, ...]:
        """Roots with an entry, those that expire first come first."""
        return tuple(root for root, _ in self._pending.items())

    def __len__(self) -> int:
        return len(self._pending)

    def fingerprint(self) -> object:
        entries = {root: (one.value, one.task, one.failed) for root, one in self._pending.items()}
        return tuple(tuple((root, entries[root]) for root in bucket) for bucket in self._pending.fingerprint())


def acker_for(root: int, ackers: int) -> int:
    """Which of the ackers keeps a root (Storm: fields grouping by the root, Java's hash of a list of one ``long``)."""
    assert ackers >= 1, ackers
    low, high = root & 0xFFFF_FFFF, root >> 32 & 0xFFFF_FFFF
    hashed = 31 + (low ^ high) & 0xFFFF_FFFF
    return (hashed - (1 << 32) if hashed & 0x8000_0000 else hashed) % ackers
