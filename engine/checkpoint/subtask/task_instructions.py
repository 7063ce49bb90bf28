"""The instructions of a task's checkpoint protocol to its driver. Plain values; the tuple they come in is the order of
execution.
"""

from __future__ import annotations

from engine.checkpoint.barriers import AlignmentMetrics
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier
from state_backends.base import value_class


@value_class
class TakeSnapshot:
    """Pre-barrier hook of the operators, barrier to all outputs, synchronous part, asynchronous part; then report
    ``on_snapshot_written`` or ``on_snapshot_failed``. ``barrier``: in the form in which it goes on; ``final``: the
    first snapshot after the end of data."""

    barrier: CheckpointBarrier
    metrics: AlignmentMetrics
    final: bool = False


@value_class
class BroadcastCancelMarker:
    """Send ``CancelCheckpointMarker(checkpoint_id)`` on all outputs, before any further record."""

    checkpoint_id: int


@value_class
class AcknowledgeCheckpoint:
    """Send the finished snapshot to the coordinator."""

    checkpoint_id: int


@value_class
class DeclineCheckpoint:
    """Tell the coordinator that there will be no snapshot from this task."""

    checkpoint_id: int
    reason: CheckpointFailureReason


@value_class
class CancelSnapshot:
    """Cancel the running asynchronous part and delete its files."""

    checkpoint_id: int


@value_class
class DiscardSnapshot:
    """A snapshot was finished although it had been cancelled: delete it."""

    checkpoint_id: int


@value_class
class NotifyOperatorsComplete:
    """Call ``notify_checkpoint_complete`` of operators and state backends."""

    checkpoint_id: int


@value_class
class NotifyOperatorsSubsumed:
    """Tell operators and state backends that this and older checkpoints are no longer retained."""

    checkpoint_id: int


@value_class
class NotifyOperatorsAborted:
    """Call ``notify_checkpoint_aborted`` of operators and state backends."""

    checkpoint_id: int


@value_class
class StopTask:
    """The savepoint that the task waits for is complete: the task finishes, without another record."""

    checkpoint_id: int


@value_class
class FailTask:
    """The savepoint that the task waits for is given up. The task has stopped its work for it and cannot go on: it
    fails, and the job is restored."""

    checkpoint_id: int


TaskInstruction = (
    TakeSnapshot
    | BroadcastCancelMarker
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | CancelSnapshot
    | DiscardSnapshot
    | NotifyOperatorsComplete
    | NotifyOperatorsSubsumed
    | NotifyOperatorsAborted
    | StopTask
    | FailTask
)
TaskInstructions = tuple[TaskInstruction, ...]
