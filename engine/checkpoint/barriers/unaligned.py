"""Exactly-once without waiting: the handler for unaligned barriers (Carbone et al.; Flink's strict unaligned variant).

Theory of operation, on top of the single-checkpoint core:

* The first barrier of a checkpoint opens channel-state writing, starts the capture of in-flight records on every
  channel and triggers the snapshot. Each further barrier only ends the capture of its channel (by its arrival there,
  see ``channel_capture``); the last one ends the input part and completes the metrics.
* Unaligned barriers block no channel. One still in aligned form blocks its channel until the checkpoint ends,
  because its sender waits for a resume.
* An announcement starts the checkpoint, and its barrier is moved to the front of its channel at once.
* The end of a channel counts as its barrier, but cannot trigger.
* A channel that holds the barrier of a newer checkpoint refuses the capture: the checkpoint is aborted as subsumed.
* Chained sources are blocked while the capture runs. So they emit nothing between a snapshot that another channel's
  barrier triggered and their own trigger, and need no channel state.
"""

from __future__ import annotations

from enum import Enum

from engine.checkpoint.barriers.channel_capture import InputCapture
from engine.checkpoint.barriers.handler_instructions import (
    AlignmentFinished,
    HandlerInstruction,
    HandlerInstructions,
    PromoteBarrier,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.checkpoint.barriers.single_checkpoint import CheckpointRefused, SingleCheckpointHandler
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier


class AlignmentState(Enum):
    """The state of the current checkpoint (Flink: one class of ``BarrierHandlerState`` each)."""

    ALIGNED_WAITING = "aligned, no barrier yet"
    ALIGNED_COLLECTING = "aligned, collecting barriers"
    UNALIGNED_WAITING = "unaligned, no barrier yet"
    UNALIGNED_COLLECTING = "unaligned, capturing"


class UnalignedBarrierHandler(SingleCheckpointHandler):
    """Takes the snapshot at the first barrier and captures the records before the other barriers."""

    _first_state = AlignmentState.UNALIGNED_WAITING

    def __init__(
        self,
        channels: int,
        checkpoints_after_tasks_finish: bool = True,
        *,
        capture: InputCapture,
        source_channels: tuple[int, ...] = (),
    ) -> None:
        super().__init__(channels, checkpoints_after_tasks_finish, source_channels=source_channels)
        assert len(capture.channels) == channels, (len(capture.channels), channels)
        self._capture = capture
        self._state = self._first_state

    def on_announcement(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Start the checkpoint of ``barrier`` if it is new; then let it overtake, or remember it for a timeout."""
        if self._is_obsolete(barrier.checkpoint_id):
            return ()
        out: list[HandlerInstruction] = []
        started = self._start_if_new(barrier, out)
        # An announcement that comes after its barrier has nothing left to promote.
        if channel not in self._aligned:
            self._on_announced(channel, out)
        if started:
            self._on_started(barrier, now_ns, out)
        return tuple(out)

    def _on_announced(self, channel: int, out: list[HandlerInstruction]) -> None:
        out.append(PromoteBarrier(channel))

    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        now_ns: int,
        out: list[HandlerInstruction],
    ) -> None:
        # Blocked already: a chained source when its trigger comes, and a channel whose barrier came late.
        if blocks and channel not in self._blocked:
            self._block(channel, out)
        if self._state is AlignmentState.UNALIGNED_WAITING:
            self._start_capture(barrier, out)
        if complete:
            self._complete_unaligned(out)

    def _on_channel_ended(
        self, barrier: CheckpointBarrier, complete: bool, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        if complete and self._state is AlignmentState.UNALIGNED_COLLECTING:
            self._complete_unaligned(out)

    def _start_capture(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        if not self._capture.can_start(self._current):
            raise CheckpointRefused(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        for channel in self._source_channels:
            if self._is_open[channel] and channel not in self._blocked:
                self._block(channel, out)
        out.append(StartCapture(self._current))
        out.append(TriggerSnapshot(barrier.as_unaligned(), self._clock.metrics(self._current)))
        self._state = AlignmentState.UNALIGNED_COLLECTING

    def _complete_unaligned(self, out: list[HandlerInstruction]) -> None:
        out.append(StopCapture(self._current))
        out.append(AlignmentFinished(self._current, self._clock.metrics(self._current)))
        self._resume_blocked(out)

    def _leave(self, checkpoint_id: int, out: list[HandlerInstruction]) -> None:
        if self._state is AlignmentState.UNALIGNED_COLLECTING:
            out.append(StopCapture(checkpoint_id, failed=True))

    def _finish(self) -> None:
        super()._finish()
        self._state = self._first_state

    def validate(self) -> None:
        """Assert the invariants: every state but the first has a checkpoint, and every trigger a barrier."""
        super().validate()
        assert self._is_pending or self._state is self._first_state, self._state
        collecting = (AlignmentState.ALIGNED_COLLECTING, AlignmentState.UNALIGNED_COLLECTING)
        assert self._aligned or self._state not in collecting, self._state
        excused = self._source_channels if self._state is AlignmentState.UNALIGNED_COLLECTING else ()
        assert self._aligned.union(excused).issuperset(self._blocked), (self._blocked, self._aligned)

    def fingerprint(self) -> tuple[object, ...]:
        return (*super().fingerprint(), self._state.value)
