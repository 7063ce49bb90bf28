"""The cut oracle: was every completed checkpoint a consistent cut?

A checkpoint cuts every channel twice: at the sender (records sent before its snapshot) and at the receiver (records
received before its snapshot). Without stored channel data the two must agree on every channel (Chandy and Lamport
1985; Flink's aligned barriers). ``received > sent`` means the receiver's state holds effects whose causes the sender
will send again after a restore: *orphans*. In at-least-once mode these are exactly the records that a restore from
this checkpoint would count twice. ``sent > received`` means records that no task would send again: losses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.observe.trace_events import CheckpointCut, TraceEvent


@dataclass(frozen=True, slots=True)
class CutVerdict:
    """The effect on the records if the job were restored from this completed checkpoint."""

    attempt: int
    checkpoint_id: int
    channels: int
    records_sent: int
    orphans: int
    in_transit: int

    @property
    def consistent(self) -> bool:
        """No record would be lost or counted twice."""
        return not self.orphans and not self.in_transit


@dataclass(slots=True)
class CutOracle:
    """An instrument: judges each completed checkpoint as it completes."""

    verdicts: list[CutVerdict] = field(default_factory=list)

    def __call__(self, event: TraceEvent) -> None:
        """Take in one event; only :class:`~engine.observe.trace_events.CheckpointCut` matters."""
        if event.__class__ is CheckpointCut:
            self.verdicts.append(judge(event))

    @property
    def held(self) -> bool:
        """Whether every completed checkpoint was a consistent cut."""
        return all(verdict.consistent for verdict in self.verdicts)

    def verdict(self, checkpoint_id: int) -> CutVerdict | None:
        """The verdict on the latest checkpoint of that id."""
        return next((v for v in reversed(self.verdicts) if v.checkpoint_id == checkpoint_id), None)


def judge(cut: CheckpointCut) -> CutVerdict:
    """Add up the differences of one cut."""
    return CutVerdict(
        attempt=cut.attempt,
        checkpoint_id=cut.checkpoint_id,
        channels=cut.channels,
        records_sent=cut.records_sent,
        orphans=sum(max(0, received - sent) for _, sent, received in cut.differences),
        in_transit=sum(max(0, sent - received) for _, sent, received in cut.differences),
    )
