"""At-least-once in a loop: the tracker of a task to which some channels lead back (back edges).

Theory of operation, around a tracker of the **forward** channels, which decides when a snapshot is due:

* Then the back edges whose barrier is not here are logged, the snapshot is triggered, and its barrier goes round. Each
  back edge is logged until it delivers that barrier; with the last one the log, and so the snapshot, is complete.
* A barrier that comes on a back edge before the snapshot is noted: nothing of that channel has to be logged. Records
  after it may be counted twice, as at-least-once allows. A cancel marker before the snapshot is noted as well: the
  checkpoint is then reported as cancelled when its snapshot is due. At most 50 ids are noted.
* Only one log is kept. A newer checkpoint whose snapshot is due subsumes the one whose log has not ended; a cancel
  marker for the logged checkpoint, or for a newer one, ends it. If the barrier of a newer checkpoint comes on a back
  edge, or waits there already, the log has no clear end any more: the checkpoint is aborted as subsumed.
* ``last`` is the highest id triggered or reported as cancelled. Messages about ids up to it are obsolete, unless they
  concern the log: a marker that the task itself has sent round says nothing new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from engine.checkpoint.barriers.at_least_once import MAX_PENDING_CHECKPOINTS, AtLeastOnceTracker
from engine.checkpoint.barriers.back_edges import BackEdges
from engine.checkpoint.barriers.barrier_handler import BarrierHandler
from engine.checkpoint.barriers.channel_capture import InputCapture
from engine.checkpoint.barriers.handler_instructions import (
    AbortCheckpoint,
    AlignmentFinished,
    AlignmentMetrics,
    HandlerInstruction,
    HandlerInstructions,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CancelCheckpointMarker, CheckpointBarrier

_NO_CHECKPOINT = -1
_CANCELLED = -1
"""Among the channels of a note: a cancel marker came."""


class BackEdgeTracker(BarrierHandler):
    """Counts barriers on forward channels and logs back edges; see the rules at the top of the module.

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
        edges = BackEdges(channels, back_edges)
        self._open = dict.fromkeys(range(channels))
        self._counts_ends = checkpoints_after_tasks_finish
        self._back_edges = edges.channels
        self._forward = {channel: position for position, channel in enumerate(edges.forward)}
        self._tracker = AtLeastOnceTracker(len(edges.forward), checkpoints_after_tasks_finish)
        self.clock = self._tracker.clock
        self._capture = capture
        self._last = _NO_CHECKPOINT
        self._logged: int | None = None
        self._awaited: set[int] = set()
        self._notes: dict[int, set[int]] = {}
        self._metrics = AlignmentMetrics()
        self._triggered_ns = 0
        self._triggered_bytes = 0

    # --- events ---------------------------------------------------------------------------------------------------

    def on_barrier(self, channel: int, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Count a barrier of a forward channel; on a back edge, end its log or take note."""
        if channel in self._forward:
            return self._carried_on(self._tracker.on_barrier(self._forward[channel], barrier, now_ns), now_ns)
        assert channel in self._open, f"barrier {barrier.checkpoint_id} behind the end of channel {channel}"
        if barrier.checkpoint_id == self._logged:
            return self._returned(channel, now_ns)
        out: HandlerInstructions = ()
        if channel in self._awaited and barrier.checkpoint_id > self._last:
            # The barrier of the logged checkpoint was dropped on the way round, which trackers do silently.
            out = self._log_aborted(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        self._note(barrier.checkpoint_id, channel)
        return out

    def on_cancel(self, channel: int, marker: CancelCheckpointMarker, now_ns: int) -> HandlerInstructions:
        """Abort the id and everything older; on a back edge only the logged checkpoint, or take note."""
        cancelled = marker.checkpoint_id
        if cancelled == self._logged:
            return self._log_aborted(CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)
        if channel in self._forward:
            return self._carried_on(self._tracker.on_cancel(self._forward[channel], marker, now_ns), now_ns)
        self._note(cancelled, _CANCELLED)
        return ()

    def on_end_of_partition(self, channel: int, now_ns: int) -> HandlerInstructions:
        """Count the end as the channel's barrier, or abort, depending on ``checkpoints_after_tasks_finish``."""
        assert channel in self._open, f"channel {channel} ends twice"
        del self._open[channel]
        out: list[HandlerInstruction] = []
        if not self._counts_ends:
            out += self._log_aborted(CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM)
        if channel in self._forward:
            out += self._carried_on(self._tracker.on_end_of_partition(self._forward[channel], now_ns), now_ns)
        else:
            out += self._returned(channel, now_ns)
        return tuple(out)

    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> HandlerInstructions:
        """Count a barrier on every open forward channel; with none open the snapshot is due at once."""
        return self._carried_on(self._tracker.on_trigger(barrier, now_ns), now_ns)

    def close(self) -> None:
        """The task ends: nothing is pending any more."""
        self._tracker.close()
        self._notes.clear()
        self._logged = None
        self._awaited.clear()

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def captured_channels(self) -> tuple[int, ...]:
        """The back edges whose barrier of the logged checkpoint is to come."""
        return tuple(sorted(self._awaited))

    @property
    def pending_checkpoint_ids(self) -> tuple[int, ...]:
        """Ids being logged or counted that were not cancelled, oldest first."""
        logged = () if self._logged is None else (self._logged,)
        return (*logged, *(one for one in self._tracker.pending_checkpoint_ids if one > self._last))

    @property
    def latest_checkpoint_id(self) -> int:
        """The highest id that was counted, triggered or cancelled, -1 before the first."""
        return max(self._last, self._tracker.latest_checkpoint_id)

    @property
    def open_channels(self) -> tuple[int, ...]:
        """Channels that have not ended, in order."""
        return tuple(self._open)

    # --- the rules ------------------------------------------------------------------------------------------------

    def _carried_on(self, told: Iterable[HandlerInstruction], now_ns: int) -> HandlerInstructions:
        """The tracker's instructions, with the log of the back edges around them."""
        out: list[HandlerInstruction] = []
        for instruction in told:
            match instruction:
                case TriggerSnapshot(barrier) if barrier.checkpoint_id > self._last:
                    self._snapshot_due(instruction, now_ns, out)
                case AbortCheckpoint(checkpoint_id) if checkpoint_id > self._last:
                    out += self._log_aborted(CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)
                    self._pass(checkpoint_id)
                    out.append(instruction)
                case TriggerSnapshot() | AbortCheckpoint():
                    # Obsolete: the tracker forgets the ids that a single channel has triggered or cancelled.
                    pass
                case _:
                    raise AssertionError(f"the tracker never says {instruction!r}")
        return tuple(out)

    def _snapshot_due(self, due: TriggerSnapshot, now_ns: int, out: list[HandlerInstruction]) -> None:
        checkpoint_id = due.barrier.checkpoint_id
        out += self._log_aborted(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        noted = self._pass(checkpoint_id)
        if _CANCELLED in noted:
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
            out.append(AbortCheckpoint(checkpoint_id, reason))
            return
        awaited = [channel for channel in self._back_edges if channel in self._open and channel not in noted]
        if not self._capture.can_start(checkpoint_id, awaited):
            out.append(AbortCheckpoint(checkpoint_id, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED))
            return
        self._awaited = set(awaited)
        if awaited:
            self._logged = checkpoint_id
            self._metrics, self._triggered_ns, self._triggered_bytes = due.metrics, now_ns, self.clock.bytes_taken
            out.append(StartCapture(checkpoint_id))
        out.append(due)

    def _pass(self, checkpoint_id: int) -> set[int]:
        """``checkpoint_id`` is settled here, and with it all older ones; returns the channels noted for it."""
        self._last = checkpoint_id
        noted = self._notes.pop(checkpoint_id, set())
        self._notes = {known: channels for known, channels in self._notes.items() if known > checkpoint_id}
        return noted

    def _note(self, checkpoint_id: int, channel: int) -> None:
        if checkpoint_id > self._last:
            self._notes.setdefault(checkpoint_id, set()).add(channel)
            if len(self._notes) > MAX_PENDING_CHECKPOINTS:
                del self._notes[min(self._notes)]

    def _returned(self, channel: int, now_ns: int) -> HandlerInstructions:
        """The log of one back edge has ended."""
        self._awaited.discard(channel)
        if self._logged is None or self._awaited:
            return ()
        checkpoint_id, self._logged, metrics = self._logged, None, self._metrics
        measured = AlignmentMetrics(
            metrics.start_delay_ns,
            metrics.alignment_ns + now_ns - self._triggered_ns,
            metrics.bytes_processed_during_alignment + self.clock.bytes_taken - self._triggered_bytes,
        )
        return (StopCapture(checkpoint_id), AlignmentFinished(checkpoint_id, measured))

    def _log_aborted(self, reason: CheckpointFailureReason) -> HandlerInstructions:
        if self._logged is None:
            return ()
        checkpoint_id, self._logged = self._logged, None
        self._awaited.clear()
        return (StopCapture(checkpoint_id, failed=True), AbortCheckpoint(checkpoint_id, reason))

    def validate(self) -> None:
        self._tracker.validate()
        assert (self._logged is None) == (not self._awaited), (self._logged, self._awaited)
        assert self._logged is None or self._logged == self._last, (self._logged, self._last)
        assert self._awaited.issubset(self._open), (self._awaited, self._open)
        assert all(known > self._last for known in self._notes), (self._notes, self._last)
        assert len(self._notes) <= MAX_PENDING_CHECKPOINTS, len(self._notes)

    def fingerprint(self) -> tuple[object, ...]:
        return (
            self._tracker.fingerprint(),
            self._last,
            self._logged,
            tuple(sorted(self._awaited)),
            tuple((known, tuple(sorted(channels))) for known, channels in sorted(self._notes.items())),
            tuple(self._open),
        )
