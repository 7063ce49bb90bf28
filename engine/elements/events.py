"""The events that travel between records: barriers, cancel markers, watermarks and the ends of a stream.

Events are frozen values. They need no credit on a channel and, unless they are priority events, they keep their
place between the records (Flink: ``RuntimeEvent`` and ``StreamElement``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class AlignmentType(Enum):
    """How a checkpoint treats the inputs of a task (Flink: ``CheckpointOptions.AlignmentType``, 1.20)."""

    AT_LEAST_ONCE = "at_least_once"
    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    FORCED_ALIGNED = "forced_aligned"


class SnapshotKind(Enum):
    """What a snapshot is taken for; decides ownership and sharing of its files (Flink: ``SnapshotType``)."""

    CHECKPOINT = "checkpoint"
    FULL_CHECKPOINT = "full_checkpoint"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """How barriers of one checkpoint behave.

    ``aligned_timeout_ns`` is the virtual time after which an aligned barrier may turn unaligned; ``None`` never.
    """

    alignment: AlignmentType = AlignmentType.ALIGNED
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    aligned_timeout_ns: int | None = None

    @property
    def needs_alignment(self) -> bool:
        """Whether the barrier blocks the channel it arrives on (an *aligned-form* barrier)."""
        return self.alignment in (AlignmentType.ALIGNED, AlignmentType.FORCED_ALIGNED)

    @property
    def timeoutable(self) -> bool:
        """Whether an aligned barrier may still turn unaligned."""
        return self.alignment is AlignmentType.ALIGNED and self.aligned_timeout_ns is not None


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """The cut of checkpoint ``checkpoint_id`` on one channel; created at virtual time ``timestamp_ns``."""

    checkpoint_id: int
    timestamp_ns: int
    options: CheckpointOptions = CheckpointOptions()

    @property
    def is_priority(self) -> bool:
        """Whether the barrier overtakes queued records."""
        return self.options.alignment is AlignmentType.UNALIGNED


@dataclass(frozen=True, slots=True)
class CancelCheckpointMarker:
    """Upstream gave up on ``checkpoint_id``: its barrier will not come on this channel."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with an event time at or below ``timestamp_ms`` is expected on this channel any more."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """Whether the channel takes part in the minimum of the watermarks (Flink: ``WatermarkStatus``)."""

    idle: bool


@dataclass(frozen=True, slots=True)
class EndOfData:
    """The user's records ended. Control events (barriers among them) may still follow."""


@dataclass(frozen=True, slots=True)
class EndOfPartition:
    """Nothing more will ever come on this channel, barriers included."""


Event = CheckpointBarrier | CancelCheckpointMarker | Watermark | WatermarkStatus | EndOfData | EndOfPartition
