"""The interface of all barrier handlers, and their common parts: open channels and the alignment clock.

Theory of operation. A task has ``channels`` inputs, all gates together. Its driver hands over every barrier, cancel
marker, announcement and end of partition in the order it consumes them, and carries out the returned instructions
before it consumes anything else. Records do not pass through here: a blocked channel yields none, and of the others
only the size is reported (``on_bytes``). ``EndOfData`` has no effect on barriers. Handlers ignore the coordinator's
abort notifications, too (as in Flink): the barriers of such a checkpoint go on being aligned, and the task protocol
then sends a cancel marker instead of taking a snapshot.

A source chained into a task with inputs is one more channel. Its barrier is the coordinator's trigger, handed to
``on_barrier``.

A task without inputs (a source) has ``channels = 0`` and is only ever triggered by the coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from engine.checkpoint.barriers.handler_instructions import (
    AlignmentFinished,
    AlignmentMetrics,
    HandlerInstructions,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.elements.events import AlignmentType, CancelCheckpointMarker, CheckpointBarrier

_NOTHING_MEASURED = -1


def barrier_fingerprint(barrier: CheckpointBarrier) -> tuple[object, ...]:
    """The fields of a barrier that determine the task's behaviour. (Its timestamp only if it may time out.)"""
    options = barrier.options
    return (
        barrier.checkpoint_id,
        options.alignment.value,
        options.kind.value,
        options.aligned_timeout_ns,
        barrier.timestamp_ns if options.timeoutable else None,
    )


class AlignmentClock:
    """Stopwatch of one task, which every barrier handler carries: start delay, alignment duration, bytes taken
    meanwhile. Times in ns.

    Rules (Flink: ``CheckpointBarrierHandler.markAlignment*``):

    * It measures one checkpoint, the newest that began to align; others report zeros.
    * The start delay is fixed when the first channel is aligned: ``max(0, now - timestamp of that barrier)``.
    * Bytes count while it runs, per batch handed to the task.
    * An abort of the checkpoint it measures sets it to zero; other aborts leave it alone.
    """

    __slots__ = ("_alignment_ns", "_bytes", "_checkpoint_id", "_start_delay_ns", "_started_ns")

    def __init__(self) -> None:
        self._checkpoint_id = _NOTHING_MEASURED
        self._started_ns: int | None = None
        self._start_delay_ns = 0
        self._alignment_ns = 0
        self._bytes = 0

    def start(self, checkpoint_id: int, timestamp_ns: int, now_ns: int) -> None:
        """The first channel is aligned for a checkpoint whose barrier was created at ``timestamp_ns``."""
        self._checkpoint_id = checkpoint_id
        self._started_ns = now_ns
        self._start_delay_ns = max(0, now_ns - timestamp_ns)
        self._alignment_ns = 0
        self._bytes = 0

    def stop(self, now_ns: int) -> None:
        """The last channel is aligned."""
        assert self._started_ns is not None, "alignment ends without having started"
        self._alignment_ns = now_ns - self._started_ns
        self._started_ns = None

    def reset(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` was aborted."""
        if checkpoint_id == self._checkpoint_id:
            self._started_ns = None
            self._alignment_ns = 0

    def measures(self, checkpoint_id: int) -> bool:
        """Whether ``checkpoint_id`` is the one being measured."""
        return checkpoint_id == self._checkpoint_id

    def reset_all(self) -> None:
        """Everything was aborted."""
        self.reset(self._checkpoint_id)

    def add_bytes(self, count: int) -> None:
        """The task took a batch of this size."""
        # Outside an alignment too: the next one starts from zero, so these are never seen.
        self._bytes += count

    def metrics(self, checkpoint_id: int) -> AlignmentMetrics:
        """The measurements for ``checkpoint_id``; zeros when another one is being measured."""
        if checkpoint_id != self._checkpoint_id:
            return AlignmentMetrics()
        return AlignmentMetrics(self._start_delay_ns, self._alignment_ns, self._bytes)

    def gauge_ns(self, now_ns: int) -> int:
        """The alignment duration as a gauge: elapsed while it runs, else the last result (0 after an abort)."""
        return self._alignment_ns if self._started_ns is None else now_ns - self._started_ns


class BarrierHandler(ABC):
    """Decides when a task's snapshot is due (Flink: ``CheckpointBarrierHandler``).

    ``channels``  number of input channels, 0 for a source;
    ``checkpoints_after_tasks_finish``  whether the end of a channel counts as its barrier (Flink's default) or
    aborts pending checkpoints.
    """

    def __init__(self, channels: int, checkpoints_after_tasks_finish: bool = True) -> None:
        assert channels >= 0, channels
        self._is_open = [True] * channels
        self._open_count = channels
        self._counts_ends = checkpoints_after_tasks_finish
        self._clock = AlignmentClock()

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
    def blocked_channels(self) -> tuple[int, ...]:
        """Channels that wait for a resume, in order."""

    @abstractmethod
    def validate(self) -> None:
        """Assert the invariants."""

    @abstractmethod
    def fingerprint(self) -> tuple[object, ...]:
        """All state that determines future behaviour, without mere measurements."""

    def on_bytes(self, count: int) -> None:
        """The task took a batch of ``count`` bytes."""
        self._clock.add_bytes(count)

    def alignment_ns(self, now_ns: int) -> int:
        """Flink's gauge ``checkpointAlignmentTime``: elapsed while aligning, else the last duration."""
        return self._clock.gauge_ns(now_ns)

    @property
    def open_channels(self) -> tuple[int, ...]:
        """Channels that have not ended."""
        return tuple(channel for channel, is_open in enumerate(self._is_open) if is_open)

    @property
    def captured_channels(self) -> tuple[int, ...]:
        """Open channels whose records in flight belong to an unaligned checkpoint."""
        return self.open_channels

    def _close_channel(self, channel: int) -> None:
        assert self._is_open[channel], f"channel {channel} ends twice"
        self._is_open[channel] = False
        self._open_count -= 1

    @staticmethod
    def _snapshot_without_alignment(barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """No channel is open: the trigger itself is the cut (Flink: ``StreamTask.triggerCheckpointAsync``)."""
        checkpoint_id = barrier.checkpoint_id
        metrics = AlignmentMetrics(max(0, now_ns - barrier.timestamp_ns))
        snapshot = TriggerSnapshot(barrier, metrics)
        if barrier.options.alignment is not AlignmentType.UNALIGNED:
            return (snapshot,)
        # Nothing to capture, but the outputs of the task may hold records that the barrier overtakes.
        return (
            StartCapture(checkpoint_id),
            snapshot,
            StopCapture(checkpoint_id),
            AlignmentFinished(checkpoint_id, metrics),
        )

    def _validate_channels(self) -> None:
        assert self._open_count == sum(self._is_open), (self._open_count, self._is_open)
