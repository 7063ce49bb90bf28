"""Exactly-once in a loop: the barrier handler of a task to which some channels lead back (back edges).

Without a rule of its own such a task would wait for ever: the barrier on a back edge is one that it must send first.
Theory of operation, on top of the alternating handler, for every form of barrier (Carbone et al. 2015, ABS on
cyclic graphs; Flink has nothing like it, and its iterations lose their records in flight):

* *Aligned-form barriers.* The snapshot is due when every **forward** channel has delivered its barrier or ended. Then
  the back edges whose barrier is not here are logged (a capture, as for unaligned checkpoints, but on them alone). The
  snapshot is triggered with the barrier in its aligned form, and all blocked channels are resumed. The barrier goes
  round the loop; each back edge is logged until it delivers it. With the last one the log, and so the snapshot, is
  complete: ``StopCapture``, ``AlignmentFinished``.
* A barrier may come on a back edge *before* the snapshot, from a part of the loop that another subtask of the head
  feeds. It counts, and blocks its channel, until the snapshot: records after it are after the cut. The task does not
  wait for such a barrier, so this cannot lock the loop. When no forward channel is open, that barrier itself triggers.
* *After* the snapshot a barrier blocks no back edge: a back edge that is still blocked is resumed at once.
* *Unaligned barriers* are treated as on any channel: the first one, wherever it comes from, triggers; all channels are
  captured until theirs comes. A timeout before the snapshot goes unaligned likewise; once the log has begun it
  changes nothing here.
* The coordinator's trigger stands for a barrier on every open forward channel. When none is open it is the cut.
* The alignment takes until the last barrier, so it contains the way round the loop.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.checkpoint.barriers.alternating import AlternatingBarrierHandler
from engine.checkpoint.barriers.channel_capture import InputCapture
from engine.checkpoint.barriers.handler_instructions import (
    HandlerInstruction,
    HandlerInstructions,
    ResumeChannels,
    StartCapture,
    TriggerSnapshot,
)
from engine.checkpoint.barriers.single_checkpoint import CheckpointRefused
from engine.checkpoint.barriers.unaligned import AlignmentState
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import AlignmentType, CheckpointBarrier

_AHEAD_OF_THE_SNAPSHOT = (AlignmentState.ALIGNED_WAITING, AlignmentState.ALIGNED_COLLECTING)
_BEHIND_THE_SNAPSHOT = AlignmentState.UNALIGNED_COLLECTING


class BackEdgeBarrierHandler(AlternatingBarrierHandler):
    """Waits for no barrier that has to go round first; see the rules at the top of the module.

    ``back_edges``  the channels that lead back to this task; at least one other channel does not.
    """

    def __init__(
        self,
        channels: int,
        checkpoints_after_tasks_finish: bool = True,
        *,
        capture: InputCapture,
        back_edges: Collection[int],
    ) -> None:
        super().__init__(channels, checkpoints_after_tasks_finish, capture=capture)
        self._back_edges = tuple(sorted(back_edges))
        self._forward = tuple(channel for channel in range(channels) if channel not in self._back_edges)
        assert self._forward, "a task with back edges only has no input"
        # The snapshot of the current checkpoint was aligned; only back edges are still awaited.
        self._logs = False

    @property
    def captured_channels(self) -> tuple[int, ...]:
        """While a log is kept: the back edges whose barrier is to come. Else all open channels."""
        return self._awaited_back_edges if self._logs else super().captured_channels

    # --- events ---------------------------------------------------------------------------------------------------

    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Act as if the barrier had come on every open forward channel."""
        if self._open_count == 0:
            return super().on_trigger(barrier, now_ns)
        if self._is_obsolete(barrier.checkpoint_id):
            return ()
        out: list[HandlerInstruction] = []
        started = self._start_if_new(barrier, out)
        forward = [channel for channel in self._forward if self._is_open[channel]]
        for channel in forward:
            if self._is_pending and channel not in self._aligned:
                self._align(channel, barrier, False, now_ns, out)
        # A back edge may have triggered it already.
        if not forward and self._state is not _BEHIND_THE_SNAPSHOT:
            self._trigger_at_once(barrier, now_ns, out)
        if started and self._is_pending:
            self._on_started(barrier, now_ns, out)
        return tuple(out)

    def on_timeout(self, checkpoint_id: int, now_ns: int) -> HandlerInstructions:
        """Go unaligned, if ``checkpoint_id`` has no snapshot yet."""
        out = list(super().on_timeout(checkpoint_id, now_ns))
        self._resume_back_edges(out)
        return tuple(out)

    # --- the mode -------------------------------------------------------------------------------------------------

    def _on_channel_aligned(
        self,
        channel: int,
        barrier: CheckpointBarrier,
        blocks: bool,
        complete: bool,
        now_ns: int,
        out: list[HandlerInstruction],
    ) -> None:
        overtakes = barrier.options.alignment is AlignmentType.UNALIGNED
        if self._state in _AHEAD_OF_THE_SNAPSHOT and not overtakes and self._is_cut and not complete:
            self._announced.discard(channel)
            if blocks:
                self._block(channel, out)
            self._begin_log(barrier, out)
            return
        super()._on_channel_aligned(channel, barrier, blocks, complete, now_ns, out)
        self._resume_back_edges(out)

    def _on_channel_ended(
        self, barrier: CheckpointBarrier, complete: bool, now_ns: int, out: list[HandlerInstruction]
    ) -> None:
        if self._state in _AHEAD_OF_THE_SNAPSHOT and self._is_cut and not complete:
            self._begin_log(barrier, out)
            return
        super()._on_channel_ended(barrier, complete, now_ns, out)
        self._resume_back_edges(out)

    @property
    def _is_cut(self) -> bool:
        """Whether no record before the cut can come any more on a forward channel."""
        return all(channel in self._aligned for channel in self._forward if self._is_open[channel])

    @property
    def _awaited_back_edges(self) -> tuple[int, ...]:
        return tuple(channel for channel in self._back_edges if self._is_open[channel] and channel not in self._aligned)

    def _trigger_at_once(self, barrier: CheckpointBarrier, now_ns: int, out: list[HandlerInstruction]) -> None:
        # One of the forward channels, all of which have ended, stands for the trigger: one must be aligned.
        self._aligned.add(self._forward[0])
        self._target += 1
        self._clock.start(self._current, barrier.timestamp_ns, now_ns)
        try:
            if barrier.options.alignment is AlignmentType.UNALIGNED:
                self._time_out(barrier, out)
                self._start_capture(barrier, out)
            else:
                self._begin_log(barrier, out)
        except CheckpointRefused as refused:
            self._abort(self._current, refused.reason, out)

    def _begin_log(self, barrier: CheckpointBarrier, out: list[HandlerInstruction]) -> None:
        channels = self._capture.channels
        if not all(channels[channel].can_start(self._current) for channel in self._awaited_back_edges):
            raise CheckpointRefused(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        self._logs = True
        self._state = _BEHIND_THE_SNAPSHOT
        self._announced.clear()
        out.append(StartCapture(self._current))
        # In the form it has: no barrier of an aligned snapshot overtakes records on the outputs.
        out.append(TriggerSnapshot(barrier, self._clock.metrics(self._current)))
        self._resume_blocked(out)

    def _resume_back_edges(self, out: list[HandlerInstruction]) -> None:
        blocked = tuple(channel for channel in self._back_edges if channel in self._blocked)
        if blocked and self._state is _BEHIND_THE_SNAPSHOT:
            self._blocked.difference_update(blocked)
            out.append(ResumeChannels(blocked))

    def _finish(self) -> None:
        super()._finish()
        self._logs = False

    def validate(self) -> None:
        """Assert the invariants: a log is kept after a cut, and the task never waits for a barrier that cannot come."""
        super().validate()
        assert not self._logs or (self._state is _BEHIND_THE_SNAPSHOT and self._is_cut), (self._logs, self._state)
        assert not self._logs or self._awaited_back_edges, f"the log of {self._current} has no end"
        if not self._is_pending:
            return
        if self._state is _BEHIND_THE_SNAPSHOT:
            assert self._blocked.isdisjoint(self._back_edges), f"{self.blocked_channels} blocked behind the snapshot"
        elif self._state is AlignmentState.ALIGNED_COLLECTING:
            assert not self._is_cut, f"checkpoint {self._current} waits for its own barrier"

    def fingerprint(self) -> tuple[object, ...]:
        return (*super().fingerprint(), self._logs)
