"""From the chosen request to the triggers at the tasks (Flink: ``CheckpointCoordinator.startTriggeringCheckpoint``).

Make the plan, draw an id (a later failure leaves a gap), register the checkpoint and arm its timeout, initialize the
location, snapshot the operator coordinators, call the master hooks, send the triggers: one after the other, and one
checkpoint at a time. An error in any step aborts the checkpoint: IO_EXCEPTION, which counts against the failure
budget, or TRIGGER_CHECKPOINT_FAILURE, which does not. Answers for a checkpoint that is over are ignored.

*Ids* start at 1, grow, and are never used twice, restarts included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.coordinator_messages import (
    ArmTimeout,
    CallMasterHooks,
    DiscardPendingCheckpoint,
    InitializeLocation,
    Out,
    SendTrigger,
    SnapshotOperatorCoordinators,
)
from engine.checkpoint.coordinator.deployment import CheckpointPlan, Deployment, TasksNotRunningError
from engine.checkpoint.coordinator.pending import PendingCheckpoint, PendingPhase, PendingSet
from engine.checkpoint.coordinator.requests import TriggerRequest
from engine.checkpoint.coordinator.retained_checkpoints import Deletions
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier, CheckpointOptions


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """What is the same for all checkpoints of a job.

    ``options``  what the barriers of an ordinary checkpoint carry; ``timeout_ns``, ``after_tasks_finish`` as in
    ``CoordinatorConfig``; ``operator_coordinators``, ``master_hooks``: the names of those that deliver first.
    """

    options: CheckpointOptions
    timeout_ns: int
    after_tasks_finish: bool
    operator_coordinators: tuple[str, ...]
    master_hooks: tuple[str, ...]


class Refusals(Protocol):
    """Where a request goes that gets no id."""

    def refuse(self, request: TriggerRequest, reason: CheckpointFailureReason, out: Out) -> None:
        """It was tried and failed."""


class TriggerPipeline:
    """Prepares one checkpoint at a time; see the rules at the top of the module."""

    def __init__(
        self,
        settings: PipelineSettings,
        deployment: Deployment,
        pending: PendingSet,
        deletions: Deletions,
        refusals: Refusals,
        statistics: CheckpointStatistics,
    ) -> None:
        self._settings = settings
        self._deployment = deployment
        self._pending = pending
        self._deletions = deletions
        self._refusals = refusals
        self._statistics = statistics
        self._next_id = 1
        self._id_refusal: CheckpointFailureReason | None = None

    @property
    def next_id(self) -> int:
        """The id that the next checkpoint will get."""
        return self._next_id

    def keep_ids_above(self, checkpoint_id: int) -> None:
        """This id is taken, and so are those below."""
        self._next_id = max(self._next_id, checkpoint_id + 1)

    def refuse_next_id(self, reason: CheckpointFailureReason) -> None:
        """The next request that would draw an id fails with ``reason``."""
        self._id_refusal = reason

    # --- the steps ------------------------------------------------------------------------------------------------

    def begin(self, request: TriggerRequest, must_be_full: bool, now_ns: int, out: Out) -> None:
        """Trigger a checkpoint for ``request``. ``must_be_full``: nothing may refer to the files of earlier ones."""
        try:
            plan = self._deployment.plan(after_tasks_finish=self._settings.after_tasks_finish)
        except TasksNotRunningError:
            reason = CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING
            self._refusals.refuse(request, reason, out)
            return
        if self._id_refusal is not None:
            refusal, self._id_refusal = self._id_refusal, None
            self._refusals.refuse(request, refusal, out)
            return
        self._register(request, plan, must_be_full, now_ns, out)

    def _register(
        self, request: TriggerRequest, plan: CheckpointPlan, must_be_full: bool, now_ns: int, out: Out
    ) -> None:
        settings, checkpoint_id = self._settings, self._next_id
        self._next_id += 1
        kind = request.kind(full_required=must_be_full)
        options = settings.options.for_snapshot(kind, request.stop, request.savepoint_format)
        # The clock of the trigger, not of the request, which may have waited
        # (test_a_request_that_waited_is_triggered_with_the_time_of_the_trigger).
        barrier = CheckpointBarrier(checkpoint_id, now_ns, options)
        self._pending.add(
            PendingCheckpoint(barrier, request, plan, settings.operator_coordinators, settings.master_hooks)
        )
        self._statistics.on_triggered(
            checkpoint_id,
            kind,
            now_ns,
            len(plan.wait),
            requested_ns=request.requested_ns,
            finished=plan.finished,
            is_synchronous=request.is_synchronous,
            savepoint_format=request.savepoint_format and request.savepoint_format.name,
        )
        # Before the location: a storage that hangs must not hang the coordinator
        # (test_timeout_is_armed_before_the_location_exists).
        out.append(ArmTimeout(checkpoint_id, now_ns + settings.timeout_ns))
        out.append(InitializeLocation(checkpoint_id, kind, request.label))

    def is_late(self, pending: PendingCheckpoint, now_ns: int) -> bool:
        """Whether its timeout is over."""
        return now_ns >= pending.barrier.timestamp_ns + self._settings.timeout_ns

    # --- answers; each says whether the tasks have been triggered by it -------------------------------------------

    def on_location_ready(self, checkpoint_id: int, out: Out) -> bool:
        """The place for the snapshot exists: snapshot the operator coordinators, or trigger the tasks."""
        pending = self._pending.by_id.get(checkpoint_id)
        if pending is None:
            # Aborted meanwhile; nothing was deleted then because nothing was there
            # (test_location_that_comes_too_late_is_deleted).
            self._deletions.begin(DiscardPendingCheckpoint(checkpoint_id, ()), out)
            return False
        assert pending.phase is PendingPhase.INITIALIZING, (checkpoint_id, pending.phase)
        pending.phase = PendingPhase.PREPARING
        waiting = pending.waiting_coordinators
        if not waiting:
            return self._coordinators_delivered(pending, out)
        out.append(SnapshotOperatorCoordinators(checkpoint_id, waiting))
        return False

    def on_operator_coordinator_state(self, checkpoint_id: int, name: str, state: object, out: Out) -> bool:
        """An operator coordinator has delivered its state."""
        pending = self._pending.in_preparation(checkpoint_id)
        if pending is None:
            return False
        pending.on_coordinator_state(name, state)
        return not pending.waiting_coordinators and self._coordinators_delivered(pending, out)

    def on_master_hook_state(self, checkpoint_id: int, name: str, state: object, out: Out) -> bool:
        """A master hook has answered."""
        pending = self._pending.in_preparation(checkpoint_id)
        if pending is None:
            return False
        pending.on_hook_state(name, state)
        return not pending.waiting_hooks and self._trigger_tasks(pending, out)

    def _coordinators_delivered(self, pending: PendingCheckpoint, out: Out) -> bool:
        waiting = pending.waiting_hooks
        if not waiting:
            return self._trigger_tasks(pending, out)
        # Only now: a hook may look at what the coordinators have handed out (test_coordinators_then_hooks_then_tasks).
        out.append(CallMasterHooks(pending.checkpoint_id, waiting))
        return False

    def _trigger_tasks(self, pending: PendingCheckpoint, out: Out) -> bool:
        self._pending.triggered(pending)
        out.append(SendTrigger(pending.barrier, pending.plan.trigger))
        return True

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next."""
        return (self._next_id, self._id_refusal and self._id_refusal.name)
