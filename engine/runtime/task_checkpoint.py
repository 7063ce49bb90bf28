"""The checkpoints of one task: drives the task's checkpoint protocol and the snapshots of its operators.

On a due snapshot, in this order (barrier-handling rules; Flink: ``SubtaskCheckpointCoordinatorImpl``): the operators'
pre-barrier hook, the barrier on all outputs, the output timer, the end of the output's channel state (reserved slots
keep it open), the synchronous parts of all operators, and then the asynchronous part, one step per kernel event,
interleaved with whatever the job does meanwhile. Its last steps write the records in flight, as soon as both parts of
the channel state have ended. A failing synchronous part fails the task; a failing asynchronous part only declines the
checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from engine.checkpoint.channel_state import ChannelState, ChannelStateWriter
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.instructions import (
    AbortCheckpoint,
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelSnapshot,
    DeclineCheckpoint,
    DiscardSnapshot,
    FailTask,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    NotifyOperatorsSubsumed,
    StopTask,
    TakeSnapshot,
    TaskInstructions,
    TriggerSnapshot,
)
from engine.checkpoint.messages import Acknowledge, Decline, SubtaskCheckpointMetrics
from engine.checkpoint.options import needs_channel_state
from engine.checkpoint.task_protocol import TaskCheckpointProtocol
from engine.elements.errors import StateError, WeirError
from engine.elements.events import CancelCheckpointMarker, SavepointFormat, SnapshotKind
from engine.observe.events import SnapshotAcknowledged, SnapshotTaken
from engine.runtime.operator_coordinators import BarrierProcessed
from state_backends.channel_state import ChannelStateResources, ChannelStateSnapshotTask, RecordColumns
from state_backends.errors import StateBackendError, StateSerializationError
from state_backends.handles import OperatorStateMode
from state_backends.snapshot import SnapshotOptions, SnapshotResult, SnapshotTask, SnapshotType
from state_backends.storage import SubtaskSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine.checkpoint.instructions import AlignmentFinished, AlignmentMetrics
    from engine.elements.batch import Batch
    from engine.elements.events import CheckpointBarrier
    from engine.runtime.channel import Channel
    from engine.runtime.task import Task
    from state_backends.snapshot import StreamFactory


class ChannelStateLostError(WeirError):
    """Records in flight can no longer be stored: a later checkpoint's barrier is queued behind this one's."""

    def __init__(self, task: str, checkpoint_id: int) -> None:
        super().__init__(
            f"{task}: the barrier of a later checkpoint is queued behind that of checkpoint {checkpoint_id}, whose "
            "records in flight can therefore not be stored; one checkpoint at a time can have channel state"
        )


class StopAbortedError(WeirError):
    """The savepoint that was to stop the job was aborted, and this task has already done its part of stopping."""

    def __init__(self, task: str, checkpoint_id: int) -> None:
        super().__init__(
            f"{task}: savepoint {checkpoint_id}, with which the job was to stop, was aborted; the task cannot go on "
            "from where it has stopped, so the job goes back to its newest checkpoint"
        )


KEYED, OPERATOR, INPUT, OUTPUT = "keyed", "operator", "input_channels", "output_channels"


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """A task's part of a checkpoint.

    ``operators``  uid -> handles of its state;
    ``sent``       channel index -> records sent on it before the barrier, without those in ``operators``;
    ``received``   channel index -> records received from it before the snapshot, with those in ``operators``.

    Records in flight that were captured count as received on the input side and as not sent on the output side.
    """

    operators: dict[str, SubtaskSnapshot]
    sent: dict[int, int]
    received: dict[int, int]


class TaskCheckpointing:
    """Everything about checkpoints in one attempt of one task."""

    def __init__(self, task: Task, restored_checkpoint_id: int | None) -> None:
        self._task = task
        self.channel_state = ChannelStateWriter()
        self._protocol = TaskCheckpointProtocol(restored_checkpoint_id)
        self._running: dict[int, _AsyncSnapshot] = {}
        self._measured: tuple[int | None, SubtaskCheckpointMetrics | None] = (None, None)
        """The last snapshot that failed, and what was measured of it; for the table only."""

    def restored(self, checkpoint_id: int | None) -> None:
        """The attempt starts from this checkpoint."""
        self._protocol = TaskCheckpointProtocol(checkpoint_id)

    # -- what happens to the task -----------------------------------------------------------------------------

    def snapshot_due(self, due: TriggerSnapshot) -> None:
        """The barrier handler says that the snapshot is due: all barriers are here, or an unaligned one is."""
        checkpoint_id = due.barrier.checkpoint_id
        self._execute(self._protocol.on_snapshot_due(due.barrier, due.metrics))
        if checkpoint_id not in self._running:
            # Refused, or aborted by the coordinator before its barrier came: what was captured is not wanted.
            self.channel_state.abort(checkpoint_id)

    def alignment_finished(self, finished: AlignmentFinished) -> None:
        """All barriers of an unaligned checkpoint are here: now its numbers are known."""
        snapshot = self._running.get(finished.checkpoint_id)
        if snapshot is not None:
            snapshot.metrics = finished.metrics

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """The input part of the channel state has ended, or a slot of the output part."""
        snapshot = self._running.get(checkpoint_id)
        if snapshot is not None:
            snapshot.channel_state_changed()

    def capture_failed(self, checkpoint_id: int) -> None:
        """Not all barriers of an unaligned checkpoint will come. When its own abort is not reported (a cancel marker of
        a later one made it vanish), its snapshot is declined here, for it could never be finished."""
        snapshot = self._running.get(checkpoint_id)
        self._abandon_channel_state(checkpoint_id)
        if snapshot is not None:
            snapshot.capture_failed()

    def barrier_aborted(self, abort: AbortCheckpoint) -> None:
        """The barrier handler gave up on a checkpoint."""
        self._abandon_channel_state(abort.checkpoint_id)
        self._execute(self._protocol.on_alignment_aborted(abort.checkpoint_id, abort.reason))

    def trigger_refused(self, checkpoint_id: int, *, is_closing: bool) -> None:
        """The coordinator triggered a task that does not run yet, or not any more."""
        self._execute(self._protocol.on_trigger_refused(checkpoint_id, is_closing))

    def output_timeout(self, checkpoint_id: int) -> None:
        """The alignment timer of the outputs: barriers that still wait in them go to the front."""
        for channel in self.output_channels():
            channel.barrier_timeout(checkpoint_id)

    def notify_complete(self, checkpoint_id: int, last_subsumed_id: int) -> None:
        """The coordinator says that a checkpoint is durable."""
        self._execute(self._protocol.on_complete(checkpoint_id, last_subsumed_id))

    def notify_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """The coordinator gave up on a checkpoint."""
        self._abandon_channel_state(checkpoint_id)
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
        self._measure(checkpoint_id)
        task.environment.master.note(f"checkpoint {checkpoint_id} failed in {task.name}: {error}")
        reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
        if isinstance(error, OSError):
            reason = CheckpointFailureReason.IO_EXCEPTION
        self._execute(self._protocol.on_snapshot_failed(checkpoint_id, reason))

    def snapshot_declined(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """The asynchronous part can never end; what it wrote is deleted already."""
        self._measure(checkpoint_id)
        self._execute(self._protocol.on_snapshot_failed(checkpoint_id, reason))

    def _measure(self, checkpoint_id: int) -> None:
        """A snapshot has failed: remember what was measured until then, for the decline that follows."""
        snapshot = self._running.pop(checkpoint_id, None)
        if snapshot is not None:
            self._measured = (checkpoint_id, snapshot.measured())

    def abandon(self) -> None:
        """The task is dead or done: cancel what runs, delete what it wrote, tell nobody."""
        for snapshot in self._running.values():
            snapshot.cancel()
        self._running.clear()

    def _abandon_channel_state(self, checkpoint_id: int) -> None:
        self.channel_state.abort(checkpoint_id)
        for channel in self.output_channels():
            channel.abandon_slot(checkpoint_id)

    def output_channels(self) -> Iterator[Channel]:
        """Every channel that the task sends on."""
        for writer in self._task.writers:
            yield from writer.channels

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
                    self._decline(checkpoint_id, reason)
                case CancelSnapshot(checkpoint_id) | DiscardSnapshot(checkpoint_id):
                    self._running.pop(checkpoint_id).cancel()
                case NotifyOperatorsComplete(checkpoint_id):
                    for operator in task.operators:
                        operator.notify_checkpoint_complete(checkpoint_id)
                case NotifyOperatorsAborted(checkpoint_id):
                    for operator in task.operators:
                        operator.notify_checkpoint_aborted(checkpoint_id)
                case StopTask() | FailTask():
                    self._end_stop(instruction)
                case NotifyOperatorsSubsumed():
                    # The heap backend writes self-contained snapshots: nothing of an older one is in use.
                    pass
                case _:
                    raise AssertionError(f"unknown instruction {instruction!r}")
        if not self._running:
            task.snapshots_written()

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot that was taken is not acknowledged or given up yet."""
        return bool(self._running)

    def _end_stop(self, instruction: StopTask | FailTask) -> None:
        if isinstance(instruction, StopTask):
            self._task.stop()
        else:
            self._task.fail(StopAbortedError(self._task.name, instruction.checkpoint_id))

    def _decline(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        task, (measured_id, measured) = self._task, self._measured
        metrics = measured if measured_id == checkpoint_id else None
        message = Decline(checkpoint_id, task.attempt, task.task_id, reason, metrics=metrics)
        task.environment.send_to_master("receive_decline", message)

    def _take(self, barrier: CheckpointBarrier, metrics: AlignmentMetrics) -> None:
        task, checkpoint_id = self._task, barrier.checkpoint_id
        for operator in task.operators:
            operator.prepare_snapshot_pre_barrier(checkpoint_id)
        # The barrier leaves before the state is captured, but no record can come between the two: both happen
        # between two elements, and what the pre-barrier hook emitted is ahead of the barrier.
        sent = {channel.index: channel.sent_records for channel in self.output_channels()}
        received = {channel.index: channel.received_records for channel in task.inputs}
        options = barrier.options.with_unaligned_supported()
        # It is open already where records that come back are logged, whatever form the barrier has.
        has_state = needs_channel_state(options) or self.channel_state.is_open(checkpoint_id)
        state = self._open_channel_state(barrier) if has_state else None
        for writer in task.writers:
            writer.broadcast_barrier(barrier.with_options(options), state)
        if state is not None:
            if options.timeoutable and options.aligned_timeout_ns is not None:
                due_ns = max(task.kernel.now_ns, barrier.timestamp_ns + options.aligned_timeout_ns)
                task.kernel.schedule(due_ns, "receive_mail", task, ("output_timeout", (checkpoint_id,)))
            state.finish_output(checkpoint_id)
        snapshot = _AsyncSnapshot(self, task, barrier, metrics, sent, received, state)
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
        if any(plan.create_coordinator is not None for plan in task.vertex.operators):
            processed = BarrierProcessed(checkpoint_id, task.task_id, task.attempt)
            task.environment.send_to_master("barrier_processed", processed)
        if options.stop is not None:
            task.await_stop()

    def _open_channel_state(self, barrier: CheckpointBarrier) -> ChannelStateWriter:
        state, checkpoint_id = self.channel_state, barrier.checkpoint_id
        if not state.is_open(checkpoint_id):
            # Aligned so far: nothing of the inputs is in flight, but the outputs may still be overtaken.
            state.open(checkpoint_id)
            state.finish_input(checkpoint_id)
        return state

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
            self.channel_state.fingerprint(),
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


@dataclass(slots=True, eq=False)
class _AsyncSnapshot:
    """Synchronous part at :meth:`start`, then one step of the asynchronous part per kernel event."""

    owner: TaskCheckpointing
    task: Task
    barrier: CheckpointBarrier
    metrics: AlignmentMetrics
    sent: dict[int, int]
    received: dict[int, int]
    channel_state: ChannelStateWriter | None
    """``None`` when no record in flight can be part of this checkpoint."""
    pieces: list[_Piece] = field(default_factory=list)
    position: int = 0
    started_ns: int = 0
    sync_ended_ns: int = 0
    cancelled: bool = False
    waits: bool = False
    """Everything else is written; the channel state has not ended yet."""
    persisted_bytes: int = 0

    @property
    def name(self) -> str:
        """For fingerprints of the kernel."""
        return f"{self.task.name}/checkpoint {self.barrier.checkpoint_id}"

    def start(self) -> None:
        """Capture all state now; write it in the events to come."""
        self.started_ns = self.sync_ended_ns = self.task.kernel.now_ns
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
            factory, options = self._stream_factory(uid, kind), SnapshotOptions(_snapshot_type(self.barrier))
            strategy = backend.snapshot_strategy(options)
            try:
                resources = strategy.sync_prepare_resources(checkpoint_id)
            except StateBackendError as error:
                raise _annotated(error, operator, kind) from error
            timestamp_ns = self.barrier.timestamp_ns
            try:
                task = strategy.async_snapshot(resources, checkpoint_id, timestamp_ns, factory, options)
            except BaseException:
                # From here on the snapshot's task would release them; there is none.
                resources.release()
                raise
            self.pieces.append(_Piece(uid, operator, kind, task))

    def _stream_factory(self, uid: str, kind: str) -> StreamFactory:
        environment, subtask = self.task.environment, self.task.plan.subtask
        return environment.location(self.barrier.checkpoint_id).stream_factory(
            f"{uid}-{subtask}-{kind}-{environment.incarnation}-{environment.attempt}"
        )

    def channel_state_changed(self) -> None:
        """A part of the channel state has ended."""
        if self.waits and not self.cancelled:
            self.waits = False
            self._schedule_step(0)

    def capture_failed(self) -> None:
        """The input part of the channel state will never end: decline, unless the abort is reported at once anyway."""
        self.task.kernel.schedule(self.task.kernel.now_ns, "decline_lost_capture", self)

    def decline_lost_capture(self, _payload: None = None) -> None:
        """See :meth:`capture_failed` (kernel event)."""
        if not self.cancelled:
            self.cancel()
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
            self._guard(lambda: self.owner.snapshot_declined(self.barrier.checkpoint_id, reason))

    def _take_channel_state(self) -> bool:
        """Once all parts of the channel state have ended: append what writes it. Returns whether it has ended."""
        assert self.channel_state is not None
        checkpoint_id = self.barrier.checkpoint_id
        if not self.channel_state.is_complete(checkpoint_id):
            return False
        state, self.channel_state = self.channel_state.take(checkpoint_id), None
        self._count_captured(state)
        head = self.task.contexts[0].uid
        for kind, channels, captured in (
            (INPUT, self.task.inputs, state.inputs),
            (OUTPUT, self.owner.output_channels(), state.outputs),
        ):
            named = [
                (self.task.environment.channel_name(channel.plan), list(map(_columns, captured[channel.index])))
                for channel in channels
                if captured.get(channel.index)
            ]
            if named:
                resources = ChannelStateResources(named)
                writing = ChannelStateSnapshotTask(resources, self._stream_factory(head, kind))
                self.pieces.append(_Piece(head, self.task.contexts[0].name, kind, writing))
        return True

    def _count_captured(self, state: ChannelState) -> None:
        # See TaskSnapshot: what is stored is behind the receiver's cut, and not yet behind the sender's.
        for channel in state.inputs:
            self.received[channel] += state.input_records(channel)
        for channel in state.outputs:
            self.sent[channel] -= state.output_records(channel)

    def step(self, _payload: None = None) -> None:
        """One bounded piece of the asynchronous part (kernel event)."""
        if self.cancelled:
            return
        if self.position == len(self.pieces) and self.channel_state is not None:
            if self.channel_state.is_failed(self.barrier.checkpoint_id):
                self.cancel()
                self._guard(lambda: self._failed(ChannelStateLostError(self.task.name, self.barrier.checkpoint_id)))
                return
            if not self._take_channel_state():
                self.waits = True
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
            annotated = _annotated(error, piece.operator, piece.kind) if isinstance(error, StateBackendError) else error
            self._guard(lambda: self._failed(annotated))
            return
        size = 0
        if piece.result is not None:
            self.position += 1
            size = piece.result.persisted_bytes
            if piece.kind in (INPUT, OUTPUT):
                self.persisted_bytes += size
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
        if self.channel_state is not None:
            self.channel_state.abort(self.barrier.checkpoint_id)
        for piece in self.pieces:
            piece.task.cancel()

    def acknowledgement(self) -> Acknowledge:
        """What the coordinator gets."""
        operators = {context.uid: SubtaskSnapshot() for context in self.task.contexts}
        for piece in self.pieces:
            assert piece.result is not None
            parts: dict[str, Any] = {piece.kind: piece.result.job_manager_state}
            operators[piece.uid] = replace(operators[piece.uid], **parts)
        return Acknowledge(
            checkpoint_id=self.barrier.checkpoint_id,
            attempt=self.task.attempt,
            task=self.task.task_id,
            state=TaskSnapshot(operators, self.sent, self.received),
            metrics=self.measured(),
            uses_union_state=any(_has_union_state(snapshot) for snapshot in operators.values()),
        )

    def measured(self) -> SubtaskCheckpointMetrics:
        """The numbers of the snapshot, as far as it has come."""
        results = [piece.result for piece in self.pieces if piece.result is not None]
        return SubtaskCheckpointMetrics(
            start_delay_ns=self.metrics.start_delay_ns,
            alignment_ns=self.metrics.alignment_ns,
            sync_ns=self.sync_ended_ns - self.started_ns,
            async_ns=self.task.kernel.now_ns - self.sync_ended_ns,
            checkpointed_bytes=sum(result.persisted_bytes for result in results),
            full_bytes=sum(result.size_bytes for result in results),
            processed_bytes=self.metrics.bytes_processed_during_alignment,
            persisted_bytes=self.persisted_bytes,
            is_unaligned=self.barrier.is_priority,
        )

    def fingerprint(self) -> object:
        """How far the asynchronous part is."""
        return (self.barrier, self.position, self.cancelled, self.waits, self.channel_state is None)


def _snapshot_type(barrier: CheckpointBarrier) -> SnapshotType:
    kind = barrier.options.kind
    if kind is SnapshotKind.SAVEPOINT:
        is_native = barrier.options.savepoint_format is SavepointFormat.NATIVE
        return SnapshotType.NATIVE_SAVEPOINT if is_native else SnapshotType.CANONICAL_SAVEPOINT
    return SnapshotType.FULL_CHECKPOINT if kind is SnapshotKind.FULL_CHECKPOINT else SnapshotType.CHECKPOINT


def _has_union_state(snapshot: SubtaskSnapshot) -> bool:
    states = {} if snapshot.operator is None else snapshot.operator.states
    return any(one.mode is OperatorStateMode.UNION for one in states.values())


def _columns(batch: Batch) -> RecordColumns:
    return RecordColumns(batch.values, batch.timestamps, batch.keys)


def _annotated(error: StateBackendError, operator: str, kind: str) -> Exception:
    if not isinstance(error, StateSerializationError):
        return error
    text = f"operator {operator!r}: {error}"
    if kind in (INPUT, OUTPUT):
        text += "\n  in mode aligned no record in flight has to be written, unless it goes round a loop"
    return StateError(text)
