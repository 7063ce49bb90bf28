"""A barrier handler's instructions to its driver. Plain values; the tuple they come in is the order of execution."""

from __future__ import annotations

from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier
from state_backends.base import value_class


@value_class
class AlignmentMetrics:
    """The time in which barriers of one checkpoint meet in one task (Flink: ``CheckpointMetrics``).

    ``start_delay_ns``  from the creation of the barrier to the first channel aligned, never negative;
    ``alignment_ns``    from the first to the last channel aligned, 0 with a single open channel;
    ``bytes_processed_during_alignment``  size of the records the task took in between.
    """

    start_delay_ns: int = 0
    alignment_ns: int = 0
    bytes_processed_during_alignment: int = 0


@value_class
class BlockChannel:
    """The channel yields nothing more until it is resumed. (In Flink the sender blocks itself once an aligned barrier
    has been taken from its queue; a driver that does the same needs this for chained sources only.)"""

    channel: int


@value_class
class ResumeChannels:
    """These blocked channels may yield again."""

    channels: tuple[int, ...]


@value_class
class TriggerSnapshot:
    """The cut is here: hand ``barrier`` to the task's checkpoint protocol.

    The barrier of a checkpoint that went unaligned says so in its options; its ``metrics`` are then known only in
    part, and completed by ``AlignmentFinished``.
    """

    barrier: CheckpointBarrier
    metrics: AlignmentMetrics


@value_class
class AbortCheckpoint:
    """The handler gave up on the checkpoint: tell the task's checkpoint protocol."""

    checkpoint_id: int
    reason: CheckpointFailureReason


@value_class
class StartCapture:
    """Open channel-state writing for the checkpoint, then start its capture on every channel (except chained sources:
    their records are never channel state). Comes before the ``TriggerSnapshot`` of every unaligned checkpoint."""

    checkpoint_id: int


@value_class
class StopCapture:
    """Stop the capture on every channel: the input part of the in-flight data ends.

    ``failed``: not all barriers came, so the captured records are worthless and the channel state of this checkpoint
    must fail, *after* the instructions that come with this one. Usually those abort the same checkpoint. But a cancel
    marker of a newer one makes the pending one vanish without an abort of its own: then this is the only message.
    """

    checkpoint_id: int
    failed: bool = False


@value_class
class AlignmentFinished:
    """All barriers of an unaligned checkpoint are here; only now its ``metrics`` are known."""

    checkpoint_id: int
    metrics: AlignmentMetrics


@value_class
class PromoteBarrier:
    """Move the announced barrier of this channel to the front, past the records before it."""

    channel: int


@value_class
class ArmAlignmentTimer:
    """Call ``on_timeout(checkpoint_id)`` of the handler at virtual time ``at_ns``. It need not be disarmed: an outdated
    call does nothing."""

    checkpoint_id: int
    at_ns: int


HandlerInstruction = (
    BlockChannel
    | ResumeChannels
    | TriggerSnapshot
    | AbortCheckpoint
    | StartCapture
    | StopCapture
    | AlignmentFinished
    | PromoteBarrier
    | ArmAlignmentTimer
)
HandlerInstructions = tuple[HandlerInstruction, ...]
