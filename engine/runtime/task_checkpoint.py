"""The checkpoints of one task: drives the task's checkpoint protocol and the snapshots of its operators.

On a due snapshot, in this order (barrier-handling rules; Flink: ``SubtaskCheckpointCoordinatorImpl``): the operators'
pre-barrier hook, the barrier on all outputs, the synchronous parts of all operators, and then the asynchronous part,
one step per kernel event, interleaved with whatever the job does meanwhile. A failing synchronous part fails the
task; a failing asynchronous part only declines the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.instructions import (
    AbortCheckpoint,
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelSnapshot,
    DeclineCheckpoint,
    DiscardSnapshot,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    NotifyOperatorsSubsumed,
    TakeSnapshot,
    TaskInstructions,
    TriggerSnapshot,
)
from engine.checkpoint.messages import Acknowledge, Decline, SubtaskCheckpointMetrics
from engine.checkpoint.task_protocol import TaskCheckpointProtocol
from engine.elements.errors import StateError
from engine.elements.events import CancelCheckpointMarker
from engine.observe.events import SnapshotAcknowledged, SnapshotTaken
from state_backends.errors import StateBackendError, StateSerializationError
from state_backends.snapshot import SnapshotOptions, SnapshotResult, SnapshotTask
from state_backends.storage import SubtaskSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.checkpoint.instructions import AlignmentMetrics
    from engine.elements.events import CheckpointBarrier
    from engine.runtime.task import Task

KEYED, OPERATOR = "keyed", "operator"


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task's part of a checkpoint.

    ``operators``  uid -> handles of its state;
    ``sent``       channel index -> records sent on it before the barrier;
    ``received``   channel index -> records received from it before the snapshot.
    """

    operators: dict[str, SubtaskSnapshot]
    sent: dict[int, int]
    received: dict[int, int]


class TaskCheckpointing:
    """Everything about checkpoints in one attempt of one task."""

    def __init__(self, task: Task, restored_checkpoint_id: int | None) -> None:
        self._task = task
        self._protocol = TaskCheckpointProtocol(restored_checkpoint_id)
        self._running: dict[int, _AsyncSnapshot] = {}

    # -- what happens to the task -----------------------------------------------------------------------------

    def barrier_complete(self, due: TriggerSnapshot) -> None:
        """The barrier handler says that all barriers are here."""
        self._execute(self._protocol.on_snapshot_due(due.barrier, due.metrics))

    def barrier_aborted(self, abort: AbortCheckpoint) -> None:
        """The barrier handler gave up on a checkpoint."""
        self._execute(self._protocol.on_alignment_aborted(abort.checkpoint_id, abort.reason))

    def notify_complete(self, checkpoint_id: int, last_subsumed_id: int) -> None:
        """The coordinator says that a checkpoint is durable."""
        self._execute(self._protocol.on_complete(checkpoint_id, last_subsumed_id))

    def notify_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """The coordinator gave up on a checkpoint."""
        self._execute(self._protocol.on_abort(checkpoint_id, latest_completed_id))

    def end_of_data(self) -> None:
        """The task's input has ended; the next snapshot is its final one."""
        self._protocol.on_end_of_data()

    @property
    def final_checkpoint_completed(self) -> bool:
        """Whether a checkpoint that began after the end of the data is confirmed."""
        return self._protocol.final_checkpoint_completed

    def snapshot_written(self, checkpoint_id: int) -> None:
        """The asynchronous part is finished."""
        self._execute(self._protocol.on_snapshot_written(checkpoint_id))

    def snapshot_failed(self, checkpoint_id: int, error: Exception) -> None:
        """The asynchronous part failed; what it wrote is deleted already."""
        task = self._task
        self._running.pop(checkpoint_id, None)
        task.environment.master.note(f"checkpoint {checkpoint_id} failed in {task.name}: {error}")
        reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
        if isinstance(error, OSError):
            reason = CheckpointFailureReason.IO_EXCEPTION
        self._execute(self._protocol.on_snapshot_failed(checkpoint_id, reason))

    def abandon(self) -> None:
        """The task is dead or done: cancel what runs, delete what it wrote, tell nobody."""
        for snapshot in self._running.values():
            snapshot.cancel()
        self._running.clear()

    # -- what the protocol says -------------------------------------------------------------------------------

    def _execute(self, instructions: TaskInstructions) -> None:
        task = self._task
        for instruction in instructions:
            match instruction:
                case TakeSnapshot(barrier, metrics):
                    self._take(barrier, metrics)
                case BroadcastCancelMarker(checkpoint_id):
                    task.broadcast(CancelCheckpointMarker(checkpoint_id))
                case AcknowledgeCheckpoint(checkpoint_id):
                    self._acknowledge(checkpoint_id)
                case DeclineCheckpoint(checkpoint_id, reason):
                    message = Decline(checkpoint_id, task.attempt, task.task_id, reason)
                    task.environment.send_to_master("receive_decline", message)
                case CancelSnapshot(checkpoint_id) | DiscardSnapshot(checkpoint_id):
                    self._running.pop(checkpoint_id).cancel()
                case NotifyOperatorsComplete(checkpoint_id):
                    for operator in task.operators:
                        operator.notify_checkpoint_complete(checkpoint_id)
                case NotifyOperatorsAborted(checkpoint_id):
                    for operator in task.operators:
                        operator.notify_checkpoint_aborted(checkpoint_id)
                case NotifyOperatorsSubsumed():
                    # The heap backend writes self-contained snapshots: nothing of an older one is in use.
                    pass
                case _:
                    raise AssertionError(f"unknown instruction {instruction!r}")

    def _take(self, barrier: CheckpointBarrier, metrics: AlignmentMetrics) -> None:
        task, checkpoint_id = self._task, barrier.checkpoint_id
        for operator in task.operators:
            operator.prepare_snapshot_pre_barrier(checkpoint_id)
        # The barrier leaves before the state is captured, but no record can come between the two: both happen
        # between two elements, and what the pre-barrier hook emitted is ahead of the barrier.
        task.broadcast(barrier)
        sent = {channel.index: channel.sent_records for writer in task.writers for channel in writer.channels}
        received = {channel.index: channel.received_records for channel in task.inputs}
        snapshot = _AsyncSnapshot(self, task, barrier, metrics, sent, received)
        self._running[checkpoint_id] = snapshot
        instrument = task.environment.instrument
        if instrument is not None:
            now = task.kernel.now_ns
            instrument(
                SnapshotTaken(
                    now, task.attempt, checkpoint_id, task.name, metrics.alignment_ns, metrics.start_delay_ns
                )
            )
        snapshot.start()

    def _acknowledge(self, checkpoint_id: int) -> None:
        task = self._task
        snapshot = self._running.pop(checkpoint_id)
        message = snapshot.acknowledgement()
        if task.environment.instrument is not None:
            size = message.metrics.checkpointed_bytes
            task.environment.instrument(
                SnapshotAcknowledged(task.kernel.now_ns, task.attempt, checkpoint_id, task.name, size)
            )
        task.environment.send_to_master("receive_acknowledge", message)

    def fingerprint(self) -> object:
        """The protocol's state and the snapshots under way."""
        return (
            self._protocol.fingerprint(),
            tuple((checkpoint_id, snapshot.fingerprint()) for checkpoint_id, snapshot in self._running.items()),
        )


@dataclass(slots=True)
class _Piece:
    """One backend's snapshot under way."""

    uid: str
    operator: str
    kind: str
    task: SnapshotTask[Any]
    result: SnapshotResult[Any] | None = None


@dataclass(slots=True)
class _AsyncSnapshot:
    """Synchronous part at :meth:`start`, then one step of the asynchronous part per kernel event."""

    owner: TaskCheckpointing
    task: Task
    barrier: CheckpointBarrier
    metrics: AlignmentMetrics
    sent: dict[int, int]
    received: dict[int, int]
    pieces: list[_Piece] = field(default_factory=list)
    position: int = 0
    started_ns: int = 0
    cancelled: bool = False

    @property
    def name(self) -> str:
        """For fingerprints of the kernel."""
        return f"{self.task.name}/checkpoint {self.barrier.checkpoint_id}"

    def start(self) -> None:
        """Capture all state now; write it in the events to come."""
        self.started_ns = self.task.kernel.now_ns
        try:
            for operator, context in zip(self.task.operators, self.task.contexts, strict=True):
                operator.snapshot_state(self.barrier.checkpoint_id)
                self._prepare(context.uid, context.name)
        except BaseException:
            self.cancel()
            raise
        self._schedule_step(0)

    def _prepare(self, uid: str, operator: str) -> None:
        context = next(context for context in self.task.contexts if context.uid == uid)
        checkpoint_id = self.barrier.checkpoint_id
        for kind, backend in ((KEYED, context.keyed), (OPERATOR, context.operator)):
            if backend is None:
                continue
            factory = self.task.environment.storage.location(checkpoint_id).stream_factory(
                f"{uid}-{context.subtask}-{kind}-{context.incarnation}-{context.attempt}"
            )
            try:
                resources = backend.sync_prepare_resources(checkpoint_id)
            except StateBackendError as error:
                raise _annotated(error, operator) from error
            timestamp_ns = self.barrier.timestamp_ns
            try:
                task = backend.async_snapshot(resources, checkpoint_id, timestamp_ns, factory, SnapshotOptions())
            except BaseException:
                # From here on the snapshot's task would release them; there is none.
                resources.release()
                raise
            self.pieces.append(_Piece(uid, operator, kind, task))

    def step(self, _payload: None = None) -> None:
        """One bounded piece of the asynchronous part (kernel event)."""
        if self.cancelled:
            return
        if self.position == len(self.pieces):
            self._guard(lambda: self.owner.snapshot_written(self.barrier.checkpoint_id))
            return
        piece = self.pieces[self.position]
        try:
            piece.result = piece.task.step()
        except AssertionError:
            raise
        except Exception as error:
            self.cancel()
            annotated = _annotated(error, piece.operator) if isinstance(error, StateBackendError) else error
            self._guard(lambda: self._failed(annotated))
            return
        size = 0
        if piece.result is not None:
            self.position += 1
            size = piece.result.size_bytes
        self._schedule_step(self.task.environment.cost.storage_ns(size))

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StateError):
            # State that cannot be written now could never be: no later checkpoint would succeed either.
            raise error
        self.owner.snapshot_failed(self.barrier.checkpoint_id, error)

    def _guard(self, action: Callable[[], None]) -> None:
        """Run what may reach user code; what it raises fails the task, as it would between two elements."""
        try:
            action()
        except AssertionError:
            raise
        except Exception as error:
            self.task.fail(error)

    def _schedule_step(self, delay_ns: int) -> None:
        self.task.kernel.schedule(self.task.kernel.now_ns + delay_ns, "step", self)

    def cancel(self) -> None:
        """Give up: every piece is cancelled, files written so far are deleted, resources released."""
        self.cancelled = True
        for piece in self.pieces:
            piece.task.cancel()

    def acknowledgement(self) -> Acknowledge:
        """What the coordinator gets."""
        operators = {context.uid: SubtaskSnapshot() for context in self.task.contexts}
        size = 0
        for piece in self.pieces:
            assert piece.result is not None
            size += piece.result.size_bytes
            handle, known = piece.result.job_manager_state, operators[piece.uid]
            if piece.kind == KEYED:
                operators[piece.uid] = replace(known, keyed=handle)
            else:
                operators[piece.uid] = replace(known, operator=handle)
        now = self.task.kernel.now_ns
        return Acknowledge(
            checkpoint_id=self.barrier.checkpoint_id,
            attempt=self.task.attempt,
            task=self.task.task_id,
            state=TaskSnapshot(operators, self.sent, self.received),
            metrics=SubtaskCheckpointMetrics(
                start_delay_ns=self.metrics.start_delay_ns,
                alignment_ns=self.metrics.alignment_ns,
                async_ns=now - self.started_ns,
                checkpointed_bytes=size,
                full_bytes=size,
                processed_bytes=self.metrics.bytes_processed_during_alignment,
            ),
        )

    def fingerprint(self) -> object:
        """How far the asynchronous part is."""
        return (self.barrier, self.position, self.cancelled)


def _annotated(error: StateBackendError, operator: str) -> Exception:
    if isinstance(error, StateSerializationError):
        return StateError(f"operator {operator!r}: {error}")
    return error
