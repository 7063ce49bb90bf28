"""The core of every handler that tracks one checkpoint at a time (Flink: ``SingleCheckpointBarrierHandler``), and its
simplest subclass, which aligns.

Theory of operation
-------------------
``current``  highest id ever seen; ``done``  last id completed or aborted; *pending* iff ``current != done``.
``aligned``  set of channels that delivered the barrier of ``current`` or ended meanwhile: a channel that does both
             counts once. ``target``  number of channels that were open when ``current`` started.
``blocked``  channels whose aligned-form barrier was taken, and which must be resumed later.

* The newest id takes precedence. A barrier of a higher id aborts the pending one (subsumed) and starts its own. One of
  a lower or finished id is obsolete: its channel is resumed at once and nothing else changes.
* A cancel marker acts iff its id is higher than ``current``, or equal with at least one channel aligned. For a higher
  id only that id is reported; the pending one vanishes silently, and its channels are released.
* An abort is, in order: forget the checkpoint, stop its capture, resume its channels, tell the task. The task is told
  after the resume, and before it takes any further record.
* The subclass decides what a *mode* does with a channel that delivered its barrier or ended, and what else it has to
  undo (``_leave``). It may refuse to go on (``CheckpointRefused``): the checkpoint is then aborted.
"""

from __future__ import annotations

from abc import abstractmethod

from engine.checkpoint.barriers.barrier_handler import BarrierHandler, barrier_fingerprint
from engine.checkpoint.barriers.handler_instructions import (
    AbortCheckpoint,
    BlockChannel,
    HandlerInstruction,
    HandlerInstructions,
    ResumeChannels,
    TriggerSnapshot,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CancelCheckpointMarker, CheckpointBarrier

_NO_CHECKPOINT = -1


class CheckpointRefused(Exception):
    """A mode cannot go on with the current checkpoint (Flink: ``CheckpointException`` inside a handler's state).

    Never leaves the handler: it becomes an abort with ``reason``.
    """

    def __init__(self, reason: CheckpointFailureReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class SingleCheckpointHandler(BarrierHandler):
    """Tracks at most one checkpoint; see the rules at the top of the module.

    ``source_channels``  those that stand for a source chained into the task.
    """

    def __init__(
        self, channels: int, checkpoints_after_tasks_finish: bool = True, *, source_channels: tuple[int, ...] = ()
    ) -> None:
        super().__init__(channels, checkpoints_after_tasks_finish)
        assert all(0 <= channel < channels for channel in source_channels), (source_channels, channels)
        self._source_channels = source_channels
        self._current = _NO_CHECKPOINT
        self._done = _NO_CHECKPOINT
        self._first_barrier: CheckpointBarrier | None = None
        self._aligned: set[int] = set()
        self._target = 0
        self._blocked: set[int] = set()

    @property
    def captured_channels(self) -> tuple[int, ...]:
        """All open ones except chained sources: records a source has not emitted are covered by its position."""
        return tuple(channel for channel in self.open_channels if channel not in self._source_channels)

    # --- hooks for a mode -----------------------------------------------------------------------------------------

    @abstractmethod
    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        now_ns: int,
        out: list[HandlerInstruction],
    ) -> None:
        """``channel`` delivered its barrier (``blocks``: in a form that blocks it); ``complete``: it was the last one
        missing."""

    @abstractmethod
    def _on_channel_ended(
        self, barrier: CheckpointBarrier, complete: bool, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        """A channel ended while the checkpoint of ``barrier`` is pending; ``complete``: it was the last one missing."""

    def _on_started(self, barrier: CheckpointBarrier, now_ns: int, out: list[HandlerInstruction]) -> None:
        """The checkpoint of ``barrier`` has begun, and this event has not finished it."""

    def _leave(self, checkpoint_id: int, out: list[HandlerInstruction]) -> None:
        """``checkpoint_id``, pending until now, is aborted: undo the mode's actions besides blocking channels."""

    # --- events ---------------------------------------------------------------------------------------------------

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Align ``channel``, or ignore an obsolete barrier."""
        assert self._is_open[channel], f"barrier {barrier.checkpoint_id} behind the end of channel {channel}"
        blocks = barrier.options.needs_alignment
        if self._is_obsolete(barrier.checkpoint_id):
            # A barrier in aligned form blocks its channel like any other, and only this handler can resume it.
            waits = blocks and channel not in self._blocked
            return (BlockChannel(channel), ResumeChannels((channel,))) if waits else ()
        out: list[HandlerInstruction] = []
        started = self._start_if_new(barrier, out)
        self._align(channel, barrier, blocks, now_ns, out)
        if started and self._is_pending:
            self._on_started(barrier, now_ns, out)
        return tuple(out)

    def on_cancel(self, channel: int, marker: CancelCheckpointMarker, now_ns: int) -> HandlerInstructions:
        """Abort, when the marker is for a newer checkpoint or for the one being aligned."""
        cancelled = marker.checkpoint_id
        out: list[HandlerInstruction] = []
        # A marker of an older checkpoint changes nothing (mutant "late cancel obeyed").
        if cancelled > self._current or (cancelled == self._current and self._aligned):
            self._abort(cancelled, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER, out)
        return tuple(out)

    def on_end_of_partition(self, channel: int, now_ns: int) -> HandlerInstructions:
        """Count the end as the channel's barrier, or abort, depending on ``checkpoints_after_tasks_finish``."""
        self._close_channel(channel)
        out: list[HandlerInstruction] = []
        if not self._is_pending:
            return ()
        if not self._counts_ends:
            self._abort(self._current, CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM, out)
            return tuple(out)
        barrier = self._first_barrier
        assert barrier is not None
        self._align(channel, barrier, None, now_ns, out)
        return tuple(out)

    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Act as if the barrier had come on every open channel, without blocking any."""
        if self._is_obsolete(barrier.checkpoint_id):
            return ()
        out: list[HandlerInstruction] = []
        self._start_if_new(barrier, out)
        if self._open_count == 0:
            self._finish()
            out += self._snapshot_without_alignment(barrier, now_ns)
        for channel in self.open_channels:
            # The channels aligned before may complete the checkpoint before the turn of the last one.
            if self._is_pending:
                self._align(channel, barrier, False, now_ns, out)
        return tuple(out)

    def close(self) -> None:
        """The task ends: forget the pending checkpoint; no channel is resumed, and no message is sent."""
        self._blocked.clear()
        self._finish()

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def pending_checkpoint_ids(self) -> tuple[int, ...]:
        """The checkpoint being aligned, if any."""
        return (self._current,) if self._is_pending else ()

    @property
    def latest_checkpoint_id(self) -> int:
        """The highest id seen, -1 before the first."""
        return self._current

    @property
    def blocked_channels(self) -> tuple[int, ...]:
        """Channels that wait for a resume, in order."""
        return tuple(sorted(self._blocked))

    # --- the core -------------------------------------------------------------------------------------------------

    @property
    def _is_pending(self) -> bool:
        return self._current != self._done

    def _is_obsolete(self, checkpoint_id: int) -> bool:
        return checkpoint_id < self._current or (checkpoint_id == self._current and not self._is_pending)

    def _start_if_new(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> bool:
        if barrier.checkpoint_id == self._current:
            return False
        if self._is_pending:
            self._abort(self._current, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, out)
        self._current = barrier.checkpoint_id
        self._first_barrier = barrier
        # Fixed here and never changed while pending: channels that end later join `aligned` instead.
        self._target = self._open_count
        return True

    def _align(
        self, channel: int, barrier: CheckpointBarrier, blocks: bool | None, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        """``channel`` delivered its barrier, or ended (``blocks``: ``None``): measure, let the mode react, finish when
        it was the last."""
        # A barrier is awaited from every channel of all inputs (mutant "one barrier per input").
        newly_aligned = channel not in self._aligned
        self._aligned.add(channel)
        complete = len(self._aligned) == self._target
        if newly_aligned and len(self._aligned) == 1:
            self._clock.start(self._current, barrier.timestamp_ns, now_ns)
        if complete:
            # Before the mode reacts: the snapshot it triggers carries the duration.
            self._clock.stop(now_ns)
        try:
            if blocks is None:
                self._on_channel_ended(barrier, complete, now_ns, out)
            else:
                self._on_channel_aligned(channel, barrier, blocks, complete, now_ns, out)
        except CheckpointRefused as refused:
            self._abort(self._current, refused.reason, out)
            return
        if complete:
            self._finish()

    def _finish(self) -> None:
        self._aligned.clear()
        self._target = 0
        self._done = self._current
        self._first_barrier = None

    def _abort(self, checkpoint_id: int, reason: CheckpointFailureReason, out: list[HandlerInstruction]) -> None:
        """Give up ``checkpoint_id``, and with it any pending one."""
        if self._is_pending:
            self._leave(self._current, out)
        self._resume_blocked(out)
        self._current = max(self._current, checkpoint_id)
        self._finish()
        # Only the newest id is ever aborted: the present measurement is void.
        self._clock.reset_all()
        out.append(AbortCheckpoint(checkpoint_id, reason))

    # --- for the modes --------------------------------------------------------------------------------------------

    def _block(self, channel: int, out: list[HandlerInstruction]) -> None:
        assert channel not in self._blocked, f"channel {channel} yielded a barrier while it was blocked"
        # Records after the barrier wait: they are not in the snapshot (mutant "alignment skipped").
        self._blocked.add(channel)
        out.append(BlockChannel(channel))

    def _resume_blocked(self, out: list[HandlerInstruction]) -> None:
        if self._blocked:
            out.append(ResumeChannels(self.blocked_channels))
            self._blocked.clear()

    def _complete_aligned(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        # Snapshot first: a record released before it would be counted although it comes after the cut.
        out.append(TriggerSnapshot(barrier, self._clock.metrics(self._current)))
        self._resume_blocked(out)

    def _close_channel(self, channel: int) -> None:
        super()._close_channel(channel)
        # An ended channel need not be resumed.
        self._blocked.discard(channel)

    def validate(self) -> None:
        self._validate_channels()
        assert self._done <= self._current, (self._done, self._current)
        assert all(self._is_open[channel] for channel in self._blocked), self._blocked
        if not self._is_pending:
            assert not self._aligned, (self._current, self._aligned)
            assert not self._blocked, f"{self.blocked_channels} blocked for no checkpoint"
            assert self._first_barrier is None, self._first_barrier
            return
        assert self._first_barrier is not None, self._current
        assert self._first_barrier.checkpoint_id == self._current, (self._first_barrier, self._current)
        assert len(self._aligned) < self._target, (self._aligned, self._target)
        assert not self._aligned.issuperset(self.open_channels), (
            f"checkpoint {self._current} waits for nobody: it would never end"
        )

    def fingerprint(self) -> tuple[object, ...]:
        return (
            self._current,
            self._done,
            tuple(sorted(self._aligned)),
            self._target,
            self._first_barrier and barrier_fingerprint(self._first_barrier),
            self.open_channels,
            self.blocked_channels,
        )


class AlignedBarrierHandler(SingleCheckpointHandler):
    """Exactly-once by blocking: each channel waits at its barrier until all barriers of the checkpoint have arrived
    (Flink: ``SingleCheckpointBarrierHandler.aligned``).

    * A barrier blocks its channel. Records after it wait upstream until the channel is resumed. A chained source is
      blocked likewise, by its own trigger.
    * The last barrier (or the end of the last missing channel) takes the snapshot and *then* resumes all blocked
      channels. So the snapshot follows every record before a barrier and precedes every record after one, on every
      channel: the cut is consistent and holds no in-flight data.
    * A newer barrier on a blocked channel simply waits in FIFO order until the channel is resumed.
    * A channel that ends is not blocked any more: its sender needs no resume.
    * Announcements are ignored.
    """

    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        now_ns: int,
        out: list[HandlerInstruction],
    ) -> None:
        assert barrier.options.alignment in (AlignmentType.ALIGNED, AlignmentType.FORCED_ALIGNED), (
            f"the aligned handler got a barrier with {barrier.options}"
        )
        if blocks:
            self._block(channel, out)
        if complete:
            self._complete_aligned(barrier, out)

    def _on_channel_ended(
        self, barrier: CheckpointBarrier, complete: bool, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        if complete:
            self._complete_aligned(barrier, out)

    def validate(self) -> None:
        """Assert the invariants: a pending checkpoint has an aligned channel, and only aligned ones are blocked."""
        super().validate()
        assert self._aligned or not self._is_pending, self._current
        assert self._aligned.issuperset(self._blocked), (self._blocked, self._aligned)
