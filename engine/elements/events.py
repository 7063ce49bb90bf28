"""The events that travel between records: barriers and their announcements, cancel markers, watermarks, ends.

Events are frozen values. They need no credit on a channel and, unless they are priority events, they keep their
place between the records (Flink: ``RuntimeEvent`` and ``StreamElement``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from state_backends.base import value_class


class AlignmentType(Enum):
    """How a checkpoint treats the inputs of a task (Flink: ``CheckpointOptions.AlignmentType``, 1.20)."""

    AT_LEAST_ONCE = "at_least_once"
    ALIGNED = "aligned"
    UNALIGNED = "unaligned"
    FORCED_ALIGNED = "forced_aligned"


_BLOCKING = (AlignmentType.ALIGNED, AlignmentType.FORCED_ALIGNED)


class SnapshotKind(Enum):
    """The purpose of a snapshot; decides ownership and sharing of its files (Flink: ``SnapshotType``)."""

    CHECKPOINT = "checkpoint"
    FULL_CHECKPOINT = "full_checkpoint"
    SAVEPOINT = "savepoint"


class StopMode(Enum):
    """How a job stops with a savepoint (Flink: ``SavepointType.PostCheckpointAction``)."""

    SUSPEND = "suspend"
    """Sources stop at their present position; timers and open windows stay in the savepoint, for the resumed job."""
    TERMINATE = "terminate"
    """Drain: event time ends first, so that every timer fires and every window closes before the savepoint."""


class SavepointFormat(Enum):
    """How a savepoint is written (Flink: ``SavepointFormatType``)."""

    CANONICAL = "canonical"
    """The same for every state backend."""
    NATIVE = "native"
    """As the backend writes its checkpoints; for a backend whose checkpoints are canonical, the same."""


def _derived() -> Any:
    return field(init=False, repr=False, compare=False)


@value_class
class CheckpointOptions:
    """How barriers of one checkpoint behave.

    ``aligned_timeout_ns``  the virtual time after which an aligned barrier may turn unaligned; ``None`` never;
    ``stop``                a savepoint with which the job stops, and how; ``None`` for everything else;
    ``savepoint_format``    of a savepoint; ``None`` for everything else.
    """

    alignment: AlignmentType = AlignmentType.ALIGNED
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    aligned_timeout_ns: int | None = None
    stop: StopMode | None = None
    savepoint_format: SavepointFormat | None = None
    timeoutable: bool = _derived()
    """Whether an aligned barrier may still turn unaligned."""
    needs_channel_state: bool = _derived()
    """Whether records in flight may become part of the snapshot."""
    needs_alignment: bool = _derived()
    """Whether the barrier blocks the channel it arrives on (an *aligned-form* barrier)."""
    is_priority: bool = _derived()
    """Whether the barrier overtakes queued records."""

    def __post_init__(self) -> None:
        # Options are made once for many checkpoints, and asked on every channel.
        derive = object.__setattr__
        is_priority = self.alignment is AlignmentType.UNALIGNED
        timeoutable = self.alignment is AlignmentType.ALIGNED and self.aligned_timeout_ns is not None
        derive(self, "is_priority", is_priority)
        derive(self, "timeoutable", timeoutable)
        derive(self, "needs_channel_state", is_priority or timeoutable)
        derive(self, "needs_alignment", self.alignment in _BLOCKING)

    @classmethod
    def configured(
        cls, *, exactly_once: bool = True, unaligned: bool = False, aligned_timeout_ns: int | None = None
    ) -> CheckpointOptions:
        """The options of an ordinary checkpoint (Flink: ``CheckpointOptions.forConfig``).

        At-least-once mode: barriers that block no channel. While unaligned checkpoints are off: aligned without a
        timeout. Unaligned without a timeout, or with 0: unaligned. Otherwise aligned with that timeout.
        """
        if not exactly_once:
            return cls(AlignmentType.AT_LEAST_ONCE)
        if not unaligned:
            return cls(AlignmentType.ALIGNED)
        if not aligned_timeout_ns:
            return cls(AlignmentType.UNALIGNED)
        return cls(AlignmentType.ALIGNED, aligned_timeout_ns=aligned_timeout_ns)

    def for_snapshot(
        self, kind: SnapshotKind, stop: StopMode | None = None, savepoint_format: SavepointFormat | None = None
    ) -> CheckpointOptions:
        """The options of a snapshot in a job whose ordinary checkpoints have these."""
        if (kind, stop, savepoint_format) == (self.kind, self.stop, self.savepoint_format):
            return self
        if kind is SnapshotKind.SAVEPOINT and self.alignment is not AlignmentType.AT_LEAST_ONCE:
            # Another job must be able to read a savepoint: it holds no in-flight data of this one.
            return CheckpointOptions(AlignmentType.ALIGNED, kind, None, stop, savepoint_format)
        return CheckpointOptions(self.alignment, kind, self.aligned_timeout_ns, stop, savepoint_format)

    def with_unaligned_unsupported(self) -> CheckpointOptions:
        """The options on an edge where barriers must not overtake records (Flink: same name)."""
        if self.needs_channel_state:
            return replace(self, alignment=AlignmentType.FORCED_ALIGNED)
        return self

    def with_unaligned_supported(self) -> CheckpointOptions:
        """The options after such an edge: those of its original kind (Flink: same name)."""
        if self.alignment is not AlignmentType.FORCED_ALIGNED:
            return self
        timed = self.aligned_timeout_ns is not None
        return replace(self, alignment=AlignmentType.ALIGNED if timed else AlignmentType.UNALIGNED)


_USUAL = CheckpointOptions()


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """The cut of checkpoint ``checkpoint_id`` on one channel; created at virtual time ``timestamp_ns``."""

    checkpoint_id: int
    timestamp_ns: int
    options: CheckpointOptions = _USUAL

    @property
    def is_priority(self) -> bool:
        """Whether the barrier overtakes queued records."""
        return self.options.is_priority

    @property
    def blocks_sender(self) -> bool:
        """Whether the sender yields nothing after it until the receiver resumes the channel."""
        return self.options.needs_alignment

    def with_options(self, options: CheckpointOptions) -> CheckpointBarrier:
        """The barrier in another form; itself when the form is the same."""
        if options is self.options or options == self.options:
            return self
        return CheckpointBarrier(self.checkpoint_id, self.timestamp_ns, options)

    def as_unaligned(self) -> CheckpointBarrier:
        """The barrier after its alignment has timed out (Flink: ``CheckpointBarrier.asUnaligned``)."""
        own = self.options
        return self.with_options(
            CheckpointOptions(AlignmentType.UNALIGNED, own.kind, None, own.stop, own.savepoint_format)
        )


@dataclass(frozen=True, slots=True)
class BarrierAnnouncement:
    """Priority notice that a timeoutable barrier waits in the queue (Flink: ``EventAnnouncement``). It overtakes
    data; the barrier itself keeps its place."""

    barrier: CheckpointBarrier

    @property
    def checkpoint_id(self) -> int:
        """Of the announced barrier."""
        return self.barrier.checkpoint_id


@dataclass(frozen=True, slots=True)
class EndOfChannelState:
    """The sender's restored output ends here; the channel waits until all channels of its gate have come to this point
    (Flink: ``EndOfOutputChannelStateEvent``)."""


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
    """No element will ever come on this channel any more, barriers included."""


Event = (
    CheckpointBarrier
    | BarrierAnnouncement
    | CancelCheckpointMarker
    | Watermark
    | WatermarkStatus
    | EndOfChannelState
    | EndOfData
    | EndOfPartition
)
