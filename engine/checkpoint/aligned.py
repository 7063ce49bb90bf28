"""Exactly-once by blocking: the handler for aligned barriers (Flink: ``SingleCheckpointBarrierHandler.aligned``).

Theory of operation, on top of the single-checkpoint core:

* A barrier blocks its channel. Records behind it wait upstream until the channel is resumed.
* The last barrier (or the end of the last missing channel) takes the snapshot and *then* resumes all blocked
  channels. So the snapshot follows every record before a barrier and precedes every record behind one, on every
  channel: the cut is consistent and holds no in-flight data.
* A newer barrier behind a blocked channel simply waits in FIFO order until the channel is resumed.
* A channel that ends is not blocked any more: there is nobody to resume.
"""

from __future__ import annotations

from engine.checkpoint.instructions import BlockChannel, HandlerInstruction, ResumeChannels, TriggerSnapshot
from engine.checkpoint.single_checkpoint import SingleCheckpointHandler
from engine.elements.events import AlignmentType, CheckpointBarrier


class AlignedBarrierHandler(SingleCheckpointHandler):
    """Blocks each channel behind its barrier until all barriers of the checkpoint have arrived."""

    def __init__(self, channels: int, checkpoints_after_tasks_finish: bool = True) -> None:
        super().__init__(channels, checkpoints_after_tasks_finish)
        self._blocked: list[int] = []

    @property
    def blocked_channels(self) -> tuple[int, ...]:
        """Channels that wait for a resume, in order."""
        return tuple(self._blocked)

    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        out: list[HandlerInstruction],
    ) -> None:
        assert barrier.options.alignment in (AlignmentType.ALIGNED, AlignmentType.FORCED_ALIGNED), (
            f"the aligned handler got a barrier with {barrier.options}"
        )
        if blocks:
            assert channel not in self._blocked, f"channel {channel} yielded a barrier while it was blocked"
            self._blocked.append(channel)
            self._blocked.sort()
            out.append(BlockChannel(channel))
        if complete:
            # Snapshot first: a record released before it would be counted although it lies behind the cut.
            out.append(TriggerSnapshot(barrier, self._clock.metrics(barrier.checkpoint_id)))
            self._release(out)

    def _close_channel(self, channel: int) -> None:
        super()._close_channel(channel)
        if channel in self._blocked:
            self._blocked.remove(channel)

    def _release(self, out: list[HandlerInstruction]) -> None:
        if self._blocked:
            out.append(ResumeChannels(tuple(self._blocked)))
            self._blocked.clear()

    def validate(self) -> None:
        """Assert the invariants: only open channels of the pending checkpoint are blocked."""
        super().validate()
        assert not self._blocked or self._is_pending, f"{self._blocked} blocked for no checkpoint"
        assert all(self._is_open[channel] for channel in self._blocked), self._blocked
        assert self._aligned.issuperset(self._blocked), (self._blocked, self._aligned)
