"""The core of every handler that tracks one checkpoint at a time (Flink: ``SingleCheckpointBarrierHandler``).

Theory of operation
-------------------
``current``  highest id ever seen; ``done``  last id completed or aborted; *pending* iff ``current != done``.
``aligned``  set of channels that delivered the barrier of ``current`` or ended meanwhile: a channel that does both
             counts once. ``target``  number of channels that were open when ``current`` started.

* The newest id wins. A barrier of a higher id aborts the pending one (subsumed) and starts its own; one of a lower or
  finished id is obsolete: its channel is resumed at once and nothing else changes.
* A cancel marker acts iff its id is higher than ``current``, or equal with at least one channel aligned. For a higher
  id only that id is reported; the pending one vanishes silently, its channels are released.
* An abort is, in order: forget the checkpoint, resume its channels, tell the task. The task is told after the resume,
  and before it takes any further record.
* What a *mode* does with a channel that becomes aligned is up to the subclass (``_on_channel_aligned``), and so is
  what it has to undo on an abort (``_release``). The aligned mode is one; a mode that may switch to unaligned adds
  its states there.
"""

from __future__ import annotations

from abc import abstractmethod

from engine.checkpoint.barrier_handler import BarrierHandler, barrier_fingerprint
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.instructions import (
    AbortCheckpoint,
    BlockChannel,
    HandlerInstruction,
    HandlerInstructions,
    ResumeChannels,
)
from engine.elements.events import CancelCheckpointMarker, CheckpointBarrier

_NO_CHECKPOINT = -1


class SingleCheckpointHandler(BarrierHandler):
    """Tracks at most one checkpoint; see the rules at the top of the module."""

    def __init__(self, channels: int, checkpoints_after_tasks_finish: bool = True) -> None:
        super().__init__(channels, checkpoints_after_tasks_finish)
        self._current = _NO_CHECKPOINT
        self._done = _NO_CHECKPOINT
        self._first_barrier: CheckpointBarrier | None = None
        self._aligned: set[int] = set()
        self._target = 0

    # --- what a mode adds -----------------------------------------------------------------------------------------

    @abstractmethod
    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        out: list[HandlerInstruction],
    ) -> None:
        """``channel`` delivered its barrier (``blocks``: in a form that blocks it) or ended; ``complete``: it was
        the last one missing."""

    @abstractmethod
    def _release(self, out: list[HandlerInstruction]) -> None:
        """Undo what the mode did for the current checkpoint: it is aborted."""

    # --- events ---------------------------------------------------------------------------------------------------

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Align ``channel``, or ignore an obsolete barrier."""
        assert self._is_open[channel], f"barrier {barrier.checkpoint_id} behind the end of channel {channel}"
        if self._is_obsolete(barrier.checkpoint_id):
            # Taken in aligned form it blocks its channel like any other, and nobody else would ever resume that.
            if barrier.options.needs_alignment:
                return (BlockChannel(channel), ResumeChannels((channel,)))
            return ()
        out: list[HandlerInstruction] = []
        self._start_if_new(barrier, out)
        self._align(channel, barrier, barrier.options.needs_alignment, now_ns, out)
        return tuple(out)

    def on_cancel(self, channel: int, marker: CancelCheckpointMarker, now_ns: int) -> HandlerInstructions:
        """Abort, when the marker is for a newer checkpoint or for the one being aligned."""
        cancelled = marker.checkpoint_id
        out: list[HandlerInstruction] = []
        if cancelled > self._current or (cancelled == self._current and self._aligned):
            self._abort(cancelled, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER, out)
        return tuple(out)

    def on_end_of_partition(self, channel: int, now_ns: int) -> HandlerInstructions:
        """Count the end as the channel's barrier, or abort, depending on ``checkpoints_after_tasks_finish``."""
        self._close_channel(channel)
        out: list[HandlerInstruction] = []
        if self._is_pending:
            if self._counts_ends:
                assert self._first_barrier is not None
                self._align(channel, self._first_barrier, False, now_ns, out)
            else:
                reason = CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM
                self._abort(self._current, reason, out)
        return tuple(out)

    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Act as if the barrier had come on every open channel, without blocking any."""
        if self._is_obsolete(barrier.checkpoint_id):
            return ()
        out: list[HandlerInstruction] = []
        self._start_if_new(barrier, out)
        if self._open_count == 0:
            self._finish()
            out.append(self._snapshot_without_alignment(barrier, now_ns))
            return tuple(out)
        for channel in self.open_channels:
            if self._is_pending and channel not in self._aligned:
                self._align(channel, barrier, False, now_ns, out)
        return tuple(out)

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def pending_checkpoint_ids(self) -> tuple[int, ...]:
        """The checkpoint being aligned, if any."""
        return (self._current,) if self._is_pending else ()

    @property
    def latest_checkpoint_id(self) -> int:
        """The highest id seen, -1 before the first."""
        return self._current

    # --- the core -------------------------------------------------------------------------------------------------

    @property
    def _is_pending(self) -> bool:
        return self._current != self._done

    def _is_obsolete(self, checkpoint_id: int) -> bool:
        return checkpoint_id < self._current or (checkpoint_id == self._current and not self._is_pending)

    def _start_if_new(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        if barrier.checkpoint_id == self._current:
            return
        if self._is_pending:
            self._abort(self._current, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, out)
        self._current = barrier.checkpoint_id
        self._first_barrier = barrier
        self._aligned.clear()
        # Fixed here and never changed while pending: channels that end later join `aligned` instead.
        self._target = self._open_count

    def _align(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        now_ns: int,
        out: list[HandlerInstruction],
    ) -> None:
        newly_aligned = channel not in self._aligned
        self._aligned.add(channel)
        complete = len(self._aligned) == self._target
        if newly_aligned and len(self._aligned) == 1:
            self._clock.start(self._current, barrier.timestamp_ns, now_ns)
        if complete:
            # Before the mode reacts: the snapshot it triggers carries the duration.
            self._clock.stop(now_ns)
        self._on_channel_aligned(channel, barrier, blocks, complete, out)
        if complete:
            self._finish()

    def _finish(self) -> None:
        self._aligned.clear()
        self._done = self._current
        self._first_barrier = None

    def _abort(
        self, checkpoint_id: int, reason: CheckpointFailureReason, out: list[HandlerInstruction]
    ) -> None:
        self._current = max(self._current, checkpoint_id)
        self._done = max(self._done, checkpoint_id)
        self._first_barrier = None
        self._aligned.clear()
        self._target = 0
        self._release(out)
        # Whatever was being measured belonged to a checkpoint that is gone now.
        self._clock.reset_all()
        out.append(AbortCheckpoint(checkpoint_id, reason))

    def validate(self) -> None:
        """Assert the invariants of the core."""
        self._validate_channels()
        assert self._done <= self._current, (self._done, self._current)
        if not self._is_pending:
            assert not self._aligned, (self._current, self._aligned)
            assert self._first_barrier is None, self._first_barrier
            return
        assert self._first_barrier is not None, self._current
        assert self._first_barrier.checkpoint_id == self._current, (self._first_barrier, self._current)
        assert 0 < len(self._aligned) < self._target, (self._aligned, self._target)
        waiting_for = [channel for channel in self.open_channels if channel not in self._aligned]
        assert waiting_for, f"checkpoint {self._current} waits for nobody: it would never end"

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next; what is merely measured is left out."""
        return (
            self._current,
            self._done,
            tuple(sorted(self._aligned)),
            self._target,
            self._first_barrier and barrier_fingerprint(self._first_barrier),
            self.open_channels,
            self.blocked_channels,
        )
