"""The costs and results of record acking."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engine.protocols.acking.acker import ENTRY_BYTES

MESSAGE_KINDS = ("init", "ack", "fail", "reset", "reply")
"""Control messages: from a spout to an acker, from a task to an acker (three kinds), from an acker to a spout."""


@dataclass(slots=True)
class SpoutStatistics:
    """The part of one source subtask; the names mean the same as in :class:`AckingStatistics`."""

    tracked: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    replayed: int = 0
    latency_total_ns: int = 0
    latency_max_ns: int = 0
    max_pending: int = 0

    @property
    def latency_mean_ns(self) -> int:
        """0 when nothing was acknowledged."""
        return self.latency_total_ns // self.completed if self.completed else 0

    def as_dict(self) -> dict[str, int]:
        """Every count, as plain data."""
        return {**asdict(self), "latency_mean_ns": self.latency_mean_ns}


@dataclass(slots=True)
class AckingStatistics:
    """Counts of one run, over all attempts. Latencies are virtual ns, from the first time that a record was emitted to
    the news that all its tuples have been handled.

    ``data``            records sent on channels between tasks;
    ``control``         messages by kind;
    ``tracked``         roots emitted, replays included;
    ``completed``       records acknowledged; ``failed``, ``timed_out``: roots that were not;
    ``replayed``        records sent again by a source that lives; a second reading after a restart is no replay;
    ``lost``            records that were on a channel to or from a task when it died;
    ``lost_messages``   control messages that came to an acker that was down;
    ``max_pending``     most roots pending at one source subtask; ``max_acker_entries``: at one acker;
    ``expired_entries`` entries that ackers forgot without having heard of their end;
    ``commits``         how often offsets were made durable;
    ``spouts``          by source subtask: what became of its records.
    """

    data: int = 0
    control: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MESSAGE_KINDS, 0))
    tracked: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    replayed: int = 0
    lost: int = 0
    lost_messages: int = 0
    latency_total_ns: int = 0
    latency_max_ns: int = 0
    max_pending: int = 0
    max_acker_entries: int = 0
    expired_entries: int = 0
    commits: int = 0
    spouts: dict[str, SpoutStatistics] = field(default_factory=dict)

    def _both(self, spout: str) -> tuple[AckingStatistics, SpoutStatistics]:
        return self, self.spouts.setdefault(spout, SpoutStatistics())

    def track(self, spout: str) -> None:
        """A root was emitted."""
        for one in self._both(spout):
            one.tracked += 1

    def replay(self, spout: str) -> None:
        """A record is sent again."""
        for one in self._both(spout):
            one.replayed += 1

    def pending(self, spout: str, roots: int) -> None:
        """So many roots are pending at once."""
        for one in self._both(spout):
            one.max_pending = max(one.max_pending, roots)

    def complete(self, spout: str, latency_ns: int) -> None:
        """A record was acknowledged."""
        for one in self._both(spout):
            one.completed += 1
            one.latency_total_ns += latency_ns
            one.latency_max_ns = max(one.latency_max_ns, latency_ns)

    def not_complete(self, spout: str, *, is_failed: bool) -> None:
        """A root has failed, or timed out."""
        for one in self._both(spout):
            if is_failed:
                one.failed += 1
            else:
                one.timed_out += 1

    @property
    def unresolved(self) -> int:
        """Roots whose end no source has heard of: it was still to come, or the source had died."""
        return self.tracked and self.tracked - self.completed - self.failed - self.timed_out

    @property
    def control_messages(self) -> int:
        """All kinds together."""
        return sum(self.control.values())

    @property
    def latency_mean_ns(self) -> int:
        """0 when nothing was acknowledged."""
        return self.latency_total_ns // self.completed if self.completed else 0

    @property
    def max_acker_bytes(self) -> int:
        """The most bytes that the entries of one acker took."""
        return self.max_acker_entries * ENTRY_BYTES

    def as_dict(self) -> dict[str, Any]:
        """Every count, and the numbers derived from them, as plain data."""
        derived = ("unresolved", "control_messages", "latency_mean_ns", "max_acker_bytes")
        spouts = {name: one.as_dict() for name, one in sorted(self.spouts.items())}
        return {**asdict(self), **{name: getattr(self, name) for name in derived}, "spouts": spouts}

    def copy(self) -> AckingStatistics:
        """The present counts."""
        spouts = {name: replace(one) for name, one in self.spouts.items()}
        return replace(self, control=dict(self.control), spouts=spouts)
