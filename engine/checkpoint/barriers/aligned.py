"""Exactly-once by blocking: the handler for aligned barriers (Flink: ``SingleCheckpointBarrierHandler.aligned``).

Theory of operation, on top of the single-checkpoint core:

* A barrier blocks its channel. Records behind it wait upstream until the channel is resumed. A chained source is
  blocked likewise, by its own trigger.
* The last barrier (or the end of the last missing channel) takes the snapshot and *then* resumes all blocked
  channels. So the snapshot follows every record before a barrier and precedes every record behind one, on every
  channel: the cut is consistent and holds no in-flight data.
* A newer barrier behind a blocked channel simply waits in FIFO order until the channel is resumed.
* A channel that ends is not blocked any more: there is nobody to resume.
* Announcements are ignored.
"""

from __future__ import annotations

from engine.checkpoint.barriers.handler_instructions import HandlerInstruction
from engine.checkpoint.barriers.single_checkpoint import SingleCheckpointHandler
from engine.elements.events import AlignmentType, CheckpointBarrier


class AlignedBarrierHandler(SingleCheckpointHandler):
    """Blocks each channel behind its barrier until all barriers of the checkpoint have arrived."""

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
        """Assert the invariants: someone is aligned while pending, and only those are blocked."""
        super().validate()
        assert self._aligned or not self._is_pending, self._current
        assert self._aligned.issuperset(self._blocked), (self._blocked, self._aligned)
