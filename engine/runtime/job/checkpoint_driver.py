"""Carries out the checkpoint coordinator's instructions: timers on the kernel, files in storage, mail to tasks.

Storage does each request at once, but the answer comes as an event of its own. Between the two any other event may
happen, the death of the job manager included. Then the driver is dead with it, and takes no answer.
(A deletion is answered while the coordinator's list is still being walked; the coordinator allows that, because its
state is final when it returns.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from engine.checkpoint.coordinator import (
    FINAL_CHECKPOINT,
    ArmPeriodicTimer,
    ArmTimeout,
    CheckpointCoordinator,
    CoordinatorInstruction,
    DisarmPeriodicTimer,
    DisarmTimeout,
    DiscardAcknowledgedState,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    DiscardSharedState,
    FailJob,
    InitializeLocation,
    MessageIgnored,
    NotifyAborted,
    NotifyComplete,
    NotifyCoordinatorsAborted,
    NotifyCoordinatorsComplete,
    RequestCompleted,
    RequestFailed,
    SendTrigger,
    SnapshotOperatorCoordinators,
    TaskId,
    WriteMetadata,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.errors import JobFailedError, StorageError, WeirError
from engine.elements.events import SnapshotKind
from engine.elements.operator_coordination import CoordinatorError
from engine.observe.trace_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointCut,
    CheckpointTriggered,
    Instrument,
    ReportIgnored,
    TraceEvent,
)
from engine.runtime.channels import Channel, RecordWriter
from engine.runtime.job.job_state import JobProgress
from engine.runtime.job.operator_coordinators import OperatorCoordinators
from engine.runtime.job.record_counts import RecordCounts
from engine.runtime.job.requested_savepoints import Savepoints
from engine.runtime.kernel import Addressee, Around, Kernel, Post
from engine.runtime.storage import CheckpointFiles, TaskSnapshot
from state_backends.base import StateBackendError


class CheckpointsFailedError(WeirError):
    """More checkpoints in a row have failed than the job tolerates."""

    exit_code = JobFailedError.exit_code


class CheckpointedSubtask(Addressee, Protocol):
    """A task that hears of checkpoints, and the channels that it counts records on."""

    inputs: list[Channel]
    writers: list[RecordWriter]


class CheckpointListener(Protocol):
    """The job's reactions to the ends of checkpoints."""

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Tasks are being told that a checkpoint is complete."""

    def checkpoint_aborted(self, reason: CheckpointFailureReason) -> None:
        """Tasks are being told that a checkpoint was given up."""

    def final_checkpoint_completed(self) -> None:
        """The checkpoint that follows the end of all input is complete, or another one in its place."""

    def final_checkpoint_failed(self, reason: CheckpointFailureReason) -> None:
        """That checkpoint has failed."""

    def fail_soon(self, why: str, error: Exception) -> None:
        """More checkpoints have failed than the job tolerates: it fails as soon as the present event is over."""


class Unsettled:
    """Checkpoints that may or may not be durable, and the events that wait for the answer.

    ``maybe``    failed while they were made durable, and may exist nevertheless;
    ``waiting``  kernel events, ``(operation, target, payload)``, that come once the outcome is known.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.maybe: dict[int, None] = {}
        self.waiting: list[tuple[str, object, object]] = []

    def settle(self) -> None:
        """The outcome of a checkpoint is known: events that have waited for it may go on."""
        waiting, self.waiting = self.waiting, []
        for operation, target, payload in waiting:
            self._kernel.schedule(self._kernel.now_ns, operation, target, payload)

    def forget(self) -> None:
        """The job manager has died: its successor looks at the files."""
        self.maybe.clear()
        self.waiting.clear()

    def fingerprint(self) -> object:
        return (tuple(self.maybe), tuple(operation for operation, _, _ in self.waiting))


class CheckpointDriver:
    """The hands of the coordinator of one job."""

    name = "checkpoint driver"

    def __init__(
        self,
        coordinator: CheckpointCoordinator,
        *,
        kernel: Kernel,
        job: JobProgress,
        tasks: Mapping[TaskId, CheckpointedSubtask],
        post: Post,
        files: CheckpointFiles,
        savepoints: Savepoints,
        operator_coordinators: OperatorCoordinators,
        unsettled: Unsettled,
        counts: RecordCounts,
        listener: CheckpointListener,
        instrument: Instrument | None,
        around: Around,
    ) -> None:
        self.coordinator = coordinator
        self._kernel = kernel
        self._job = job
        self._tasks = tasks
        self._post = post
        self._files = files
        self._savepoints = savepoints
        self._operator_coordinators = operator_coordinators
        self._unsettled = unsettled
        self._counts = counts
        self._listener = listener
        self._instrument = instrument
        self._around = around
        self._dead = False
        self._carry_out: dict[type[CoordinatorInstruction], Callable[[Any], None]] = {
            ArmPeriodicTimer: self._arm_periodic_timer,
            ArmTimeout: self._arm_timeout,
            InitializeLocation: self._initialize_location,
            SnapshotOperatorCoordinators: self._snapshot_coordinators,
            SendTrigger: self._send_trigger,
            WriteMetadata: self._write_metadata,
            NotifyComplete: self._notify_complete,
            NotifyAborted: self._notify_aborted,
            NotifyCoordinatorsComplete: self._notify_coordinators_complete,
            NotifyCoordinatorsAborted: self._notify_coordinators_aborted,
            DiscardPendingCheckpoint: self._discard,
            DiscardCheckpoint: self._delete_subsumed,
            RequestCompleted: self._request_completed,
            RequestFailed: self._request_failed,
            FailJob: self._fail_job,
            # An outdated timer is ignored by the coordinator when it fires.
            DisarmPeriodicTimer: _nothing_to_do,
            DisarmTimeout: _nothing_to_do,
            DiscardAcknowledgedState: self._discard_acknowledged,
            DiscardSharedState: self._discard_shared,
            MessageIgnored: self._message_ignored,
        }

    def die(self) -> None:
        """The job manager is dead: messages under way to it, timers included, are dropped."""
        self._dead = True

    def execute(self, instructions: Iterable[CoordinatorInstruction]) -> None:
        """Carry out instructions in their order."""
        for instruction in instructions:
            self._carry_out[type(instruction)](instruction)

    # -- timers -------------------------------------------------------------------------------------------------

    def _arm_periodic_timer(self, instruction: ArmPeriodicTimer) -> None:
        self._kernel.schedule(max(instruction.at_ns, self._kernel.now_ns), "on_timer", self)

    def on_timer(self, _payload: None = None) -> None:
        """The periodic timer fires (kernel event)."""
        if not self._dead:
            self.execute(self.coordinator.on_timer(self._kernel.now_ns))

    def _arm_timeout(self, instruction: ArmTimeout) -> None:
        self._kernel.schedule(instruction.at_ns, "on_timeout", self, instruction.checkpoint_id)

    def on_timeout(self, checkpoint_id: int) -> None:
        """A checkpoint has taken too long (kernel event)."""
        if not self._dead:
            self.execute(self.coordinator.on_timeout(checkpoint_id, self._kernel.now_ns))

    # -- storage ------------------------------------------------------------------------------------------------

    def _initialize_location(self, instruction: InitializeLocation) -> None:
        files, checkpoint_id, label = self._files, instruction.checkpoint_id, instruction.label
        if instruction.kind is SnapshotKind.SAVEPOINT:
            assert label is not None, "a savepoint is asked for by somebody"
            target = self._savepoints.target(label)
            error = _try_io(lambda: files.initialize_savepoint(checkpoint_id, target))
        else:
            error = _try_io(lambda: files.initialize(checkpoint_id))
        self._answer("location_answered", checkpoint_id, error)

    def location_answered(self, answer: tuple[int, Exception | None]) -> None:
        """The place for a snapshot was made, or could not be (kernel event)."""
        if self._dead:
            return
        (checkpoint_id, error), now = answer, self._kernel.now_ns
        if error is None:
            self.execute(self.coordinator.on_location_ready(checkpoint_id, now))
            return
        self._job.note(f"checkpoint {checkpoint_id} failed: {error}")
        reason = CheckpointFailureReason.IO_EXCEPTION
        self.execute(self.coordinator.on_location_failed(checkpoint_id, reason, now, cause=str(error)))

    def _write_metadata(self, instruction: WriteMetadata) -> None:
        with self._around("complete.decide"):
            self._make_durable(instruction)

    def _make_durable(self, instruction: WriteMetadata) -> None:
        now, checkpoint_id = self._kernel.now_ns, instruction.checkpoint_id
        snapshots: dict[TaskId, TaskSnapshot] = {}
        for acknowledgement in instruction.acknowledgements:
            assert isinstance(acknowledgement.state, TaskSnapshot)
            snapshots[acknowledgement.task] = acknowledgement.state
        self._counts.completed(checkpoint_id, snapshots, self.coordinator.retained.ids)
        error = _try_io(lambda: self._files.complete(instruction, snapshots))
        if error is None:
            size = sum(one.metrics.checkpointed_bytes for one in instruction.acknowledgements)
            self._trace(CheckpointCompleted(now, self._job.attempt, checkpoint_id, size))
            self._trace_cut(checkpoint_id, snapshots)
        else:
            # It may exist nevertheless. The coordinator has it deleted while nothing depends on the answer. If that
            # fails too, the job manager settles it before the next attempt.
            self._unsettled.maybe[checkpoint_id] = None
        self._answer("metadata_answered", checkpoint_id, error)

    def metadata_answered(self, answer: tuple[int, Exception | None]) -> None:
        """A snapshot is durable, or could not be made so (kernel event)."""
        if self._dead:
            return
        (checkpoint_id, error), now = answer, self._kernel.now_ns
        if error is None:
            directory = self._files.location(checkpoint_id).directory
            self.execute(self.coordinator.on_metadata_written(checkpoint_id, now, directory))
            self._files.savepoint_locations.pop(checkpoint_id, None)
        else:
            self._job.note(f"checkpoint {checkpoint_id} failed: {error}")
            reason = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE
            self.execute(self.coordinator.on_metadata_failed(checkpoint_id, reason, now, cause=str(error)))
        if self._unsettled.waiting:
            self._unsettled.settle()

    def _answer(self, operation: str, checkpoint_id: int, error: Exception | None) -> None:
        self._kernel.schedule(self._kernel.now_ns, operation, self, (checkpoint_id, error))

    def _discard(self, instruction: DiscardPendingCheckpoint | DiscardCheckpoint) -> None:
        checkpoint_id = instruction.checkpoint_id
        error = _try_io(lambda: self._files.discard(checkpoint_id))
        if error is None:
            self._unsettled.maybe.pop(checkpoint_id, None)
        else:
            self._job.note(f"checkpoint {checkpoint_id} could not be deleted: {error}")
        self.execute(self.coordinator.on_discarded(checkpoint_id, self._kernel.now_ns))

    def _delete_subsumed(self, instruction: DiscardCheckpoint) -> None:
        with self._around("subsume.delete"):
            self._discard(instruction)

    def _discard_shared(self, instruction: DiscardSharedState) -> None:
        error = _try_io(lambda: self._files.delete_shared(instruction.handles))
        if error is not None:
            self._job.note(f"shared state that no checkpoint uses could not be deleted: {error}")

    def _discard_acknowledged(self, instruction: DiscardAcknowledgedState) -> None:
        message = instruction.acknowledgement
        state = message.state
        assert isinstance(state, TaskSnapshot), message
        private = state.operators.values()
        for error in (
            _try_io(lambda: self._files.discard_private(message.checkpoint_id, private)),
            _try_io(lambda: self._files.delete_shared(message.discardable_shared)),
        ):
            if error is not None:
                what = f"what a task wrote for checkpoint {message.checkpoint_id}"
                self._job.note(f"{what} could not be deleted: {error}")

    def _trace_cut(self, checkpoint_id: int, snapshots: dict[TaskId, TaskSnapshot]) -> None:
        if self._instrument is None:
            return
        sent: dict[int, int] = {}
        received: dict[int, int] = {}
        for snapshot in snapshots.values():
            sent.update(snapshot.sent)
            received.update(snapshot.received)
        for task_id, task in self._tasks.items():
            if task_id not in snapshots:
                # It had finished before: its counters move no more.
                outputs = (channel for writer in task.writers for channel in writer.channels)
                sent.update((channel.index, channel.sent_records) for channel in outputs)
                received.update((channel.index, channel.received_records) for channel in task.inputs)
        assert sent.keys() == received.keys(), (sent.keys(), received.keys())
        differences: tuple[tuple[int, int, int], ...] = ()
        if sent != received:
            counts = sorted(sent.items())
            differences = tuple((one, count, received[one]) for one, count in counts if count != received[one])
        now, attempt = self._kernel.now_ns, self._job.attempt
        self._trace(CheckpointCut(now, attempt, checkpoint_id, len(sent), sum(sent.values()), differences))

    # -- operator coordinators ------------------------------------------------------------------------------------

    def _snapshot_coordinators(self, instruction: SnapshotOperatorCoordinators) -> None:
        for name in instruction.names:
            taken = self._operator_coordinators.checkpoint(name, instruction.checkpoint_id)
            answer = (instruction.checkpoint_id, name, taken)
            self._kernel.schedule(self._kernel.now_ns, "coordinator_answered", self, answer)

    def coordinator_answered(self, answer: tuple[int, str, bytes | CoordinatorError]) -> None:
        """An operator coordinator has delivered its state, or has failed (kernel event)."""
        if self._dead:
            return
        (checkpoint_id, name, taken), now = answer, self._kernel.now_ns
        if isinstance(taken, CoordinatorError):
            reason = CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE
            self.execute(self.coordinator.on_preparation_failed(checkpoint_id, name, reason, now, cause=str(taken)))
        else:
            self.execute(self.coordinator.on_operator_coordinator_state(checkpoint_id, name, taken, now))

    def _notify_coordinators_complete(self, instruction: NotifyCoordinatorsComplete) -> None:
        self._operator_coordinators.completed(instruction.checkpoint_id, instruction.names)

    def _notify_coordinators_aborted(self, instruction: NotifyCoordinatorsAborted) -> None:
        self._operator_coordinators.aborted(instruction.checkpoint_id, instruction.names)

    # -- mail to tasks ------------------------------------------------------------------------------------------

    def _send_trigger(self, instruction: SendTrigger) -> None:
        barrier = instruction.barrier
        self._trace(CheckpointTriggered(self._kernel.now_ns, self._job.attempt, barrier.checkpoint_id))
        self._mail_to(instruction.tasks, "trigger_checkpoint", barrier)

    def _notify_complete(self, instruction: NotifyComplete) -> None:
        with self._around("notify.send"):
            arguments = (instruction.checkpoint_id, instruction.last_subsumed_id)
            if self._savepoints.is_stopping:
                # A task that has stopped hears of no later checkpoint: this message must not be lost.
                self._mail_to(instruction.tasks, "notify_stop_complete", *arguments)
            else:
                self._mail_to(instruction.tasks, "notify_checkpoint_complete", *arguments)
                self._listener.checkpoint_completed(instruction.checkpoint_id)

    def _notify_aborted(self, instruction: NotifyAborted) -> None:
        now, attempt = self._kernel.now_ns, self._job.attempt
        self._trace(CheckpointAborted(now, attempt, instruction.checkpoint_id, instruction.reason.name))
        arguments = (instruction.checkpoint_id, instruction.latest_completed_id)
        self._mail_to(instruction.tasks, "notify_checkpoint_aborted", *arguments)
        self._listener.checkpoint_aborted(instruction.reason)

    def _message_ignored(self, instruction: MessageIgnored) -> None:
        message, kind = instruction.message, type(instruction.message).__name__.lower()
        task, number = self._tasks[message.task].name, message.checkpoint_id
        self._trace(ReportIgnored(self._kernel.now_ns, message.attempt, number, task, kind, instruction.why.name))

    def _mail_to(self, tasks: Iterable[TaskId], operation: str, *arguments: object) -> None:
        for task_id in tasks:
            self._post.to_task(self._tasks[task_id], operation, *arguments)

    # -- the job ------------------------------------------------------------------------------------------------

    def _request_completed(self, instruction: RequestCompleted) -> None:
        if instruction.label == FINAL_CHECKPOINT:
            self._listener.final_checkpoint_completed()
        else:
            checkpoint_id = instruction.checkpoint_id
            path = self._files.location(checkpoint_id).directory
            self._savepoints.completed(instruction.label, checkpoint_id, path)

    def _request_failed(self, instruction: RequestFailed) -> None:
        if instruction.label != FINAL_CHECKPOINT:
            self._savepoints.failed(instruction.label, instruction.reason, instruction.checkpoint_id)
        elif instruction.reason is CheckpointFailureReason.CHECKPOINT_SUBSUMED:
            # A younger one has completed, and it began after the end of all input too. Trying again could go on
            # for ever when checkpoints take longer than their interval.
            self._listener.final_checkpoint_completed()
        else:
            self._listener.final_checkpoint_failed(instruction.reason)

    def _fail_job(self, instruction: FailJob) -> None:
        known = f"checkpoint {instruction.checkpoint_id} failed"
        why = "".join(f"\n  {note}" for note in self._job.notes if note.startswith(known))
        failure = CheckpointsFailedError(
            f"{known} ({instruction.reason.name}), and the job tolerates"
            f" {self.coordinator.config.tolerable_failures} failed checkpoints in a row{why}"
        )
        self._listener.fail_soon(f"checkpoints: {failure}", failure)

    def _trace(self, event: TraceEvent) -> None:
        if self._instrument is not None:
            self._instrument(event)


def _nothing_to_do(instruction: CoordinatorInstruction) -> None:
    """Some instructions only matter to drivers that hold real timers or late state."""


def _try_io(action: Callable[[], object]) -> Exception | None:
    """Run a step on storage; an error of the file system is an answer to the coordinator, not a crash."""
    try:
        action()
    except (OSError, StateBackendError, StorageError) as error:
        return error
    return None
