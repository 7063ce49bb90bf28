"""From the registered checkpoint to its triggers: the location, the operator coordinators, the master hooks, the tasks.

The rules are told at the top of ``engine.checkpoint.operator_coordinators``; this part of the checkpoint coordinator
walks through the steps one after the other. An error in any of them aborts the checkpoint: IO_EXCEPTION, which counts
against the failure budget, or TRIGGER_CHECKPOINT_FAILURE, which does not. What comes late, for a checkpoint that is
over, is ignored.
"""

from __future__ import annotations

from engine.checkpoint.coordinator_core import CoordinatorCore, Out
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import (
    CallMasterHooks,
    CoordinatorInstructions,
    DiscardPendingCheckpoint,
    SendTrigger,
    SnapshotOperatorCoordinators,
)
from engine.checkpoint.pending import PendingCheckpoint, PendingPhase


class PreparingCoordinator(CoordinatorCore):
    """The answers to what must be done before tasks are triggered."""

    def on_location_ready(self, checkpoint_id: int, now_ns: int) -> CoordinatorInstructions:
        """The place for the snapshot exists: snapshot the operator coordinators, or trigger the tasks."""
        out: Out = []
        pending = self._pending.get(checkpoint_id)
        if pending is None:
            # Aborted meanwhile; nothing was deleted then because nothing was there.
            self._being_deleted += 1
            out.append(DiscardPendingCheckpoint(checkpoint_id, ()))
            return self._finish(out)
        assert pending.phase is PendingPhase.INITIALIZING, (checkpoint_id, pending.phase)
        pending.phase = PendingPhase.PREPARING
        waiting = pending.preparation.waiting_coordinators
        if waiting:
            out.append(SnapshotOperatorCoordinators(checkpoint_id, waiting))
        else:
            self._coordinators_delivered(pending, now_ns, out)
        return self._finish(out)

    def on_location_failed(
        self,
        checkpoint_id: int,
        reason: CheckpointFailureReason,
        now_ns: int,
        cause: str = "",
    ) -> CoordinatorInstructions:
        """The place could not be made: IO_EXCEPTION, or TRIGGER_CHECKPOINT_FAILURE for whatever is no I/O error."""
        return self._abort_and_recheck(checkpoint_id, reason, now_ns, cause=cause)

    def on_operator_coordinator_state(
        self, checkpoint_id: int, name: str, state: object, now_ns: int
    ) -> CoordinatorInstructions:
        """An operator coordinator has delivered its state."""
        out: Out = []
        pending = self._in_preparation(checkpoint_id)
        if pending is not None:
            pending.preparation.on_coordinator_state(name, state)
            if not pending.preparation.waiting_coordinators:
                self._coordinators_delivered(pending, now_ns, out)
        return self._finish(out)

    def on_master_hook_state(
        self, checkpoint_id: int, name: str, state: object, now_ns: int
    ) -> CoordinatorInstructions:
        """A master hook has answered."""
        out: Out = []
        pending = self._in_preparation(checkpoint_id)
        if pending is not None:
            pending.preparation.on_hook_state(name, state)
            if pending.preparation.is_complete:
                self._trigger_tasks(pending, now_ns, out)
        return self._finish(out)

    def on_preparation_failed(
        self, checkpoint_id: int, name: str, reason: CheckpointFailureReason, now_ns: int, cause: str = ""
    ) -> CoordinatorInstructions:
        """An operator coordinator or a master hook could not deliver; reasons as for the location."""
        if self._in_preparation(checkpoint_id) is None:
            return ()
        return self._abort_and_recheck(checkpoint_id, reason, now_ns, cause=f"{name}: {cause}" if cause else name)

    def _in_preparation(self, checkpoint_id: int) -> PendingCheckpoint | None:
        pending = self._pending.get(checkpoint_id)
        return pending if pending is not None and pending.phase is PendingPhase.PREPARING else None

    def _coordinators_delivered(self, pending: PendingCheckpoint, now_ns: int, out: Out) -> None:
        # Only now: a hook may look at what the coordinators have handed out.
        if pending.preparation.waiting_hooks:
            out.append(CallMasterHooks(pending.checkpoint_id, pending.preparation.waiting_hooks))
        else:
            self._trigger_tasks(pending, now_ns, out)

    def _trigger_tasks(self, pending: PendingCheckpoint, now_ns: int, out: Out) -> None:
        pending.phase = PendingPhase.TRIGGERED
        self._triggering = None
        out.append(SendTrigger(pending.barrier, pending.plan.trigger))
        if pending.is_fully_acknowledged:
            self._fully_acknowledged(pending)
        self._recheck(now_ns, out)
