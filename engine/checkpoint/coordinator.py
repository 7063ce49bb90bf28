"""The checkpoint coordinator: when a checkpoint begins, what it waits for, when it is complete (or not).

Theory of operation (Flink: ``CheckpointCoordinator``)
-----------------------------------------------------
*Life.* IDLE: requests are served, periodic ones fail. SCHEDULING (``start``: all tasks run): the timer is armed too.
``stop`` (the job left the running state, for whatever reason) aborts everything queued and pending. SHUT_DOWN is final.

*Timer.* One planned time. Firing: plan += interval, then a periodic request is submitted. No drift, no coupling to
completions; a request that comes too early for the pause is dropped and the plan moved to the end of the pause.
(Flink draws a random delay for the first firing; here a driver may pass one in as ``first_delay_ns``, otherwise the
first firing comes after one interval.) While any source works off a backlog the interval is another one, perhaps none;
when that changes the plan becomes earlier if the new interval asks for it, never later.

*Trigger.* Choose a request, make the plan, draw an id (a later failure leaves a gap), register the checkpoint and arm
its timeout, initialize the location, snapshot operator coordinators, call master hooks, send the triggers. One trigger
at a time.

*Completion.* All tasks acknowledged -> write the metadata -> only when that is durable: retain it, subsume surplus
ones, abort older pending ones, then notify the tasks; delete what was subsumed last. Metadata is written for one
checkpoint at a time, and nothing aborts a checkpoint whose metadata is being written: it may be durable already.
(Flink has both because it holds the coordinator's lock meanwhile.) A driver must therefore hear the outcome of a
``WriteMetadata`` before it asks for the ``restore_point``.

*Shared state* is registered before anything else is done with an acknowledgement, whoever sends it and however late;
what nothing uses any more goes with the next completion (see ``shared_state_registry``). A message to a coordinator
that has died is not looked at: what that one made durable is not known here.

*Ids* start at 1, grow, and are never used twice, restarts included. A later process begins above what it finds.

*Attempts.* Messages carry the attempt they were sent in; those of an older attempt change nothing. An attempt belongs
to a task: after the restart of a region its tasks are in a newer attempt than the others, which go on in theirs.

Every ``InitializeLocation``, ``WriteMetadata``, ``DiscardPendingCheckpoint`` and ``DiscardCheckpoint`` must be
answered: triggers wait for the first, restores for the second, and with more than ``max_concurrent`` deletions
outstanding nothing new is triggered.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.checkpoint.completed_store import CompletedCheckpoint, JobStatus
from engine.checkpoint.coordinator_config import CoordinatorConfig
from engine.checkpoint.coordinator_core import Out
from engine.checkpoint.coordinator_preparation import PreparingCoordinator
from engine.checkpoint.coordinator_state import CoordinatorState
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import (
    Acknowledge,
    CoordinatorInstructions,
    Decline,
    DiscardAcknowledgedState,
    IgnoredBecause,
    MessageIgnored,
    TaskId,
)
from engine.checkpoint.options import needs_channel_state
from engine.checkpoint.plan import TaskStatus
from engine.checkpoint.requests import RequestedForm, TriggerRequest
from engine.elements.events import SavepointFormat, StopMode

__all__ = ["FINAL_CHECKPOINT", "CheckpointCoordinator", "CoordinatorConfig", "CoordinatorState"]

FINAL_CHECKPOINT = "final"
"""Label of the checkpoint that follows the end of all input."""


class CheckpointCoordinator(PreparingCoordinator):
    """Events in, instructions out; see the theory of operation. Times in ns, ids start at 1."""

    # --- life -----------------------------------------------------------------------------------------------------

    def recover(
        self, entries: Sequence[CompletedCheckpoint], now_ns: int, next_id: int = 1
    ) -> CoordinatorInstructions:
        """Take over what storage holds, before anything else happens. ``next_id``: above every id found there,
        also by checkpoints that never completed."""
        assert self._next_id == 1, "recover comes first"
        self._store.recover(entries)
        # Before anything can be subsumed. What nobody may refer to is left out: the first checkpoint is full.
        for entry in self._store.entries:
            if not entry.is_unclaimed:
                self._registry.register_restored(
                    entry.shared, entry.checkpoint_id, entry.restore_mode, entry.sharing
                )
        self._durable = {checkpoint_id: {} for checkpoint_id in self.completed_ids}
        self._next_id = max(1, next_id, self._store.latest_id + 1)
        return ()

    def begin_attempt(self, attempt: int, status: TaskStatus = TaskStatus.RUNNING) -> None:
        """All tasks are deployed anew; messages of older attempts are void from now on."""
        assert attempt >= self._attempt, f"attempt {attempt} after {self._attempt}"
        self._deployed(self._graph.tasks(), attempt, status)

    def _deployed(self, tasks: Sequence[TaskId], attempt: int, status: TaskStatus) -> None:
        self._attempt = attempt
        self._first_attempt = self._first_attempt or attempt
        for task in tasks:
            self._attempts[task] = attempt
            self._statuses[task] = status
            # A source that is deployed anew says itself whether it has a backlog.
            self._in_backlog.pop(task, None)

    def on_task_status(self, task: TaskId, status: TaskStatus) -> None:
        """A task of the current attempt has changed. When one fails use ``on_job_failure``."""
        assert task in self._statuses, task
        self._statuses[task] = status

    def start(
        self,
        now_ns: int,
        attempt: int,
        restored_id: int | None = None,
        *,
        first_delay_ns: int | None = None,
    ) -> CoordinatorInstructions:
        """All tasks of ``attempt`` run: begin to schedule. A new attempt counts as ``restored`` from ``restored_id``
        first. The timer first fires after ``first_delay_ns``, by default after one interval."""
        out: Out = []
        if self._state is CoordinatorState.SHUT_DOWN:
            return ()
        if self._state is CoordinatorState.SCHEDULING:
            out += self.stop(now_ns)
        if attempt != self._attempt:
            out += self.restored(restored_id, now_ns, attempt)
        self._state = CoordinatorState.SCHEDULING
        interval_ns = self._interval_ns
        if interval_ns is not None:
            self._arm(now_ns + (interval_ns if first_delay_ns is None else first_delay_ns), out)
        self._recheck(now_ns, out)
        return self._finish(out)

    def stop(self, now_ns: int) -> CoordinatorInstructions:
        """The job has left the running state: everything queued and pending dies."""
        if self._state is CoordinatorState.SHUT_DOWN:
            return ()
        out: Out = []
        self._state = CoordinatorState.IDLE
        self._disarm(out)
        reason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
        self._abort_queued(reason, out)
        self._abort_all(reason, now_ns, out)
        return self._finish(out)

    def on_job_failure(self, now_ns: int) -> CoordinatorInstructions:
        """A task failed, and with it the attempt: no task can be triggered until the next one."""
        for task in self._graph.tasks():
            self.on_task_status(task, TaskStatus.FAILED)
        return self.stop(now_ns)

    def on_region_failure(self, tasks: Sequence[TaskId], now_ns: int) -> CoordinatorInstructions:
        """Tasks failed or were cancelled, and the others go on: what is pending can never be complete. Queued requests
        stay, and so does the timer; what is triggered before the region is back fails."""
        for task in tasks:
            self.on_task_status(task, TaskStatus.FAILED)
        return self.abort_pending(CheckpointFailureReason.JOB_FAILOVER_REGION, now_ns)

    def on_backlog(self, source: TaskId, is_backlog: bool, now_ns: int) -> CoordinatorInstructions:
        """A source has begun, or ended, to work off a backlog (Flink: ``setIsProcessingBacklog``)."""
        out: Out = []
        if is_backlog:
            self._in_backlog[source] = None
        else:
            self._in_backlog.pop(source, None)
        interval_ns = self._interval_ns
        if interval_ns is not None and self._state is CoordinatorState.SCHEDULING:
            at_ns = now_ns + interval_ns
            if self._planned_ns is None or at_ns < self._planned_ns:
                self._arm(at_ns, out)
        return self._finish(out)

    def abort_pending(self, reason: CheckpointFailureReason, now_ns: int) -> CoordinatorInstructions:
        """Abort all pending checkpoints; queued requests stay, and the next one may begin."""
        out: Out = []
        self._abort_all(reason, now_ns, out)
        self._recheck(now_ns, out)
        return self._finish(out)

    def restored(
        self,
        checkpoint_id: int | None,
        now_ns: int,
        attempt: int,
        status: TaskStatus = TaskStatus.RUNNING,
        *,
        tasks: Sequence[TaskId] | None = None,
    ) -> CoordinatorInstructions:
        """The job, or only these ``tasks`` of it, is deployed anew from ``checkpoint_id`` (``None``: from nothing) as
        ``attempt``. Completed checkpoints above it turned out to be unusable and are forgotten."""
        assert attempt > self._attempt, f"attempt {attempt} after {self._attempt}"
        assert self._finalizing is None, f"the outcome of checkpoint {self._finalizing} is not known yet"
        out: Out = []
        self._abort_all(CheckpointFailureReason.JOB_FAILOVER_REGION, now_ns, out)
        self._store.rewind_to(checkpoint_id)
        self._next_id = max(self._next_id, self._store.latest_id + 1)
        self._deployed(self._graph.tasks() if tasks is None else tasks, attempt, status)
        if checkpoint_id is not None:
            newest = self._store.latest
            assert newest is not None, checkpoint_id
            path = None if newest.external_pointer is None else str(newest.external_pointer)
            self.statistics.on_restored(
                checkpoint_id, now_ns, attempt, is_savepoint=newest.is_savepoint, external_path=path
            )
        return self._finish(out)

    def shut_down(self, status: JobStatus, now_ns: int) -> CoordinatorInstructions:
        """The job is over."""
        if self._state is CoordinatorState.SHUT_DOWN:
            return ()
        out: Out = []
        self._state = CoordinatorState.SHUT_DOWN
        self._job_status = status
        self._disarm(out)
        reason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
        self._abort_queued(reason, out)
        self._abort_all(reason, now_ns, out)
        self._close_store_if_over(out)
        return self._finish(out)

    # --- triggers -------------------------------------------------------------------------------------------------

    def on_timer(self, now_ns: int) -> CoordinatorInstructions:
        """The periodic timer fired. Ignored when it is not due (any more)."""
        if self._planned_ns is None or now_ns < self._planned_ns:
            return ()
        out: Out = []
        interval_ns = self._interval_ns
        if interval_ns is None:
            self._planned_ns = None
        else:
            self._arm(self._planned_ns + interval_ns, out)
        out += self.trigger_periodic(now_ns)
        return self._finish(out)

    def trigger_periodic(self, now_ns: int, label: str | None = None) -> CoordinatorInstructions:
        """A periodic checkpoint is wanted (for drivers that count records instead of time)."""
        return self._request(now_ns, TriggerRequest(self._next_sequence, now_ns, label, is_periodic=True))

    def trigger_manual(
        self, label: str | None, now_ns: int, form: RequestedForm = RequestedForm.CONFIGURED
    ) -> CoordinatorInstructions:
        """Somebody wants a checkpoint; with a ``label`` the outcome is told under it."""
        return self._request(now_ns, TriggerRequest(self._next_sequence, now_ns, label, form=form))

    def trigger_final(self, now_ns: int) -> CoordinatorInstructions:
        """All input has ended: one more checkpoint, so that the last transactions are committed. Its outcome is told
        under the label ``"final"``; after a failure ask again."""
        return self.trigger_manual(FINAL_CHECKPOINT, now_ns)

    def trigger_savepoint(
        self,
        label: str,
        now_ns: int,
        *,
        synchronous: bool = False,
        stop: StopMode | None = None,
        savepoint_format: SavepointFormat = SavepointFormat.CANONICAL,
    ) -> CoordinatorInstructions:
        """Somebody wants a savepoint. ``synchronous``: the job stops with it; ``stop`` says how, and tells its tasks.
        The caller stops the schedule first, so that nothing else is pending or comes in between."""
        request = TriggerRequest(
            self._next_sequence,
            now_ns,
            label,
            is_savepoint=True,
            # Only while no records in flight are stored: capture is for one checkpoint at a time.
            is_forced=not needs_channel_state(self.options),
            is_synchronous=synchronous or stop is not None,
            stop=stop,
            savepoint_format=savepoint_format,
        )
        return self._request(now_ns, request)

    def refuse_next_id(self, reason: CheckpointFailureReason) -> None:
        """Whoever hands out ids cannot be reached: the next trigger that would draw one fails with ``reason``, and no
        id is consumed (Flink: a failing ``CheckpointIDCounter``)."""
        self._id_refusal = reason

    def _request(self, now_ns: int, request: TriggerRequest) -> CoordinatorInstructions:
        out: Out = []
        self._next_sequence += 1
        self._submit(request, now_ns, out)
        return self._finish(out)

    # --- answers of the driver ------------------------------------------------------------------------------------

    def on_send_failed(self, checkpoint_id: int, task: TaskId, now_ns: int) -> CoordinatorInstructions:
        """The trigger could not be delivered to ``task``."""
        reason = CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE
        return self._abort_and_recheck(checkpoint_id, reason, now_ns, cause=f"no trigger for task {task}")

    def on_timeout(self, checkpoint_id: int, now_ns: int) -> CoordinatorInstructions:
        """The timeout of a checkpoint fired. Ignored when it has ended, or is being made durable."""
        pending = self._pending.get(checkpoint_id)
        if pending is None or now_ns < pending.barrier.timestamp_ns + self.config.timeout_ns:
            return ()
        return self._abort_and_recheck(checkpoint_id, CheckpointFailureReason.CHECKPOINT_EXPIRED, now_ns)

    def on_metadata_written(
        self, checkpoint_id: int, now_ns: int, external_pointer: object = None
    ) -> CoordinatorInstructions:
        """The checkpoint is durable."""
        out: Out = []
        self._complete(self._end_of_finalization(checkpoint_id, remove=True), external_pointer, now_ns, out)
        self._close_store_if_over(out)
        self._recheck(now_ns, out)
        return self._finish(out)

    def on_metadata_failed(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        now_ns: int,
        *,
        maybe_written: bool = False,
        cause: str = "",
    ) -> CoordinatorInstructions:
        """The metadata could not be written (FINALIZE_CHECKPOINT_FAILURE). ``maybe_written``: nobody knows whether
        it is there (a failed directory fsync), so no file is deleted; the driver must settle it before the next
        restore."""
        out: Out = []
        pending = self._end_of_finalization(checkpoint_id, remove=False)
        self._abort(pending, reason, now_ns, out, cause=cause, keep_state=maybe_written)
        self._close_store_if_over(out)
        self._recheck(now_ns, out)
        return self._finish(out)

    def on_discarded(self, checkpoint_id: int, now_ns: int) -> CoordinatorInstructions:
        """The deletion of a checkpoint has ended, well or badly."""
        assert self._being_deleted > 0, f"checkpoint {checkpoint_id} was not being deleted"
        self._being_deleted -= 1
        out: Out = []
        self._recheck(now_ns, out)
        return self._finish(out)

    # --- messages of tasks ----------------------------------------------------------------------------------------

    def on_acknowledge(self, ack: Acknowledge, now_ns: int) -> CoordinatorInstructions:
        """A task has delivered its part. Its shared state is registered first, also when the message comes late,
        twice or from a stranger: whoever uploaded it may build on it already. Only a savepoint's files are its own."""
        out: Out = []
        why = self._why_ignored(ack)
        pending = self._pending.get(ack.checkpoint_id)
        is_refused = False
        # Sent to a coordinator that has died. What that one made durable, savepoints above all, is not known here, so
        # nothing is taken and nothing deleted; storage tidied up at the start.
        is_foreign = ack.attempt < self._first_attempt
        is_registrable = why is not IgnoredBecause.SHUT_DOWN and (pending is None or not pending.is_savepoint)
        if ack.shared and is_registrable and not is_foreign:
            ack, is_refused = self._with_registered_state(ack)
        if why is None and pending is not None:
            if ack.task in pending.waiting and is_refused:
                # The checkpoint lacks this part and will expire; its abort tells the task what is complete.
                why = IgnoredBecause.UNKNOWN_SHARED_STATE
            elif ack.task in pending.waiting:
                self._take(pending, ack, now_ns, out)
                return self._finish(out)
            else:
                known = ack.task in pending.acknowledgements
                why = IgnoredBecause.DUPLICATE if known else IgnoredBecause.UNKNOWN_TASK
        assert why is not None
        out.append(MessageIgnored(ack, why))
        # A duplicate carries the state that is already taken: deleting it would break the checkpoint. (Flink deletes
        # it when the checkpoint has completed meanwhile; its transport delivers no message twice, ours may.)
        # A stranger's state is part of nothing, and neither is another one than was taken.
        is_taken = why is IgnoredBecause.DUPLICATE or is_foreign or self._holds_state_of(ack)
        if (ack.state is not None or ack.discardable_shared) and not is_taken:
            out.append(DiscardAcknowledgedState(ack))
        return self._finish(out)

    def _holds_state_of(self, ack: Acknowledge) -> bool:
        """Whether the message repeats, as far as is known here, what is part of a durable checkpoint."""
        delivered = self._durable.get(ack.checkpoint_id)
        if delivered is None or ack.task not in self._statuses:
            return False
        return not delivered or delivered.get(ack.task) == ack.state

    def on_decline(self, decline: Decline, now_ns: int) -> CoordinatorInstructions:
        """A task will not deliver its part: the checkpoint is over, whoever says so."""
        why = self._why_ignored(decline)
        pending = self._pending.get(decline.checkpoint_id)
        if why is None and pending is not None and not pending.can_be_aborted:
            why = IgnoredBecause.BEING_FINALIZED
        if decline.metrics is not None and why in (None, IgnoredBecause.NOT_PENDING, IgnoredBecause.EXPIRED):
            self.statistics.on_incomplete(decline.checkpoint_id, decline.task, decline.metrics, now_ns)
        if why is not None:
            return (MessageIgnored(decline, why),)
        return self._abort_and_recheck(
            decline.checkpoint_id, decline.reason, now_ns, task=decline.task, cause=decline.cause
        )
