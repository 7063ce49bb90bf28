"""The steps of the checkpoint coordinator: what happens to requests and to pending checkpoints.

The rules are told at the top of ``engine.checkpoint.coordinator``; that module turns events into calls of this one.
"""

from __future__ import annotations

from dataclasses import replace

from engine.checkpoint.completed_store import CompletedCheckpoint, JobStatus
from engine.checkpoint.coordinator_state import CoordinatorBase, CoordinatorState
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import (
    NONE_SUBSUMED,
    Acknowledge,
    ArmPeriodicTimer,
    ArmTimeout,
    CoordinatorInstruction,
    CoordinatorInstructions,
    Decline,
    DisarmPeriodicTimer,
    DisarmTimeout,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    DiscardSharedState,
    FailJob,
    IgnoredBecause,
    InitializeLocation,
    NotifyAborted,
    NotifyComplete,
    NotifyCoordinatorsAborted,
    NotifyCoordinatorsComplete,
    RequestCompleted,
    RequestFailed,
    TaskId,
)
from engine.checkpoint.operator_coordinators import Preparation
from engine.checkpoint.options import options_for
from engine.checkpoint.pending import PendingCheckpoint, PendingPhase
from engine.checkpoint.plan import (
    CheckpointPlan,
    PartlyFinishedUnionStateError,
    TasksNotRunningError,
    compute_checkpoint_plan,
)
from engine.checkpoint.requests import Decision, Situation, TriggerRequest
from engine.checkpoint.shared_state_registry import SharedState, SharedStateError, Unused
from engine.elements.events import CheckpointBarrier

Out = list[CoordinatorInstruction]


class CoordinatorCore(CoordinatorBase):
    """Steps; every one appends the instructions it leads to."""

    # --- the periodic timer ---------------------------------------------------------------------------------------

    @property
    def _interval_ns(self) -> int | None:
        """Time between two periodic triggers as things are; ``None`` = there are none."""
        if self._in_backlog:
            return self.config.effective_backlog_interval_ns
        return self.config.effective_interval_ns

    def _arm(self, at_ns: int, out: Out) -> None:
        self._planned_ns = at_ns
        out.append(ArmPeriodicTimer(at_ns))

    def _disarm(self, out: Out) -> None:
        if self._planned_ns is not None:
            self._planned_ns = None
            out.append(DisarmPeriodicTimer())

    # --- requests -------------------------------------------------------------------------------------------------

    def _submit(self, request: TriggerRequest, now_ns: int, out: Out) -> None:
        if self._state is CoordinatorState.SHUT_DOWN:
            self._fail_request(request, CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, out)
            return
        self._follow(self._decider.submit(request, self._situation(now_ns)), now_ns, out)
        self._recheck(now_ns, out)

    def _recheck(self, now_ns: int, out: Out) -> None:
        """Look at the queue again: something ended that may have been in the way."""
        self._finalize_next(now_ns, out)
        while self._follow(self._decider.choose(self._situation(now_ns)), now_ns, out):
            pass

    def _situation(self, now_ns: int) -> Situation:
        return Situation(
            now_ns,
            is_triggering=self._triggering is not None,
            pending=len(self._pending),
            being_deleted=self._being_deleted,
            last_completion_ns=self._last_completion_ns,
        )

    def _follow(self, decision: Decision, now_ns: int, out: Out) -> bool:
        for request, reason in decision.failed:
            self._fail_request(request, reason, out)
        # With an interval in records there is no timer to be moved.
        has_timer = self.config.interval_ns is not None and self._state is CoordinatorState.SCHEDULING
        if decision.rearm_after_ns is not None and has_timer:
            self._arm(now_ns + decision.rearm_after_ns, out)
        if decision.chosen is None:
            return False
        self._begin(decision.chosen, now_ns, out)
        return True

    @staticmethod
    def _fail_request(
        request: TriggerRequest, reason: CheckpointFailureReason, out: Out, checkpoint_id: int | None = None
    ) -> None:
        if request.label is not None:
            out.append(RequestFailed(request.label, reason, checkpoint_id))

    # --- trigger --------------------------------------------------------------------------------------------------

    def _begin(self, request: TriggerRequest, now_ns: int, out: Out) -> None:
        if request.is_periodic and self._state is not CoordinatorState.SCHEDULING:
            self._fail_before_id(request, CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN, out)
            return
        try:
            plan = compute_checkpoint_plan(
                self._graph, self._statuses, after_tasks_finish=self.config.after_tasks_finish
            )
        except TasksNotRunningError:
            self._fail_before_id(request, CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, out)
            return
        if self._id_refusal is not None:
            refusal, self._id_refusal = self._id_refusal, None
            self._fail_before_id(request, refusal, out)
            return
        self._register(request, plan, now_ns, out)

    def _fail_before_id(self, request: TriggerRequest, reason: CheckpointFailureReason, out: Out) -> None:
        self.statistics.on_failed_without_id()
        self._fail_request(request, reason, out)
        if self._failures.on_failure(reason, None, is_savepoint=request.is_savepoint):
            out.append(FailJob(reason))

    def _register(self, request: TriggerRequest, plan: CheckpointPlan, now_ns: int, out: Out) -> None:
        checkpoint_id = self._next_id
        self._next_id += 1
        latest = self._store.latest
        # Nothing may refer to files that are not ours: the first checkpoint after such a restore is full.
        kind = request.kind(full_required=latest is not None and latest.is_unclaimed)
        options = replace(
            options_for(self.options, kind), stop=request.stop, savepoint_format=request.savepoint_format
        )
        # The clock of the trigger, not of the request: a request may have waited (Flink: startTriggeringCheckpoint).
        barrier = CheckpointBarrier(checkpoint_id, now_ns, options)
        preparation = Preparation(self._operator_coordinators, self._master_hooks)
        self._pending[checkpoint_id] = PendingCheckpoint(barrier, request, plan, preparation=preparation)
        self._triggering = checkpoint_id
        self.statistics.on_triggered(
            checkpoint_id,
            kind,
            now_ns,
            len(plan.wait),
            requested_ns=request.requested_ns,
            finished=plan.finished,
            is_synchronous=request.is_synchronous,
            savepoint_format=request.savepoint_format and request.savepoint_format.name,
        )
        # Before the location: a storage that hangs must not hang the coordinator.
        out.append(ArmTimeout(checkpoint_id, now_ns + self.config.timeout_ns))
        out.append(InitializeLocation(checkpoint_id, kind, request.label))

    # --- completion -----------------------------------------------------------------------------------------------

    def _fully_acknowledged(self, pending: PendingCheckpoint) -> None:
        pending.phase = PendingPhase.FULLY_ACKNOWLEDGED
        self._to_finalize.append(pending.checkpoint_id)

    def _finalize_next(self, now_ns: int, out: Out) -> None:
        while self._finalizing is None and self._to_finalize:
            pending = self._pending[self._to_finalize.pop(0)]
            try:
                write = pending.write_instruction()
            except PartlyFinishedUnionStateError:
                reason = CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
                self._abort(pending, reason, now_ns, out)
                continue
            self._finalizing = pending.checkpoint_id
            pending.phase = PendingPhase.FINALIZING
            out.append(DisarmTimeout(pending.checkpoint_id))
            out.append(write)

    def _complete(self, pending: PendingCheckpoint, pointer: object, now_ns: int, out: Out) -> None:
        checkpoint_id = pending.checkpoint_id
        last_subsumed_id, unused = NONE_SUBSUMED, None
        if not pending.is_savepoint:
            last_subsumed_id = self._retain(pending, pointer)
            # Before anything is deleted: what the entries that remain use decides what may go.
            assert self._store.lowest_id is not None, checkpoint_id
            unused = self._registry.unregister_unused(self._store.lowest_id)
        self._durable[checkpoint_id] = pending.delivered_states()
        self._failures.on_completed(checkpoint_id)
        path = None if pointer is None else str(pointer)
        self.statistics.on_completed(checkpoint_id, now_ns, external_path=path)
        self._last_completion_ns = now_ns
        if pending.request.label is not None:
            out.append(RequestCompleted(pending.request.label, checkpoint_id))
        if not pending.is_savepoint or pending.request.is_synchronous:
            for older in [self._pending[id_] for id_ in sorted(self._pending) if id_ < checkpoint_id]:
                if not older.is_savepoint:
                    self._abort(older, CheckpointFailureReason.CHECKPOINT_SUBSUMED, now_ns, out)
            out.append(NotifyComplete(checkpoint_id, last_subsumed_id, pending.plan.commit))
            if self._operator_coordinators:
                out.append(NotifyCoordinatorsComplete(checkpoint_id, self._operator_coordinators))
        # Last: until here a crash must find the older checkpoint whole.
        if unused is not None:
            self._delete(self._store.take_deletable(unused.in_use), out)
            self._delete_shared(unused, out)

    def _retain(self, pending: PendingCheckpoint, pointer: object) -> int:
        entry = CompletedCheckpoint(
            pending.checkpoint_id,
            pending.kind,
            pending.barrier.timestamp_ns,
            external_pointer=pointer,
            shared=pending.shared_state(),
        )
        subsumed = self._store.add(entry)
        if subsumed and subsumed[-1].may_be_deleted:
            return subsumed[-1].checkpoint_id
        return NONE_SUBSUMED

    def _close_store_if_over(self, out: Out) -> None:
        """Apply the retention policy once the job is over and nothing is being made durable any more."""
        if self._job_status is None or self._finalizing is not None:
            return
        self._registry.close()
        deletable = self._store.shut_down(self.config.retention, self._job_status)
        if self._job_status is JobStatus.SUSPENDED and not deletable:
            # It goes on elsewhere, from all that is here.
            return
        unused = self._registry.unregister_unused(self._store.oldest_registered_id)
        self._delete(deletable + self._store.take_rest(unused.in_use), out)
        self._delete_shared(unused, out)

    def _delete(self, checkpoint_ids: tuple[int, ...], out: Out) -> None:
        for checkpoint_id in checkpoint_ids:
            self.statistics.on_discarded(checkpoint_id)
            self._durable.pop(checkpoint_id, None)
            self._being_deleted += 1
            out.append(DiscardCheckpoint(checkpoint_id))

    @staticmethod
    def _delete_shared(unused: Unused, out: Out) -> None:
        # After the checkpoints that used them: a crash in between leaves files too many, not a checkpoint without.
        if unused.handles:
            out.append(DiscardSharedState(unused.handles))

    # --- abort ----------------------------------------------------------------------------------------------------

    def _abort(
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
        checkpoint_id = pending.checkpoint_id
        del self._pending[checkpoint_id]
        if self._triggering == checkpoint_id:
            self._triggering = None
        if checkpoint_id in self._to_finalize:
            self._to_finalize.remove(checkpoint_id)
        if pending.can_be_aborted:
            out.append(DisarmTimeout(checkpoint_id))
        self._fail_request(pending.request, reason, out, checkpoint_id)
        if keep_state:
            self._durable[checkpoint_id] = pending.delivered_states()
        elif pending.has_location:
            self._being_deleted += 1
            out.append(DiscardPendingCheckpoint(checkpoint_id, pending.ordered_acknowledgements()))
        self.statistics.on_failed(checkpoint_id, reason, now_ns, cause)
        request = pending.request
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
        out.append(NotifyAborted(checkpoint_id, self._store.latest_id, reason, pending.plan.commit))
        if reason is CheckpointFailureReason.CHECKPOINT_EXPIRED:
            self._expired.append(checkpoint_id)

    def _abort_all(self, reason: CheckpointFailureReason, now_ns: int, out: Out) -> None:
        for pending in [self._pending[id_] for id_ in sorted(self._pending)]:
            if pending.can_be_aborted:
                self._abort(pending, reason, now_ns, out)

    def _abort_queued(self, reason: CheckpointFailureReason, out: Out) -> None:
        for request in self._decider.drain():
            self._fail_request(request, reason, out)

    # --- messages and answers -------------------------------------------------------------------------------------

    def _why_ignored(self, message: Acknowledge | Decline) -> IgnoredBecause | None:
        attempt = self._attempts.get(message.task, self._attempt)
        assert message.attempt <= attempt, f"{message} comes from the future of attempt {attempt}"
        if self._state is CoordinatorState.SHUT_DOWN:
            return IgnoredBecause.SHUT_DOWN
        if message.attempt < attempt:
            return IgnoredBecause.OLDER_ATTEMPT
        if message.checkpoint_id in self._durable:
            return IgnoredBecause.DURABLE
        if message.checkpoint_id not in self._pending:
            expired = message.checkpoint_id in self._expired
            return IgnoredBecause.EXPIRED if expired else IgnoredBecause.NOT_PENDING
        return None

    def _with_registered_state(self, ack: Acknowledge) -> tuple[Acknowledge, bool]:
        """The message with its placeholders resolved, and whether the registry refuses it. A refused one keeps what
        was not looked at any more: those files are nobody's."""
        registered: list[SharedState] = []
        for state in ack.shared:
            try:
                registered.append(self._registry.register(state, ack.checkpoint_id))
            except SharedStateError:
                return replace(ack, shared=ack.shared[len(registered) + 1 :]), True
        return replace(ack, shared=tuple(registered), is_registered=True), False

    def _take(self, pending: PendingCheckpoint, ack: Acknowledge, now_ns: int, out: Out) -> None:
        pending.record(ack)
        self.statistics.on_acknowledged(ack.checkpoint_id, ack.task, ack.metrics, now_ns)
        if pending.is_fully_acknowledged:
            self._fully_acknowledged(pending)
            self._recheck(now_ns, out)

    def _abort_and_recheck(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        now_ns: int,
        *,
        task: TaskId | None = None,
        cause: str = "",
    ) -> CoordinatorInstructions:
        pending = self._pending.get(checkpoint_id)
        if pending is None or not pending.can_be_aborted:
            return ()
        out: Out = []
        self._abort(pending, reason, now_ns, out, task=task, cause=cause)
        self._recheck(now_ns, out)
        return self._finish(out)

    def _end_of_finalization(self, checkpoint_id: int, *, remove: bool) -> PendingCheckpoint:
        assert self._finalizing == checkpoint_id, (
            f"no metadata of checkpoint {checkpoint_id} is being written"
        )
        self._finalizing = None
        return self._pending.pop(checkpoint_id) if remove else self._pending[checkpoint_id]

    @staticmethod
    def _finish(out: Out) -> CoordinatorInstructions:
        # The driver tears the job down on FailJob: everything else must have been carried out by then.
        return tuple(sorted(out, key=lambda instruction: isinstance(instruction, FailJob)))
