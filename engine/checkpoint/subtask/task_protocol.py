"""The task's side of a checkpoint: its reactions to a due snapshot, a notification and a finished upload.

Theory of operation (Flink: ``SubtaskCheckpointCoordinatorImpl`` and the notification part of ``StreamTask``)
--------------------------------------------------------------------------------------------------------------
* Ids grow: a snapshot whose id is not above the last one is refused, silently.
* A barrier goes on in its own form. A barrier that had to be aligned, because records on an edge may not be overtaken,
  is unaligned again after the task, and so a priority event, or timeoutable again.
* An abort notification that overtakes its barrier is remembered. The barrier then takes no snapshot: a cancel marker
  goes downstream instead, so that no task there waits for it, and the note is consumed. At most ``max_recorded_aborts``
  notes are kept, the oldest is dropped first; an id more than that many below the highest noted one counts as aborted.
* When the barrier handler gives up on an id, the coordinator gets a decline, then all outputs a cancel marker, before
  the task takes any further record.
* A snapshot's asynchronous part goes one way: running -> acknowledged | cancelled | failed. The side that loses the
  race does nothing further, so state is either acknowledged or discarded, never both.
* Operators hear *complete* ids in strictly growing order, starting above the restored id. An abort notification
  carries the latest completed id: when that *complete* was lost, or is still on its way, it is delivered first.
* A savepoint that stops the job: from its snapshot on the task waits for *complete* of exactly this id, which lets it
  finish. *Complete* of any other id does not, and *abort* of this id fails the task. There is at most one per task.
* After the end of data the first snapshot is the final one: once it or a later one is complete, the last
  transactions are committed and the task may finish.
"""

from __future__ import annotations

from engine.checkpoint.barriers import AlignmentMetrics
from engine.checkpoint.coordinator import NONE_COMPLETED, NONE_SUBSUMED
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.subtask.task_instructions import (
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelSnapshot,
    DeclineCheckpoint,
    DiscardSnapshot,
    FailTask,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    NotifyOperatorsSubsumed,
    StopTask,
    TakeSnapshot,
    TaskInstruction,
    TaskInstructions,
)
from engine.elements.events import CheckpointBarrier

DEFAULT_MAX_RECORDED_ABORTS = 128
"""Abort notes a task keeps (Flink: ``DEFAULT_MAX_RECORD_ABORTED_CHECKPOINTS``)."""

_NO_CHECKPOINT = -1


class TaskCheckpointProtocol:
    """One attempt of one task. ``restored_checkpoint_id``: the checkpoint it started from, ``None`` for nothing."""

    def __init__(
        self, restored_checkpoint_id: int | None = None, max_recorded_aborts: int = DEFAULT_MAX_RECORDED_ABORTS
    ) -> None:
        assert max_recorded_aborts > 0, max_recorded_aborts
        restored = _NO_CHECKPOINT if restored_checkpoint_id is None else restored_checkpoint_id
        self._last_id = restored
        self._last_reported = restored
        self._max_notes = max_recorded_aborts
        # A dict for its insertion order: the oldest note is dropped first.
        self._abort_notes: dict[int, None] = {}
        self._highest_note = _NO_CHECKPOINT
        self._running: list[int] = []
        self._data_ended = False
        self._final_id: int | None = None
        self.final_checkpoint_completed = False
        """Whether a checkpoint that began after the end of data is complete."""
        self.stopping_id: int | None = None
        """The savepoint that stops the task, once its snapshot has begun: no record is processed any more."""

    # --- snapshots ------------------------------------------------------------------------------------------------

    def on_snapshot_due(self, barrier: CheckpointBarrier, metrics: AlignmentMetrics) -> TaskInstructions:
        """The barrier handler says ``TriggerSnapshot``."""
        checkpoint_id = barrier.checkpoint_id
        # Ids of snapshots only grow in a task (mutant "older snapshot after newer").
        if checkpoint_id <= self._last_id:
            self._consume_note(checkpoint_id)
            return ()
        self._last_id = checkpoint_id
        if self._consume_note(checkpoint_id):
            return (BroadcastCancelMarker(checkpoint_id),)
        self._running.append(checkpoint_id)
        if barrier.options.stop is not None:
            assert self.stopping_id is None, f"savepoints {self.stopping_id} and {checkpoint_id} both stop the task"
            self.stopping_id = checkpoint_id
        final = self._data_ended and self._final_id is None
        if final:
            self._final_id = checkpoint_id
        forwarded = barrier.with_options(barrier.options.with_unaligned_supported())
        return (TakeSnapshot(forwarded, metrics, final),)

    def on_alignment_aborted(self, checkpoint_id: int, reason: CheckpointFailureReason) -> TaskInstructions:
        """The barrier handler says ``AbortCheckpoint``."""
        self._last_id = max(self._last_id, checkpoint_id)
        for noted in list(self._abort_notes):
            if noted >= self._last_id:
                break
            del self._abort_notes[noted]
        told = (DeclineCheckpoint(checkpoint_id, reason), BroadcastCancelMarker(checkpoint_id))
        if checkpoint_id not in self._running:
            return told
        # Unaligned: the snapshot was taken with the first barrier, and would wait for the others for ever.
        self._running.remove(checkpoint_id)
        return (CancelSnapshot(checkpoint_id), *told)

    def on_trigger_refused(self, checkpoint_id: int, is_closing: bool) -> TaskInstructions:
        """A coordinator's trigger reached a task that does not run yet, or (``is_closing``) does not run any more."""
        reason = CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_NOT_READY
        if is_closing:
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
        return (DeclineCheckpoint(checkpoint_id, reason),)

    def on_snapshot_written(self, checkpoint_id: int) -> TaskInstructions:
        """The asynchronous part of a snapshot has finished."""
        if checkpoint_id not in self._running:
            return (DiscardSnapshot(checkpoint_id),)
        self._running.remove(checkpoint_id)
        return (AcknowledgeCheckpoint(checkpoint_id),)

    def on_snapshot_failed(
        self, checkpoint_id: int, reason: CheckpointFailureReason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
    ) -> TaskInstructions:
        """The asynchronous part failed. (A failing *synchronous* part fails the task instead.)"""
        if checkpoint_id not in self._running:
            return ()
        self._running.remove(checkpoint_id)
        return (DeclineCheckpoint(checkpoint_id, reason),)

    # --- notifications of the coordinator -------------------------------------------------------------------------

    def on_complete(self, checkpoint_id: int, last_subsumed_id: int | None = NONE_SUBSUMED) -> TaskInstructions:
        """``checkpoint_id`` is durable; ``last_subsumed_id`` is the newest id no longer retained, -1 or ``None``
        for none."""
        if checkpoint_id <= self._last_reported:
            return ()
        self._last_reported = checkpoint_id
        if self._final_id is not None and checkpoint_id >= self._final_id:
            self.final_checkpoint_completed = True
        out: list[TaskInstruction] = [NotifyOperatorsComplete(checkpoint_id)]
        if last_subsumed_id is not None and last_subsumed_id != NONE_SUBSUMED:
            out.append(NotifyOperatorsSubsumed(last_subsumed_id))
        if checkpoint_id == self.stopping_id:
            out.append(StopTask(checkpoint_id))
        return tuple(out)

    def on_abort(self, checkpoint_id: int, latest_completed_id: int | None = NONE_COMPLETED) -> TaskInstructions:
        """``checkpoint_id`` is given up; ``latest_completed_id`` (0 or ``None`` for none) repairs a lost
        *complete*."""
        out: list[TaskInstruction] = []
        if latest_completed_id is not None and latest_completed_id != NONE_COMPLETED:
            out += self.on_complete(latest_completed_id)
        if checkpoint_id in self._running:
            self._running.remove(checkpoint_id)
            out.append(CancelSnapshot(checkpoint_id))
        elif checkpoint_id > self._last_id:
            self._note_abort(checkpoint_id)
        out.append(NotifyOperatorsAborted(checkpoint_id))
        if checkpoint_id == self.stopping_id:
            out.append(FailTask(checkpoint_id))
        return tuple(out)

    def on_end_of_data(self) -> None:
        """The user's records have ended; the next snapshot is the final one."""
        self._data_ended = True

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def remembered_aborts(self) -> tuple[int, ...]:
        """Ids whose abort notification came before their barrier, oldest note first."""
        return tuple(self._abort_notes)

    # --- the rules ------------------------------------------------------------------------------------------------

    def _note_abort(self, checkpoint_id: int) -> None:
        self._abort_notes[checkpoint_id] = None
        self._highest_note = max(self._highest_note, checkpoint_id)
        if len(self._abort_notes) > self._max_notes:
            del self._abort_notes[next(iter(self._abort_notes))]

    def _consume_note(self, checkpoint_id: int) -> bool:
        noted = checkpoint_id in self._abort_notes
        self._abort_notes.pop(checkpoint_id, None)
        # Its note may have been forgotten; taking the snapshot would only be wasted work.
        return noted or checkpoint_id + self._max_notes < self._highest_note

    def validate(self) -> None:
        assert len(self._abort_notes) <= self._max_notes, len(self._abort_notes)
        assert all(running <= self._last_id for running in self._running), (self._running, self._last_id)
        assert self._running == sorted(set(self._running)), self._running
        assert self.stopping_id is None or self.stopping_id <= self._last_id, self.stopping_id
        assert self._final_id is None or self._data_ended, self._final_id
        assert not self.final_checkpoint_completed or self._final_id is not None, self._final_id

    def fingerprint(self) -> tuple[object, ...]:
        return (
            self._last_id,
            self._last_reported,
            tuple(self._abort_notes),
            self._highest_note,
            tuple(self._running),
            self._data_ended,
            self._final_id,
            self.final_checkpoint_completed,
            self.stopping_id,
        )
