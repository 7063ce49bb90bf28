"""How a checkpoint ends: messages of its tasks, then completion or abort, and the effects of a failure on the job.

*Messages of tasks* (``TaskMessages``)

* *Shared state* is registered before anything else is done with an acknowledgement, from any sender and however late:
  the task that uploaded it may build on it already. Only a savepoint's files are its own. A message to a coordinator
  that has died is ignored: its durable snapshots, savepoints above all, are not known here.
* The state in a message that does not count is deleted, unless it is, or may be, part of a durable checkpoint.

*The end* (``CheckpointEnding``)

* All tasks have acknowledged -> write the metadata -> only when that is durable: retain it, subsume surplus ones,
  abort older pending ones, then notify the tasks; delete the subsumed ones last. Metadata is written for one checkpoint
  at a time. Nothing aborts a checkpoint whose metadata is being written: it may be durable already. (Flink has
  both because it holds the coordinator's lock meanwhile.)
* A plain savepoint is not retained, subsumes nothing and notifies no task. A synchronous one notifies, and aborts
  older pending checkpoints, but is not retained either.
* The requester, the failure budget and the table are told of the end of a checkpoint.

*The failure budget* (``CheckpointFailureManager``, as in Flink)

* Only counted reasons count, once per checkpoint id; a failure without an id counts each time.
* Ids not above the newest completed one are ignored. A newer completion clears the count.
* More than ``tolerable_failures`` in a row fail the job and clear the count. ``None`` tolerates any number.
* A failure is *job level* when its reason is pre-flight or no task is to blame: ignored for savepoints. Otherwise it
  is *task level*: a synchronous savepoint then always fails the job, since its tasks would wait for it forever.
"""

from __future__ import annotations

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.coordinator_messages import (
    NONE_SUBSUMED,
    Acknowledge,
    Decline,
    DisarmTimeout,
    DiscardAcknowledgedState,
    DiscardPendingCheckpoint,
    FailJob,
    IgnoredBecause,
    MessageIgnored,
    NotifyAborted,
    NotifyComplete,
    NotifyCoordinatorsAborted,
    NotifyCoordinatorsComplete,
    Out,
    RequestCompleted,
    RequestFailed,
    TaskId,
)
from engine.checkpoint.coordinator.deployment import Deployment, PartlyFinishedUnionStateError
from engine.checkpoint.coordinator.pending import PendingCheckpoint, PendingSet, TriggerRequest
from engine.checkpoint.coordinator.retained_checkpoints import Deletions, RetainedCheckpoints
from engine.checkpoint.failure_reasons import CheckpointFailureReason


class CheckpointFailureManager:
    """Counts failures in a row. ``tolerable_failures``: how many are tolerated, ``None`` = any number."""

    def __init__(self, tolerable_failures: int | None = 0) -> None:
        assert tolerable_failures is None or tolerable_failures >= 0, tolerable_failures
        self._tolerable = tolerable_failures
        self.failures_in_a_row = 0
        """The current count."""
        self._counted_ids: set[int] = set()
        self._newest_completed: int | None = None

    def on_completed(self, checkpoint_id: int) -> None:
        """A checkpoint or savepoint has completed."""
        if self._newest_completed is None or checkpoint_id > self._newest_completed:
            self._newest_completed = checkpoint_id
            self._clear()

    def on_failure(
        self,
        reason: CheckpointFailureReason,
        checkpoint_id: int | None,
        *,
        is_savepoint: bool = False,
        is_synchronous: bool = False,
        by_task: bool = False,
    ) -> bool:
        """Account for one failure; whether the job has to fail now."""
        if reason.pre_flight or not by_task:
            return not is_savepoint and self._exceeds_budget(reason, checkpoint_id)
        if is_savepoint and is_synchronous:
            return True
        return self._exceeds_budget(reason, checkpoint_id)

    def _exceeds_budget(self, reason: CheckpointFailureReason, checkpoint_id: int | None) -> bool:
        if self._tolerable is None or not reason.counted:
            return False
        if checkpoint_id is None:
            self.failures_in_a_row += 1
        else:
            newest = self._newest_completed
            if (newest is not None and checkpoint_id <= newest) or checkpoint_id in self._counted_ids:
                return False
            self._counted_ids.add(checkpoint_id)
            self.failures_in_a_row += 1
        if self.failures_in_a_row <= self._tolerable:
            return False
        self._clear()
        return True

    def _clear(self) -> None:
        self.failures_in_a_row = 0
        self._counted_ids.clear()

    def validate(self) -> None:
        assert len(self._counted_ids) <= self.failures_in_a_row, (self._counted_ids, self.failures_in_a_row)
        assert self._tolerable is None or self.failures_in_a_row <= self._tolerable, self.failures_in_a_row

    def fingerprint(self) -> tuple[object, ...]:
        return (self.failures_in_a_row, tuple(sorted(self._counted_ids)), self._newest_completed)


class TaskMessages:
    """Judges acknowledgements and declines; see the rules at the top of the module."""

    def __init__(
        self,
        deployment: Deployment,
        pending: PendingSet,
        retained: RetainedCheckpoints,
        statistics: CheckpointStatistics,
    ) -> None:
        self._deployment = deployment
        self._pending = pending
        self._retained = retained
        self._statistics = statistics

    def on_acknowledge(self, ack: Acknowledge, now_ns: int, out: Out, *, is_over: bool) -> bool:
        """A task has delivered its part; returns whether it was the last one missing. ``is_over``: the job is."""
        why = self._why_ignored(ack, is_over)
        pending = self._pending.by_id.get(ack.checkpoint_id)
        is_refused = False
        # Nothing of a foreign message is used and nothing deleted: storage was tidied up at the start.
        is_foreign = self._deployment.is_foreign(ack)
        is_registrable = not is_over and (pending is None or not pending.is_savepoint)
        if ack.shared and is_registrable and not is_foreign:
            ack, is_refused = self._retained.register(ack)
        if why is None and pending is not None:
            if ack.task in pending.waiting and not is_refused:
                self._statistics.on_acknowledged(ack.checkpoint_id, ack.task, ack.metrics, now_ns)
                return self._pending.acknowledge(pending, ack)
            if ack.task in pending.waiting:
                # The checkpoint lacks this part and will expire; its abort tells the task what is complete.
                why = IgnoredBecause.UNKNOWN_SHARED_STATE
            else:
                known = ack.task in pending.acknowledgements
                why = IgnoredBecause.DUPLICATE if known else IgnoredBecause.UNKNOWN_TASK
        assert why is not None
        out.append(MessageIgnored(ack, why))
        # A duplicate carries the state that is already taken: deleting it would break the checkpoint. (Flink deletes
        # it when the checkpoint has completed meanwhile; its transport delivers no message twice, ours may.)
        # State of an unknown sender is in no checkpoint. Neither is state that differs from the state taken.
        is_taken = why is IgnoredBecause.DUPLICATE or is_foreign or self._is_durable(ack)
        if (ack.state is not None or ack.discardable_shared) and not is_taken:
            out.append(DiscardAcknowledgedState(ack))
        return False

    def on_decline(self, decline: Decline, now_ns: int, out: Out, *, is_over: bool) -> bool:
        """A task will not deliver its part; returns whether the checkpoint must be aborted for it."""
        why = self._why_ignored(decline, is_over)
        pending = self._pending.by_id.get(decline.checkpoint_id)
        if why is None and pending is not None and not pending.can_be_aborted:
            why = IgnoredBecause.BEING_FINALIZED
        if decline.metrics is not None and why in (None, IgnoredBecause.NOT_PENDING, IgnoredBecause.EXPIRED):
            self._statistics.on_incomplete(decline.checkpoint_id, decline.task, decline.metrics, now_ns)
        if why is not None:
            out.append(MessageIgnored(decline, why))
        return why is None

    def _is_durable(self, ack: Acknowledge) -> bool:
        return self._deployment.has(ack.task) and self._retained.holds_state_of(ack)

    def _why_ignored(self, message: Acknowledge | Decline, is_over: bool) -> IgnoredBecause | None:
        is_void = self._deployment.is_void(message)
        if is_over:
            return IgnoredBecause.SHUT_DOWN
        if is_void:
            return IgnoredBecause.OLDER_ATTEMPT
        if self._retained.is_durable(message.checkpoint_id):
            return IgnoredBecause.DURABLE
        if self._pending.by_id.get(message.checkpoint_id) is None:
            expired = message.checkpoint_id in self._pending.expired_ids
            return IgnoredBecause.EXPIRED if expired else IgnoredBecause.NOT_PENDING
        return None


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
        """Have the metadata written of the next checkpoint in turn, if there is one."""
        # One at a time: which checkpoint is the newest durable one must be known when the next one is written.
        while self._pending.fully_acknowledged and self._pending.finalizing_id is None:
            pending = self._pending.by_id[self._pending.fully_acknowledged.pop(0)]
            try:
                write = pending.write_instruction()
            except PartlyFinishedUnionStateError:
                self.abort(pending, CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING, now_ns, out)
                continue
            self._pending.finalize(pending)
            # The timeout must not abort a checkpoint that may be durable already.
            out += (DisarmTimeout(pending.checkpoint_id), write)

    def complete(self, pending: PendingCheckpoint, pointer: object, now_ns: int, out: Out) -> None:
        """The metadata is durable, at ``pointer``."""
        checkpoint_id = pending.checkpoint_id
        self._pending.remove(pending)
        last_subsumed_id = NONE_SUBSUMED
        # A savepoint subsumes nothing (mutant "savepoint retained").
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
        # A failure goes back to the checkpoint before a savepoint: nothing is published for it
        # (mutant "savepoint notifies").
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
        """End a checkpoint. ``keep_state``: its files may be part of a durable checkpoint nevertheless."""
        checkpoint_id, request = pending.checkpoint_id, pending.request
        self._pending.remove(pending, expired=reason is CheckpointFailureReason.CHECKPOINT_EXPIRED)
        if pending.can_be_aborted:
            out.append(DisarmTimeout(checkpoint_id))
        _answer_failed(request, reason, out, checkpoint_id)
        if keep_state:
            self._retained.note_durable(pending)
        elif pending.has_location:
            discard = DiscardPendingCheckpoint(checkpoint_id, pending.ordered_acknowledgements())
            # Its own files go now, its shared ones with the next completion (mutant "aborted uploads forgotten").
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
        """A request leaves the queue without a try. It counts against no budget."""
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
