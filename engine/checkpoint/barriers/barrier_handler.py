"""The contract of all barrier handlers.

Theory of operation. A task has ``channels`` inputs, all gates together. Its driver hands over every barrier, cancel
marker, announcement and end of partition in the order it consumes them, and carries out the returned instructions
before it consumes anything else. Records do not pass through here: a blocked channel yields none, and of the others
only the size is reported (to ``clock``). ``EndOfData`` has no effect on barriers. Handlers ignore the coordinator's
abort notifications, too (as in Flink): the barriers of such a checkpoint go on being aligned, and the task protocol
then sends a cancel marker instead of taking a snapshot.

A source chained into a task with inputs is one more channel. Its barrier is the coordinator's trigger, handed to
``on_barrier``.

A task without inputs (a source) has ``channels = 0`` and is only ever triggered by the coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from engine.checkpoint.barriers.alignment import AlignmentClock
from engine.checkpoint.barriers.handler_instructions import HandlerInstructions
from engine.elements.events import CancelCheckpointMarker, CheckpointBarrier


class BarrierHandler(ABC):
    """Decides when a task's snapshot is due (Flink: ``CheckpointBarrierHandler``).

    Each is made with ``channels``, the number of input channels, 0 for a source, and
    ``checkpoints_after_tasks_finish``: whether the end of a channel counts as its barrier (Flink's default) or
    aborts pending checkpoints.
    """

    clock: AlignmentClock
    """Learns how many bytes the task takes; Flink's gauge ``checkpointAlignmentTime`` reads it."""

    @abstractmethod
    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """A barrier was taken from ``channel``."""

    @abstractmethod
    def on_cancel(self, channel: int, marker: CancelCheckpointMarker, now_ns: int) -> HandlerInstructions:
        """A cancel marker was taken from ``channel``."""

    @abstractmethod
    def on_end_of_partition(self, channel: int, now_ns: int) -> HandlerInstructions:
        """``channel`` has ended: neither records nor barriers will come on it any more."""

    @abstractmethod
    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """The coordinator triggers this task itself: a barrier on every open channel that blocks none of them."""

    @abstractmethod
    def close(self) -> None:
        """The task ends: nothing is pending any more, and no message is sent."""

    def on_announcement(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """``barrier`` waits in the queue of ``channel``; of interest only to a handler that can let it overtake."""
        return ()

    def on_timeout(self, checkpoint_id: int, now_ns: int) -> HandlerInstructions:
        """The alignment timer of ``checkpoint_id`` is due; does nothing when it is no longer of any use."""
        return ()

    @property
    @abstractmethod
    def pending_checkpoint_ids(self) -> tuple[int, ...]:
        """Ids that are being aligned, oldest first."""

    @property
    @abstractmethod
    def latest_checkpoint_id(self) -> int:
        """The highest id seen, -1 before the first."""

    @property
    @abstractmethod
    def open_channels(self) -> tuple[int, ...]:
        """Channels that have not ended, in order."""

    @property
    def captured_channels(self) -> tuple[int, ...]:
        """Open channels whose records in flight belong to a checkpoint whose capture starts or runs."""
        return ()

    @property
    def blocked_channels(self) -> tuple[int, ...]:
        """Channels that wait for a resume, in order."""
        return ()

    @abstractmethod
    def validate(self) -> None:
        """Assert the invariants."""

    @abstractmethod
    def fingerprint(self) -> tuple[object, ...]:
        """All state that determines future behaviour, without mere measurements."""
