"""How a checkpoint ends: completed, aborted, or refused before it got an id.

* All tasks have acknowledged -> write the metadata -> only when that is durable: retain it, subsume surplus ones,
  abort older pending ones, then notify the tasks; delete what was subsumed last. Metadata is written for one checkpoint
  at a time, and nothing aborts a checkpoint whose metadata is being written: it may be durable already. (Flink has
  both because it holds the coordinator's lock meanwhile.)
* A plain savepoint is not retained, subsumes nothing and notifies no task. A synchronous one notifies, and aborts
  older pending checkpoints, but is not retained either.
* Whoever requested the checkpoint hears of its end, and so do the failure budget and the table.
"""

from __future__ import annotations

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.coordinator_messages import (
    NONE_SUBSUMED,
    DisarmTimeout,
    DiscardPendingCheckpoint,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    NotifyCoordinatorsAborted,
    NotifyCoordinatorsComplete,
    Out,
    RequestCompleted,
    RequestFailed,
    TaskId,
)
from engine.checkpoint.coordinator.deployment import PartlyFinishedUnionStateError
from engine.checkpoint.coordinator.failure_manager import CheckpointFailureManager
from engine.checkpoint.coordinator.pending import PendingCheckpoint, PendingSet
from engine.checkpoint.coordinator.requests import TriggerRequest
from engine.checkpoint.coordinator.retained_checkpoints import Deletions, RetainedCheckpoints
from engine.checkpoint.failure_reasons import CheckpointFailureReason


class CheckpointEnding:
    """Finalizes, completes and aborts checkpoints; see the rules at the top of the module."""

    def __init__(
        self,
        pending: PendingSet,
        retained: RetainedCheckpoints,
        deletions: Deletions,
        failures: CheckpointFailureManager,
        statistics: CheckpointStatistics,
        operator_coordinators: tuple[str, ...],
    ) -> None:
        self._pending = pending
        self._retained = retained
        self._deletions = deletions
        self._failures = failures
        self._statistics = statistics
        self._operator_coordinators = operator_coordinators
        self.last_completion_ns = 0
        """When a checkpoint or savepoint completed last, 0 before the first (Flink: the same)."""

    # --- completion -----------------------------------------------------------------------------------------------

    def finalize_next(self, now_ns: int, out: Out) -> None:
        """Have the metadata written of the checkpoint whose turn it is, if any."""
        # One at a time: which checkpoint is the newest durable one must be known when the next one is written.
        while self._pending.fully_acknowledged and self._pending.finalizing_id is None:
            pending = self._pending.by_id[self._pending.fully_acknowledged.pop(0)]
            try:
                write = pending.write_instruction()
            except PartlyFinishedUnionStateError:
                self.abort(pending, CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, now_ns, out)
                continue
            self._pending.finalize(pending)
            # The timeout must not abort what may be durable already.
            out += (DisarmTimeout(pending.checkpoint_id), write)

    def complete(self, pending: PendingCheckpoint, pointer: object, now_ns: int, out: Out) -> None:
        """The metadata is durable, at ``pointer``."""
        checkpoint_id = pending.checkpoint_id
        self._pending.remove(pending)
        last_subsumed_id = NONE_SUBSUMED
        if not pending.is_savepoint:
            last_subsumed_id = self._retained.add(pending, pointer)
        self._retained.note_durable(pending)
        self._failures.on_completed(checkpoint_id)
        path = None if pointer is None else str(pointer)
        self._statistics.on_completed(checkpoint_id, now_ns, external_path=path)
        # Of savepoints, too: the pause counts from any completion (test_the_pause_counts_from_a_savepoint_too).
        self.last_completion_ns = now_ns
        if pending.request.label is not None:
            out.append(RequestCompleted(pending.request.label, checkpoint_id))
        if not pending.is_savepoint or pending.request.is_synchronous:
            for older in self._pending.in_order:
                if older.checkpoint_id < checkpoint_id and not older.is_savepoint:
                    self.abort(older, CheckpointFailureReason.CHECKPOINT_SUBSUMED, now_ns, out)
            out.append(NotifyComplete(checkpoint_id, last_subsumed_id, pending.plan.wait))
            if self._operator_coordinators:
                out.append(NotifyCoordinatorsComplete(checkpoint_id, self._operator_coordinators))
        if not pending.is_savepoint:
            # Last: until here a crash must find the older checkpoint whole.
            self._retained.delete_subsumed(out)

    # --- abort ----------------------------------------------------------------------------------------------------

    def abort(
        self,
        pending: PendingCheckpoint,
        reason: CheckpointFailureReason,
        now_ns: int,
        out: Out,
        *,
        task: TaskId | None = None,
        cause: str = "",
        keep_state: bool = False,
    ) -> None:
        """End a checkpoint. ``keep_state``: its files may be part of a durable checkpoint after all."""
        checkpoint_id, request = pending.checkpoint_id, pending.request
        self._pending.remove(pending, expired=reason is CheckpointFailureReason.CHECKPOINT_EXPIRED)
        if pending.can_be_aborted:
            out.append(DisarmTimeout(checkpoint_id))
        _answer_failed(request, reason, out, checkpoint_id)
        if keep_state:
            self._retained.note_durable(pending)
        elif pending.has_location:
            discard = DiscardPendingCheckpoint(checkpoint_id, pending.ordered_acknowledgements())
            self._deletions.begin(discard, out)
        self._statistics.on_failed(checkpoint_id, reason, now_ns, cause)
        if self._failures.on_failure(
            reason,
            checkpoint_id,
            is_savepoint=request.is_savepoint,
            is_synchronous=request.is_synchronous,
            by_task=task is not None,
        ):
            out.append(FailJob(reason, checkpoint_id, task))
        if self._operator_coordinators:
            out.append(NotifyCoordinatorsAborted(checkpoint_id, self._operator_coordinators))
        out.append(NotifyAborted(checkpoint_id, self._retained.latest_id, reason, pending.plan.wait))

    def abort_all(self, reason: CheckpointFailureReason, now_ns: int, out: Out) -> None:
        """End all pending checkpoints but the one whose metadata is being written."""
        for pending in self._pending.in_order:
            if pending.can_be_aborted:
                self.abort(pending, reason, now_ns, out)

    # --- requests without a checkpoint ----------------------------------------------------------------------------

    def drop(self, request: TriggerRequest, reason: CheckpointFailureReason, out: Out) -> None:
        """A request leaves the queue without having been tried. It counts against no budget."""
        _answer_failed(request, reason, out)

    def refuse(self, request: TriggerRequest, reason: CheckpointFailureReason, out: Out) -> None:
        """A request was tried and got no id."""
        self._statistics.on_failed_without_id()
        _answer_failed(request, reason, out)
        if self._failures.on_failure(reason, None, is_savepoint=request.is_savepoint):
            out.append(FailJob(reason))


def _answer_failed(
    request: TriggerRequest, reason: CheckpointFailureReason, out: Out, checkpoint_id: int | None = None
) -> None:
    if request.label is not None:
        out.append(RequestFailed(request.label, reason, checkpoint_id))
