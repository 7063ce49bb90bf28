"""Carries out what the checkpoint coordinator says: timers on the kernel, files in storage, mail to tasks.

The answers to an instruction (a location is ready, metadata is durable) are given while the coordinator's list is
still being walked; the coordinator allows that, because its state is final when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from engine.checkpoint.coordinator import FINAL_CHECKPOINT
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import (
    ArmPeriodicTimer,
    ArmTimeout,
    CoordinatorInstruction,
    DisarmPeriodicTimer,
    DisarmTimeout,
    DiscardAcknowledgedState,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    FailJob,
    InitializeLocation,
    MessageIgnored,
    NotifyAborted,
    NotifyComplete,
    RequestCompleted,
    RequestFailed,
    SendTrigger,
    TaskId,
    WriteMetadata,
)
from engine.elements.errors import JobFailedError, StorageError, WeirError
from engine.observe.events import CheckpointAborted, CheckpointCompleted, CheckpointCut, CheckpointTriggered, TraceEvent
from engine.runtime.task_checkpoint import TaskSnapshot
from state_backends.errors import StateBackendError

if TYPE_CHECKING:
    from engine.runtime.job_manager import JobManager


class CheckpointsFailedError(WeirError):
    """More checkpoints in a row have failed than the job tolerates."""

    exit_code = JobFailedError.exit_code


class CheckpointDriver:
    """The hands of the coordinator of one job."""

    name = "checkpoint driver"

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager
        self._kernel = manager.kernel
        self._carry_out: dict[type[CoordinatorInstruction], Callable[[Any], None]] = {
            ArmPeriodicTimer: self._arm_periodic_timer,
            ArmTimeout: self._arm_timeout,
            InitializeLocation: self._initialize_location,
            SendTrigger: self._send_trigger,
            WriteMetadata: self._write_metadata,
            NotifyComplete: self._notify_complete,
            NotifyAborted: self._notify_aborted,
            DiscardPendingCheckpoint: self._discard,
            DiscardCheckpoint: self._discard,
            RequestCompleted: self._request_completed,
            RequestFailed: self._request_failed,
            FailJob: self._fail_job,
            # An outdated timer is ignored by the coordinator when it fires.
            DisarmPeriodicTimer: _nothing_to_do,
            DisarmTimeout: _nothing_to_do,
            # Private files of a late message went with the directory of its checkpoint.
            DiscardAcknowledgedState: _nothing_to_do,
            MessageIgnored: _nothing_to_do,
        }

    def execute(self, instructions: Iterable[CoordinatorInstruction]) -> None:
        """Carry out instructions in their order."""
        for instruction in instructions:
            self._carry_out[type(instruction)](instruction)

    # -- timers -------------------------------------------------------------------------------------------------

    def _arm_periodic_timer(self, instruction: ArmPeriodicTimer) -> None:
        self._kernel.schedule(max(instruction.at_ns, self._kernel.now_ns), "on_timer", self)

    def on_timer(self, _payload: None = None) -> None:
        """The periodic timer fires (kernel event)."""
        self.execute(self._manager.coordinator.on_timer(self._kernel.now_ns))

    def _arm_timeout(self, instruction: ArmTimeout) -> None:
        self._kernel.schedule(instruction.at_ns, "on_timeout", self, instruction.checkpoint_id)

    def on_timeout(self, checkpoint_id: int) -> None:
        """A checkpoint has taken too long (kernel event)."""
        self.execute(self._manager.coordinator.on_timeout(checkpoint_id, self._kernel.now_ns))

    # -- storage ------------------------------------------------------------------------------------------------

    def _initialize_location(self, instruction: InitializeLocation) -> None:
        manager, now, checkpoint_id = self._manager, self._kernel.now_ns, instruction.checkpoint_id
        error = _try_io(lambda: manager.files.initialize(checkpoint_id))
        if error is None:
            self.execute(manager.coordinator.on_location_ready(checkpoint_id, now))
            return
        manager.note(f"checkpoint {checkpoint_id}: {error}")
        reason = CheckpointFailureReason.IO_EXCEPTION
        self.execute(manager.coordinator.on_location_failed(checkpoint_id, reason, now, cause=str(error)))

    def _write_metadata(self, instruction: WriteMetadata) -> None:
        manager, now, checkpoint_id = self._manager, self._kernel.now_ns, instruction.checkpoint_id
        snapshots: dict[TaskId, TaskSnapshot] = {}
        for acknowledgement in instruction.acknowledgements:
            assert isinstance(acknowledgement.state, TaskSnapshot)
            snapshots[acknowledgement.task] = acknowledgement.state
        error = _try_io(lambda: manager.files.complete(checkpoint_id, instruction.timestamp_ns, snapshots))
        if error is not None:
            self._metadata_failed(checkpoint_id, error)
            return
        size = sum(one.metrics.checkpointed_bytes for one in instruction.acknowledgements)
        self._trace(CheckpointCompleted(now, manager.attempt, checkpoint_id, size))
        self._trace_cut(checkpoint_id, snapshots)
        self.execute(manager.coordinator.on_metadata_written(checkpoint_id, now))

    def _metadata_failed(self, checkpoint_id: int, error: Exception) -> None:
        manager = self._manager
        manager.note(f"checkpoint {checkpoint_id}: {error}")
        # It may exist nevertheless. The coordinator has it deleted at once, while nothing depends on the answer; if
        # that fails too, the job manager settles it before the next attempt.
        manager.unsettled[checkpoint_id] = None
        reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
        now = self._kernel.now_ns
        self.execute(manager.coordinator.on_metadata_failed(checkpoint_id, reason, now, cause=str(error)))

    def _discard(self, instruction: DiscardPendingCheckpoint | DiscardCheckpoint) -> None:
        manager, checkpoint_id = self._manager, instruction.checkpoint_id
        error = _try_io(lambda: manager.files.discard(checkpoint_id))
        if error is None:
            manager.unsettled.pop(checkpoint_id, None)
        else:
            manager.note(f"checkpoint {checkpoint_id} could not be deleted: {error}")
        self.execute(manager.coordinator.on_discarded(checkpoint_id, self._kernel.now_ns))

    def _trace_cut(self, checkpoint_id: int, snapshots: dict[TaskId, TaskSnapshot]) -> None:
        if self._manager.instrument is None:
            return
        sent: dict[int, int] = {}
        received: dict[int, int] = {}
        for snapshot in snapshots.values():
            sent.update(snapshot.sent)
            received.update(snapshot.received)
        assert sent.keys() == received.keys(), (sent.keys(), received.keys())
        differences = tuple(
            (channel, count, received[channel])
            for channel, count in sorted(sent.items())
            if count != received[channel]
        )
        now, attempt = self._kernel.now_ns, self._manager.attempt
        self._trace(CheckpointCut(now, attempt, checkpoint_id, len(sent), sum(sent.values()), differences))

    # -- mail to tasks ------------------------------------------------------------------------------------------

    def _send_trigger(self, instruction: SendTrigger) -> None:
        barrier = instruction.barrier
        self._trace(CheckpointTriggered(self._kernel.now_ns, self._manager.attempt, barrier.checkpoint_id))
        self._mail_to(instruction.tasks, "trigger_checkpoint", barrier)

    def _notify_complete(self, instruction: NotifyComplete) -> None:
        arguments = (instruction.checkpoint_id, instruction.last_subsumed_id)
        self._mail_to(instruction.tasks, "notify_checkpoint_complete", *arguments)

    def _notify_aborted(self, instruction: NotifyAborted) -> None:
        now, attempt = self._kernel.now_ns, self._manager.attempt
        self._trace(CheckpointAborted(now, attempt, instruction.checkpoint_id, instruction.reason.name))
        arguments = (instruction.checkpoint_id, instruction.latest_completed_id)
        self._mail_to(instruction.tasks, "notify_checkpoint_aborted", *arguments)

    def _mail_to(self, tasks: Iterable[TaskId], operation: str, *arguments: object) -> None:
        for task_id in tasks:
            self._manager.mail(self._manager.tasks[task_id], operation, *arguments)

    # -- the job ------------------------------------------------------------------------------------------------

    def _request_completed(self, instruction: RequestCompleted) -> None:
        if instruction.label == FINAL_CHECKPOINT:
            self._final_checkpoint_completed()

    def _final_checkpoint_completed(self) -> None:
        manager = self._manager
        self._kernel.schedule(self._kernel.now_ns, "all_parts_confirmed", manager, manager.attempt)

    def _request_failed(self, instruction: RequestFailed) -> None:
        if instruction.label != FINAL_CHECKPOINT:
            return
        if instruction.reason is CheckpointFailureReason.CHECKPOINT_SUBSUMED:
            # A younger one has completed, and it began behind the end of all input just as well. Trying again could
            # go on forever when checkpoints take longer than their interval.
            self._final_checkpoint_completed()
        else:
            self._manager.final_checkpoint_failed()

    def _fail_job(self, instruction: FailJob) -> None:
        manager = self._manager
        failure = CheckpointsFailedError(
            f"checkpoint {instruction.checkpoint_id} failed ({instruction.reason.name}), and the job tolerates"
            f" {manager.config.tolerable_failures} failed checkpoints in a row"
        )
        self._kernel.schedule(
            self._kernel.now_ns, "task_failed", manager, (manager.attempt, "checkpoints", failure)
        )

    def _trace(self, event: TraceEvent) -> None:
        if self._manager.instrument is not None:
            self._manager.instrument(event)


def _nothing_to_do(instruction: CoordinatorInstruction) -> None:
    """Some instructions only matter to drivers that hold real timers or late state."""


def _try_io(action: Callable[[], object]) -> Exception | None:
    """Run a step on storage; what the world may do to it is an answer to the coordinator, not a crash."""
    try:
        action()
    except (OSError, StateBackendError, StorageError) as error:
        return error
    return None
