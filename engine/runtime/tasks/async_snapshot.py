"""One snapshot of one task: the synchronous part at once, then the asynchronous part, one step per kernel event.

The synchronous part takes the time that operators spend in ``snapshot_state``; the asynchronous one begins after it. A
step takes the time that its writes need to reach checkpoint storage: the latency once per file, in the step that begins
the file, and the time of its bytes. State small enough to travel inside the acknowledgement is in no file and takes no
time. The last steps write the records in flight, as soon as both parts of the channel state have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVarTuple

from engine.checkpoint.barriers import AlignmentMetrics, barrier_fingerprint
from engine.checkpoint.coordinator import Acknowledge, SharedState, SubtaskCheckpointMetrics
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.subtask import ChannelState, ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.errors import StateError, WeirError
from engine.elements.events import CheckpointBarrier, SavepointFormat, SnapshotKind
from engine.observe import provenance
from engine.runtime.channels import Channel
from engine.runtime.storage import TaskSnapshot
from engine.runtime.tasks.environment import TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_context import TaskOperatorContext
from state_backends.base import StateBackendError, StateSerializationError
from state_backends.local import LocalSnapshot
from state_backends.snapshots import (
    ChannelStateResources,
    ChannelStateSnapshotTask,
    CheckpointLocation,
    FsStreamFactory,
    IncrementalKeyedStateHandle,
    OperatorStateMode,
    RecordColumns,
    SnapshotOptions,
    SnapshotResult,
    SnapshotTask,
    SnapshotType,
    SubtaskSnapshot,
)

if TYPE_CHECKING:
    from engine.runtime.tasks.task_checkpoint import TaskCheckpointing
    from engine.runtime.tasks.task_life import TaskLife


class ChannelStateLostError(WeirError):
    """Records in flight can no longer be stored: a later checkpoint's barrier is queued after this one's."""

    def __init__(self, task: str, checkpoint_id: int) -> None:
        super().__init__(
            f"{task}: the barrier of a later checkpoint is queued behind that of checkpoint {checkpoint_id}, whose "
            "records in flight can therefore not be stored; one checkpoint at a time can have channel state"
        )


_Ts = TypeVarTuple("_Ts")
_new_tuple = tuple.__new__

KEYED, OPERATOR, INPUT, OUTPUT = "keyed", "operator", "input_channels", "output_channels"


@dataclass(slots=True)
class _Piece:
    """One backend's snapshot under way."""

    uid: str
    operator: str
    kind: str
    task: SnapshotTask[Any]
    streams: FsStreamFactory
    in_flight_bytes: int = 0
    """The size of the records in flight in it."""
    result: SnapshotResult[Any] | None = None


class WorkingTask(Protocol):
    """The task that takes the snapshot."""

    life: TaskLife
    records_out: int

    @property
    def busy_until_ns(self) -> int:
        """The end of the time that its operators have spent so far."""

    def spend(self, virtual_ns: int) -> None:
        """The last step of the task takes so long."""


@dataclass(slots=True, eq=False)
class AsyncSnapshot:
    """Synchronous part at :meth:`start`, then one step of the asynchronous part per kernel event."""

    owner: TaskCheckpointing
    task: WorkingTask
    place: TaskPlace
    chain: OperatorChain
    inputs: Sequence[Channel]
    barrier: CheckpointBarrier
    metrics: AlignmentMetrics
    sent: dict[int, int]
    received: dict[int, int]
    channel_state: ChannelStateWriter | None
    """``None`` when no record in flight can be part of this checkpoint."""
    location: CheckpointLocation = field(init=False)
    """Where its files go."""
    pieces: list[_Piece] = field(default_factory=list)
    read: int = 0
    position: int = 0
    started_ns: int = 0
    sync_ended_ns: int = 0
    cancelled: bool = False
    waits: bool = False
    """Everything else is written; the channel state has not ended yet."""
    steps: int = 0
    """Steps that the pieces have taken together."""
    persisted_bytes: int = 0
    """The size of the records in flight that were written."""
    local: LocalSnapshot | None = None
    """The copy that is kept beside the task, if there is one."""

    @property
    def name(self) -> str:
        """For fingerprints of the kernel."""
        return f"{self.place.name}/checkpoint {self.barrier.checkpoint_id}"

    def start(self) -> None:
        """Capture all state now; write it in the events to come."""
        recovery, environment = self.owner.local, self.place.environment
        self.location = environment.location(self.barrier.checkpoint_id)
        if recovery is not None and self.barrier.options.kind is not _SAVEPOINT:
            unique = f"{environment.incarnation}-{environment.attempt}"
            self.local = recovery.snapshot(self.barrier.checkpoint_id, unique, self.location.reader())
        self.started_ns = self.sync_ended_ns = self.task.busy_until_ns
        self.read = self.task.records_out
        try:
            # At once: no record comes between the barrier that went on and this (mutant "barrier before state").
            for operator, context in zip(self.chain.operators, self.chain.contexts, strict=True):
                with self.place.around("user.snapshot", operator):
                    operator.snapshot_state(self.barrier.checkpoint_id)
                self._prepare(context)
        except Exception:
            # Clean up after errors only: any other exception is a death, and a dead process cleans up nothing.
            self.cancel()
            raise
        if self.chain.watched is not None:
            self.chain.watched.provenance.snapshot(self.barrier.checkpoint_id)
        sync_ns = self.place.environment.cost.sync_ns
        if sync_ns:
            self.task.spend(sync_ns)
        self.sync_ended_ns = self.task.busy_until_ns
        self._schedule_step(self.sync_ended_ns - self.place.kernel.now_ns)

    def _prepare(self, context: TaskOperatorContext) -> None:
        uid, operator, checkpoint_id = context.uid, context.name, self.barrier.checkpoint_id
        options = _options(self.barrier, self.place.environment.snapshot_compression)
        for kind, backend in ((KEYED, context.keyed), (OPERATOR, context.operator)):
            if backend is None:
                continue
            streams = self._stream_factory(uid, kind)
            strategy = backend.snapshot_strategy(options)
            factory = streams if self.local is None else self.local.streams(uid, kind, streams, strategy)
            try:
                resources = strategy.sync_prepare_resources(checkpoint_id)
            except StateBackendError as error:
                raise _annotated(error, operator, kind) from error
            try:
                task = strategy.async_snapshot(resources, factory, options)
            except BaseException:
                # From here on the snapshot's task would release them, but there is no such task.
                resources.release()
                raise
            self.pieces.append(_Piece(uid, operator, kind, task, streams))

    def _stream_factory(self, uid: str, kind: str) -> FsStreamFactory:
        place, checkpoint_id = self.place, self.barrier.checkpoint_id
        environment, subtask = place.environment, place.plan.subtask
        # With the number of the checkpoint: files in the shared scope of all checkpoints lie side by side.
        unique = f"{uid}-{subtask}-{kind}-{environment.incarnation}-{environment.attempt}-{checkpoint_id}"
        return self.location.stream_factory(unique)

    def channel_state_changed(self) -> None:
        """A part of the channel state has ended."""
        if self.waits and not self.cancelled:
            self.waits = False
            self._schedule_step(0)

    def capture_failed(self) -> None:
        """The input part of the channel state will never end: decline, unless the abort is reported at once anyway."""
        self.place.kernel.schedule(self.place.kernel.now_ns, "decline_lost_capture", self)

    def decline_lost_capture(self, _payload: None = None) -> None:
        """See :meth:`capture_failed` (kernel event)."""
        if not self.cancelled:
            self.cancel()
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
            self._guard(self.owner.snapshot_declined, self.barrier.checkpoint_id, reason)

    def _take_channel_state(self) -> bool:
        """Once all parts of the channel state have ended: append steps that write it. Returns whether it has ended."""
        assert self.channel_state is not None
        checkpoint_id = self.barrier.checkpoint_id
        if not self.channel_state.is_complete(checkpoint_id):
            return False
        state, self.channel_state = self.channel_state.take(checkpoint_id), None
        self._count_captured(state)
        watched = self.chain.watched
        if watched is not None:
            watched.stored(checkpoint_id, provenance.INPUT, self.inputs, state.inputs)
            watched.stored(checkpoint_id, provenance.OUTPUT, self.owner.output_channels(), state.outputs)
        head, bytes_of = self.chain.contexts[0].uid, self.place.environment.cost.bytes_of
        for kind, channels, captured in (
            (INPUT, self.inputs, state.inputs),
            (OUTPUT, self.owner.output_channels(), state.outputs),
        ):
            if not captured:
                continue
            named = [
                (self.place.environment.channel_name(channel.plan), list(map(_columns, captured[channel.index])))
                for channel in channels
                if captured.get(channel.index)
            ]
            if named:
                factory = self._stream_factory(head, kind)
                writing = ChannelStateSnapshotTask(ChannelStateResources(named), factory)
                size = sum(bytes_of(batch) for batches in captured.values() for batch in batches)
                self.pieces.append(_Piece(head, self.chain.contexts[0].name, kind, writing, factory, size))
        return True

    def _count_captured(self, state: ChannelState) -> None:
        if self.place.environment.instrument is None:
            return
        # See TaskSnapshot: stored records are after the receiver's cut, and not yet after the sender's.
        for channel in state.inputs:
            self.received[channel] += state.input_records(channel)
        for channel in state.outputs:
            self.sent[channel] -= state.output_records(channel)

    def step(self, _payload: None = None) -> None:
        """One bounded piece of the asynchronous part (kernel event)."""
        place = self.place
        if self.cancelled:
            return
        if place.hook is None:
            self._step()
        elif place.hook.pause is None or place.hook.may("step", target=self):
            with place.around("snapshot.async.step"):
                self._step()

    def _step(self) -> None:
        if self.position == len(self.pieces) and self.channel_state is not None:
            if self.channel_state.is_failed(self.barrier.checkpoint_id):
                self.cancel()
                self._guard(self._failed, ChannelStateLostError(self.place.name, self.barrier.checkpoint_id))
                return
            if not self._take_channel_state():
                self.waits = True
                return
        if self.position == len(self.pieces):
            self._guard(self.owner.snapshot_written, self.barrier.checkpoint_id)
            return
        piece = self.pieces[self.position]
        try:
            self.steps += 1
            piece.result = piece.task.step()
        except AssertionError:
            raise
        except Exception as error:
            self.cancel()
            annotated = _annotated(error, piece.operator, piece.kind) if isinstance(error, StateBackendError) else error
            self._guard(self._failed, annotated)
            return
        if piece.result is not None:
            self.position += 1
            if piece.kind in (INPUT, OUTPUT):
                self.persisted_bytes += piece.in_flight_bytes
            elif self.local is not None:
                piece.result = self.local.finished(piece.uid, piece.kind, piece.result)
        environment, written = self.place.environment, piece.streams.written.take()
        times = environment.storage_times
        if times is None:
            self._schedule_step(environment.cost.storage_ns(*written))
        else:
            self._schedule_step(times.write_ns(self.place.kernel.now_ns, *written))

    def storage_failed(self, error: Exception) -> None:
        """Storage has failed while the snapshot is being written."""
        if not self.cancelled:
            self.cancel()
            self._guard(self._failed, error)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StateError):
            # State that cannot be written now cannot be written later: no later checkpoint would succeed either.
            raise error
        self.owner.snapshot_failed(self.barrier.checkpoint_id, error)

    def _guard(self, action: Callable[[*_Ts], None], *arguments: *_Ts) -> None:
        """Run an action that may reach user code; an error in it fails the task, as it would between two elements."""
        try:
            action(*arguments)
        except AssertionError:
            raise
        except Exception as error:
            self.task.life.fail(error)

    def _schedule_step(self, delay_ns: int) -> None:
        self.place.kernel.schedule(self.place.kernel.now_ns + delay_ns, "step", self)

    def cancel(self) -> None:
        """Give up: every piece is cancelled, files written so far are deleted, resources released."""
        self.cancelled = True
        if self.channel_state is not None:
            self.channel_state.abort(self.barrier.checkpoint_id)
        for piece in self.pieces:
            piece.task.cancel()
            if piece.result is not None:
                self._discard_uploads(piece.result.job_manager_state)
        if self.local is not None:
            self.local.discard()

    def _discard_uploads(self, handle: object) -> None:
        """Delete the shared files of a finished part: no registry knows them. Private ones are deleted with the
        directory of the checkpoint. (A log of changes sends its files again, under their old names.)"""
        environment = self.place.environment
        if isinstance(handle, IncrementalKeyedStateHandle):
            for file, is_new in handle.shared():
                try:
                    if is_new:
                        environment.storage.delete_shared(file)
                except OSError as error:
                    environment.master.note(f"{file.path} of {self.name} could not be deleted: {error}")

    def acknowledgement(self) -> Acknowledge:
        """The task's message to the coordinator."""
        if self.local is not None:
            self.local.store()
        parts: dict[str, dict[str, Any]] = {context.uid: {} for context in self.chain.contexts}
        for piece in self.pieces:
            assert piece.result is not None
            parts[piece.uid][piece.kind] = piece.result.job_manager_state
        operators = {uid: SubtaskSnapshot(**mine) if mine else _NO_STATE for uid, mine in parts.items()}
        place, checkpoint_id = self.place, self.barrier.checkpoint_id
        return Acknowledge(
            checkpoint_id=checkpoint_id,
            attempt=place.attempt,
            task=place.task_id,
            state=TaskSnapshot(operators, self.sent, self.received, self.read),
            metrics=self.measured(),
            shared=shared_state(operators, place.plan.subtask, checkpoint_id),
            uses_union_state=_have_union_state(operators.values()),
        )

    def measured(self) -> SubtaskCheckpointMetrics:
        """The numbers of the snapshot, as far as it has come."""
        persisted = full = 0
        for piece in self.pieces:
            handle = None if piece.result is None else piece.result.job_manager_state
            if handle is not None:
                persisted += handle.persisted_bytes
                full += handle.size_bytes
        place, metrics = self.place, self.metrics
        return SubtaskCheckpointMetrics(
            start_delay_ns=metrics.start_delay_ns,
            alignment_ns=metrics.alignment_ns,
            sync_ns=self.sync_ended_ns - self.started_ns,
            async_ns=max(0, place.kernel.now_ns - self.sync_ended_ns),
            checkpointed_bytes=place.environment.cost.virtual_bytes(persisted),
            full_bytes=place.environment.cost.virtual_bytes(full),
            processed_bytes=metrics.bytes_processed_during_alignment,
            persisted_bytes=self.persisted_bytes,
        )

    def fingerprint(self) -> object:
        """How far the asynchronous part has come."""
        barrier = barrier_fingerprint(self.barrier)
        return (barrier, self.position, self.steps, self.cancelled, self.waits, self.channel_state is None)


_NO_STATE = SubtaskSnapshot()
_UNION = OperatorStateMode.UNION
_CHECKPOINT, _SAVEPOINT = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT


def _options(barrier: CheckpointBarrier, compression: str) -> SnapshotOptions:
    if barrier.options.kind is _CHECKPOINT:
        return _of_a_checkpoint(compression)
    return SnapshotOptions(_snapshot_type(barrier), compression)


@cache
def _of_a_checkpoint(compression: str) -> SnapshotOptions:
    return SnapshotOptions(SnapshotType.CHECKPOINT, compression)


def _snapshot_type(barrier: CheckpointBarrier) -> SnapshotType:
    kind = barrier.options.kind
    if kind is _SAVEPOINT:
        is_native = barrier.options.savepoint_format is SavepointFormat.NATIVE
        return SnapshotType.NATIVE_SAVEPOINT if is_native else SnapshotType.CANONICAL_SAVEPOINT
    return SnapshotType.FULL_CHECKPOINT if kind is SnapshotKind.FULL_CHECKPOINT else SnapshotType.CHECKPOINT


def shared_state(operators: Mapping[str, SubtaskSnapshot], subtask: int, checkpoint_id: int) -> tuple[SharedState, ...]:
    """The report of one task on its shared state, by uid of its operators: files that its snapshot has uploaded with
    their handles, all others as placeholders."""
    told: list[SharedState] = []
    for uid, snapshot in operators.items():
        if snapshot.keyed is not None:
            told.append(SharedState.marker(uid, subtask, checkpoint_id))
            for file, is_new in snapshot.keyed.shared():
                told.append(SharedState(file.path, file if is_new else None))
    return tuple(told)


def _have_union_state(snapshots: Iterable[SubtaskSnapshot]) -> bool:
    for snapshot in snapshots:
        if snapshot.operator is not None:
            for one in snapshot.operator.states.values():
                if one.mode is _UNION:
                    return True
    return False


def _columns(batch: Batch) -> RecordColumns:
    # Written out: half as long as calling the class, and a checkpoint may hold thousands.
    return _new_tuple(RecordColumns, (batch.values, batch.timestamps, batch.keys))


def _annotated(error: StateBackendError, operator: str, kind: str) -> Exception:
    if not isinstance(error, StateSerializationError):
        return error
    text = f"operator {operator!r}: {error}"
    if kind in (INPUT, OUTPUT):
        text += "\n  in mode aligned no record in flight has to be written, unless it goes round a loop"
    return StateError(text)
