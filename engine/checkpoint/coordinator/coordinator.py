"""The checkpoint coordinator: when a checkpoint begins, which answers it waits for, when it is complete (or not).

Theory of operation (Flink: ``CheckpointCoordinator``)
-----------------------------------------------------
*Life.* IDLE: requests are served, periodic ones fail. SCHEDULING (``start``: all tasks run): the timer is armed too.
``stop`` (the job left the running state, for whatever reason) aborts everything queued and pending. SHUT_DOWN is final.

This class takes events and returns instructions. Each of its parts holds one piece of its memory, and the
rules for it. From outside, parts are only read:

=================== =================================================================================================
``schedule``        when the next periodic checkpoint is due
``requests``        which waiting request is triggered next, and whether it may be yet
``plan``            attempts and states of the tasks, hence the plan of a checkpoint
``triggering``      from the chosen request to the triggers: id, location, operator coordinators, master hooks
``pending``         the checkpoints between their ids and their ends
``task_messages``   which acknowledgements and declines count
``ending``          write the metadata, complete, abort, refuse
``retained_checkpoints`` the completed ones, their shared state, and deletions
=================== =================================================================================================

The end of a checkpoint may unblock a waiting request or a checkpoint whose metadata is to be written, so
every such event ends with a look at both (``_rechecked``). A later process begins with ids above those that it finds.

Every ``InitializeLocation``, ``WriteMetadata``, ``DiscardPendingCheckpoint`` and ``DiscardCheckpoint`` must be
answered: triggers wait for the first, restores for the second, and with more than ``max_concurrent`` deletions
outstanding nothing new is triggered. A driver must hear the outcome of a ``WriteMetadata`` before it asks for the
``restore_point``.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.checkpoint.coordinator.checkpoint_ending import CheckpointEnding, CheckpointFailureManager, TaskMessages
from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.coordinator_config import CoordinatorConfig, JobStatus
from engine.checkpoint.coordinator.coordinator_messages import (
    Acknowledge,
    CoordinatorInstructions,
    Decline,
    FailJob,
    Out,
    TaskId,
)
from engine.checkpoint.coordinator.deployment import CheckpointGraph, Deployment, TaskStatus
from engine.checkpoint.coordinator.pending import PendingSet, RequestedForm, TriggerRequest
from engine.checkpoint.coordinator.retained_checkpoints import CompletedCheckpoint, Deletions, RetainedCheckpoints
from engine.checkpoint.coordinator.triggering import (
    CheckpointRequestDecider,
    Decision,
    PeriodicSchedule,
    PipelineSettings,
    Situation,
    TriggerPipeline,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointOptions, SavepointFormat, StopMode

FINAL_CHECKPOINT = "final"
"""Label of the checkpoint that follows the end of all input."""


class CheckpointCoordinator:
    """Events in, instructions out; see the theory of operation. Times in ns, ids start at 1."""

    def __init__(
        self,
        graph: CheckpointGraph,
        config: CoordinatorConfig,
        options: CheckpointOptions | None = None,
        statistics: CheckpointStatistics | None = None,
        *,
        operator_coordinators: tuple[str, ...] = (),
        master_hooks: tuple[str, ...] = (),
    ) -> None:
        """``options``: those of the barriers of an ordinary checkpoint, by default aligned ones. ``statistics``:
        those of a coordinator that has died, to be continued. ``operator_coordinators``, ``master_hooks``: the names
        of those that take part in every checkpoint before the tasks do.

        :raises ConfigurationError: when ``config`` does not go with them
        """
        options = CheckpointOptions() if options is None else options
        config.check_fits(options)
        self.statistics = CheckpointStatistics() if statistics is None else statistics
        self.config = config
        # Only while no records in flight are stored: capture is for one checkpoint at a time.
        self._forces_savepoints = not options.needs_channel_state
        self.deployment = Deployment(graph)
        self.schedule = PeriodicSchedule(config.effective_interval_ns, config.effective_backlog_interval_ns)
        self.requests = CheckpointRequestDecider(config.max_concurrent, config.pause_ns)
        self._failures = CheckpointFailureManager(config.tolerable_failures)
        self.pending = PendingSet()
        self._deletions = Deletions()
        self.retained = RetainedCheckpoints(config.num_retained, self.statistics, self._deletions)
        self._ending = CheckpointEnding(
            self.pending, self.retained, self._deletions, self._failures, self.statistics, operator_coordinators
        )
        self._trigger = TriggerPipeline(
            PipelineSettings(
                options, config.timeout_ns, config.after_tasks_finish, operator_coordinators, master_hooks
            ),
            self.deployment,
            self.pending,
            self._deletions,
            self._ending,
            self.statistics,
        )
        self._messages = TaskMessages(self.deployment, self.pending, self.retained, self.statistics)
        self._next_sequence = 0
        self._job_status: JobStatus | None = None

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def waiting_labels(self) -> tuple[str, ...]:
        """The labels of all requests that have not been answered yet."""
        requests = (*self.requests.queued, *(pending.request for pending in self.pending.in_order))
        return tuple(request.label for request in requests if request.label is not None)

    @property
    def next_checkpoint_id(self) -> int:
        """The id that the next checkpoint will get."""
        return self._trigger.next_id

    def restore_point(self) -> CompletedCheckpoint | None:
        """The checkpoint to restore a failed job from. Ask only while no metadata is being written."""
        self._assert_all_outcomes_known()
        return self.retained.latest

    def _assert_all_outcomes_known(self) -> None:
        finalizing = self.pending.finalizing_id
        assert finalizing is None, f"the outcome of checkpoint {finalizing} is not known yet"

    # --- life -----------------------------------------------------------------------------------------------------

    def recover(self, entries: Sequence[CompletedCheckpoint], now_ns: int, next_id: int = 1) -> CoordinatorInstructions:
        """Take over the contents of storage, before anything else happens. ``next_id``: above every id found there,
        also by checkpoints that never completed."""
        assert self._trigger.next_id == 1, "recover comes first"
        self.retained.recover(entries)
        self._trigger.keep_ids_above(max(next_id - 1, self.retained.latest_id))
        return ()

    def begin_attempt(self, attempt: int, status: TaskStatus = TaskStatus.RUNNING) -> None:
        """All tasks are deployed anew; messages of older attempts are void from now on."""
        assert attempt >= self.deployment.attempt, f"attempt {attempt} after {self.deployment.attempt}"
        self._deploy(self.deployment.tasks, attempt, status)

    def _deploy(self, tasks: Sequence[TaskId], attempt: int, status: TaskStatus) -> None:
        self.deployment.deploy(tasks, attempt, status)
        self.schedule.forget_backlog(tasks)

    def on_task_status(self, task: TaskId, status: TaskStatus) -> None:
        """The state of a task of the current attempt has changed. When one fails use ``on_job_failure``."""
        self.deployment.on_status(task, status)

    def start(
        self, now_ns: int, attempt: int, restored_id: int | None = None, *, first_delay_ns: int | None = None
    ) -> CoordinatorInstructions:
        """All tasks of ``attempt`` run: begin to schedule. A new attempt counts as ``restored`` from ``restored_id``
        first. The timer first fires after ``first_delay_ns``, by default after one interval. (Flink draws a random
        delay for the first firing; a driver may pass one in.)"""
        if self._job_status is not None:
            return ()
        out: Out = []
        if self.schedule.is_running:
            out += self.stop(now_ns)
        if attempt != self.deployment.attempt:
            out += self.restored(restored_id, now_ns, attempt)
        self.schedule.start(now_ns, first_delay_ns, out)
        return self._rechecked(now_ns, out)

    def stop(self, now_ns: int) -> CoordinatorInstructions:
        """The job has left the running state: drop all queued requests and abort all pending checkpoints."""
        if self._job_status is not None:
            return ()
        out: Out = []
        self._abort_everything(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, now_ns, out)
        return _finished(out)

    def _abort_everything(self, reason: CheckpointFailureReason, now_ns: int, out: Out) -> None:
        self.schedule.stop(out)
        for request in self.requests.drain():
            self._ending.drop(request, reason, out)
        self._ending.abort_all(reason, now_ns, out)

    def on_job_failure(self, now_ns: int) -> CoordinatorInstructions:
        """A task failed, and with it the attempt: no task can be triggered until the next one."""
        for task in self.deployment.tasks:
            self.deployment.on_status(task, TaskStatus.FAILED)
        return self.stop(now_ns)

    def on_region_failure(self, tasks: Sequence[TaskId], now_ns: int) -> CoordinatorInstructions:
        """Tasks failed or were cancelled, and the others go on: pending checkpoints can never be complete. Queued
        requests stay, and so does the timer; checkpoints triggered before the region is back fail."""
        for task in tasks:
            self.deployment.on_status(task, TaskStatus.FAILED)
        return self.abort_pending(CheckpointFailureReason.JOB_FAILOVER_REGION, now_ns)

    def on_backlog(self, source: TaskId, is_backlog: bool, now_ns: int) -> CoordinatorInstructions:
        """A source has begun, or ended, to work off a backlog (Flink: ``setIsProcessingBacklog``)."""
        out: Out = []
        self.schedule.on_backlog(source, is_backlog, now_ns, out)
        return _finished(out)

    def abort_pending(self, reason: CheckpointFailureReason, now_ns: int) -> CoordinatorInstructions:
        """Abort all pending checkpoints; queued requests stay, and the next one may begin."""
        out: Out = []
        self._ending.abort_all(reason, now_ns, out)
        return self._rechecked(now_ns, out)

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
        assert attempt > self.deployment.attempt, f"attempt {attempt} after {self.deployment.attempt}"
        self._assert_all_outcomes_known()
        out: Out = []
        self._ending.abort_all(CheckpointFailureReason.JOB_FAILOVER_REGION, now_ns, out)
        restored = self.retained.rewind_to(checkpoint_id)
        self._trigger.keep_ids_above(self.retained.latest_id)
        self._deploy(self.deployment.tasks if tasks is None else tasks, attempt, status)
        if restored is not None:
            path = None if restored.external_pointer is None else str(restored.external_pointer)
            self.statistics.on_restored(
                restored.checkpoint_id, now_ns, attempt, is_savepoint=restored.is_savepoint, external_path=path
            )
        return _finished(out)

    def shut_down(self, status: JobStatus, now_ns: int) -> CoordinatorInstructions:
        """The job is over."""
        if self._job_status is not None:
            return ()
        out: Out = []
        self._job_status = status
        self._abort_everything(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, now_ns, out)
        self._close_if_over(out)
        return _finished(out)

    def _close_if_over(self, out: Out) -> None:
        # Not before the outcome of a metadata file is known (test_shutdown_waits_for_the_metadata_being_written).
        if self._job_status is not None and self.pending.finalizing_id is None:
            self.retained.close(self.config.retention, self._job_status, out)

    # --- requests -------------------------------------------------------------------------------------------------

    def on_timer(self, now_ns: int) -> CoordinatorInstructions:
        """The periodic timer fired. Ignored when it is not due (any more)."""
        out: Out = []
        if self.schedule.fire(now_ns, out):
            out += self.trigger_periodic(now_ns)
        return _finished(out)

    def trigger_periodic(self, now_ns: int, label: str | None = None) -> CoordinatorInstructions:
        """Request a periodic checkpoint (for drivers that count records instead of time)."""
        return self._request(now_ns, TriggerRequest(self._next_sequence, now_ns, label, is_periodic=True))

    def trigger_manual(
        self, label: str | None, now_ns: int, form: RequestedForm = RequestedForm.CONFIGURED
    ) -> CoordinatorInstructions:
        """A user requests a checkpoint; with a ``label`` the outcome is reported under it."""
        return self._request(now_ns, TriggerRequest(self._next_sequence, now_ns, label, form=form))

    def trigger_final(self, now_ns: int) -> CoordinatorInstructions:
        """All input has ended: one more checkpoint, so that the last transactions are committed. Its outcome is
        reported under the label ``"final"``; after a failure ask again."""
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
        """A user requests a savepoint. ``synchronous``: the job stops with it; ``stop`` says how, and is sent to its
        tasks. The caller stops the schedule first, so that nothing else is pending or comes in between."""
        request = TriggerRequest(
            self._next_sequence,
            now_ns,
            label,
            is_savepoint=True,
            is_forced=self._forces_savepoints,
            is_synchronous=synchronous or stop is not None,
            stop=stop,
            savepoint_format=savepoint_format,
        )
        return self._request(now_ns, request)

    def refuse_next_id(self, reason: CheckpointFailureReason) -> None:
        """No id is available: the next trigger that would draw one fails with ``reason``, and no id is consumed
        (Flink: a failing ``CheckpointIDCounter``)."""
        self._trigger.refuse_next_id(reason)

    def _request(self, now_ns: int, request: TriggerRequest) -> CoordinatorInstructions:
        out: Out = []
        self._next_sequence += 1
        if self._job_status is not None:
            self._ending.drop(request, CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, out)
            return _finished(out)
        self._follow(self.requests.submit(request, self._situation(now_ns)), now_ns, out)
        return self._rechecked(now_ns, out)

    def _rechecked(self, now_ns: int, out: Out) -> CoordinatorInstructions:
        """Look at the metadata to be written and at the queue again: the event may have unblocked one of them."""
        if self.pending.fully_acknowledged:
            self._ending.finalize_next(now_ns, out)
        while self.requests.queued and self._follow(self.requests.choose(self._situation(now_ns)), now_ns, out):
            pass
        return _finished(out)

    def _situation(self, now_ns: int) -> Situation:
        return Situation(
            now_ns,
            is_triggering=self.pending.preparing_id is not None,
            pending=len(self.pending.by_id),
            being_deleted=self._deletions.under_way,
            last_completion_ns=self._ending.last_completion_ns,
        )

    def _follow(self, decision: Decision, now_ns: int, out: Out) -> bool:
        for request, reason in decision.failed:
            self._ending.drop(request, reason, out)
        if decision.rearm_after_ns is not None:
            self.schedule.postpone(now_ns + decision.rearm_after_ns, out)
        chosen = decision.chosen
        if chosen is None:
            return False
        if chosen.is_periodic and not self.schedule.is_running:
            self._ending.refuse(chosen, CheckpointFailureReason.PERIODIC_SCHEDULER_SHUTDOWN, out)
        else:
            self._trigger.begin(chosen, self.retained.must_be_full, now_ns, out)
        return True

    # --- answers of the driver ------------------------------------------------------------------------------------

    def on_location_ready(self, checkpoint_id: int, now_ns: int) -> CoordinatorInstructions:
        """The place for the snapshot exists."""
        out: Out = []
        is_triggered = self._trigger.on_location_ready(checkpoint_id, out)
        return self._rechecked(now_ns, out) if is_triggered else _finished(out)

    def on_location_failed(
        self, checkpoint_id: int, reason: CheckpointFailureReason, now_ns: int, cause: str = ""
    ) -> CoordinatorInstructions:
        """The place could not be made: IO_EXCEPTION, or TRIGGER_CHECKPOINT_FAILURE for any other error."""
        return self._abort(checkpoint_id, reason, now_ns, cause=cause)

    def on_operator_coordinator_state(
        self, checkpoint_id: int, name: str, state: object, now_ns: int
    ) -> CoordinatorInstructions:
        """An operator coordinator has delivered its state."""
        out: Out = []
        is_triggered = self._trigger.on_operator_coordinator_state(checkpoint_id, name, state, out)
        return self._rechecked(now_ns, out) if is_triggered else _finished(out)

    def on_master_hook_state(
        self, checkpoint_id: int, name: str, state: object, now_ns: int
    ) -> CoordinatorInstructions:
        """A master hook has answered."""
        out: Out = []
        is_triggered = self._trigger.on_master_hook_state(checkpoint_id, name, state, out)
        return self._rechecked(now_ns, out) if is_triggered else _finished(out)

    def on_preparation_failed(
        self, checkpoint_id: int, name: str, reason: CheckpointFailureReason, now_ns: int, cause: str = ""
    ) -> CoordinatorInstructions:
        """An operator coordinator or a master hook could not deliver; reasons as for the location."""
        if self.pending.in_preparation(checkpoint_id) is None:
            return ()
        return self._abort(checkpoint_id, reason, now_ns, cause=f"{name}: {cause}" if cause else name)

    def on_send_failed(self, checkpoint_id: int, task: TaskId, now_ns: int) -> CoordinatorInstructions:
        """The trigger could not be delivered to ``task``."""
        reason = CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE
        return self._abort(checkpoint_id, reason, now_ns, cause=f"no trigger for task {task}")

    def on_timeout(self, checkpoint_id: int, now_ns: int) -> CoordinatorInstructions:
        """The timeout of a checkpoint fired. Ignored when it has ended, or is being made durable."""
        pending = self.pending.by_id.get(checkpoint_id)
        if pending is None or not self._trigger.is_late(pending, now_ns):
            return ()
        return self._abort(checkpoint_id, CheckpointFailureReason.CHECKPOINT_EXPIRED, now_ns)

    def on_metadata_written(
        self, checkpoint_id: int, now_ns: int, external_pointer: object = None
    ) -> CoordinatorInstructions:
        """The checkpoint is durable."""
        out: Out = []
        self._ending.complete(self.pending.finalized(checkpoint_id), external_pointer, now_ns, out)
        self._close_if_over(out)
        return self._rechecked(now_ns, out)

    def on_metadata_failed(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        now_ns: int,
        *,
        maybe_written: bool = False,
        cause: str = "",
    ) -> CoordinatorInstructions:
        """The metadata could not be written (FINALIZE_CHECKPOINT_FAILURE). ``maybe_written``: it may exist nevertheless
        (a failed directory fsync), so no file is deleted; the driver must settle it before the next restore."""
        out: Out = []
        pending = self.pending.finalized(checkpoint_id)
        self._ending.abort(pending, reason, now_ns, out, cause=cause, keep_state=maybe_written)
        self._close_if_over(out)
        return self._rechecked(now_ns, out)

    def on_discarded(self, checkpoint_id: int, now_ns: int) -> CoordinatorInstructions:
        """The deletion of a checkpoint has ended, well or badly."""
        self._deletions.end(checkpoint_id)
        return self._rechecked(now_ns, [])

    # --- messages of tasks ----------------------------------------------------------------------------------------

    def on_acknowledge(self, ack: Acknowledge, now_ns: int) -> CoordinatorInstructions:
        """A task has delivered its part."""
        out: Out = []
        is_last = self._messages.on_acknowledge(ack, now_ns, out, is_over=self._job_status is not None)
        return self._rechecked(now_ns, out) if is_last else _finished(out)

    def on_decline(self, decline: Decline, now_ns: int) -> CoordinatorInstructions:
        """A task will not deliver its part: the checkpoint is over, whichever task sent this."""
        out: Out = []
        if not self._messages.on_decline(decline, now_ns, out, is_over=self._job_status is not None):
            return _finished(out)
        return self._abort(decline.checkpoint_id, decline.reason, now_ns, task=decline.task, cause=decline.cause)

    # --- ends of events -------------------------------------------------------------------------------------------

    def _abort(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        now_ns: int,
        *,
        task: TaskId | None = None,
        cause: str = "",
    ) -> CoordinatorInstructions:
        pending = self.pending.by_id.get(checkpoint_id)
        if pending is None or not pending.can_be_aborted:
            return ()
        out: Out = []
        self._ending.abort(pending, reason, now_ns, out, task=task, cause=cause)
        return self._rechecked(now_ns, out)

    # --- inspection -----------------------------------------------------------------------------------------------

    def validate(self) -> None:
        self.deployment.validate()
        self.schedule.validate()
        self.requests.validate()
        self._failures.validate()
        self.pending.validate()
        self.retained.validate(is_closed=self._job_status is not None and self.pending.finalizing_id is None)
        unforced = [pending for pending in self.pending.in_order if not pending.request.is_forced]
        assert len(unforced) <= self.config.max_concurrent, self.pending.ids
        known = (*self.pending.ids, *self.retained.ids)
        assert not known or 0 < min(known) <= max(known) < self.next_checkpoint_id, known
        assert len(set(known)) == len(known), known
        if self._job_status is not None:
            assert not self.schedule.is_running
            assert self.pending.ids in ((), (self.pending.finalizing_id,)), self.pending.ids
            assert not self.requests.queued, self.requests.queued

    def undisturbed_fingerprint(self, now_ns: int) -> tuple[object, ...]:
        """State that determines future behaviour if nothing fails: without attempts and completed checkpoints."""
        return (
            self._job_status and self._job_status.value,
            self._trigger.next_id,
            self.schedule.undisturbed_fingerprint(),
            self.deployment.undisturbed_fingerprint(),
            self.requests.fingerprint(),
            self.pending.fingerprint(now_ns),
            self._deletions.under_way,
        )

    def fingerprint(self, now_ns: int = 0) -> tuple[object, ...]:
        return (
            self._job_status and self._job_status.value,
            self._trigger.fingerprint(),
            self.schedule.fingerprint(now_ns),
            self.deployment.fingerprint(),
            self.requests.fingerprint(),
            self._failures.fingerprint(),
            self.pending.fingerprint(now_ns),
            self._deletions.under_way,
            self.retained.fingerprint(),
            max(0, self._ending.last_completion_ns + self.config.pause_ns - now_ns),
        )


def _finished(out: Out) -> CoordinatorInstructions:
    if not out:
        return ()
    # The driver tears the job down on FailJob: everything else must have been carried out by then.
    last = [instruction for instruction in out if isinstance(instruction, FailJob)]
    return (
        (*(instruction for instruction in out if not isinstance(instruction, FailJob)), *last) if last else tuple(out)
    )
