"""The checkpoints of one task: drives the task's checkpoint protocol and the snapshots of its operators.

On a due snapshot, in this order (barrier-handling rules; Flink: ``SubtaskCheckpointCoordinatorImpl``): the operators'
pre-barrier hook, the barrier on all outputs, the output timer, the end of the output's channel state (reserved slots
keep it open), the synchronous parts of all operators, and then the asynchronous part, one step per kernel event,
interleaved with other events of the job. Its last steps write the records in flight, as soon as both parts of
the channel state have ended. A failing synchronous part fails the task; a failing asynchronous part only declines the
checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from engine.checkpoint.barriers import AbortCheckpoint, AlignmentFinished, AlignmentMetrics, TriggerSnapshot
from engine.checkpoint.coordinator import Decline, SubtaskCheckpointMetrics
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.subtask import (
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelSnapshot,
    ChannelStateWriter,
    DeclineCheckpoint,
    DiscardSnapshot,
    FailTask,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    NotifyOperatorsSubsumed,
    StopTask,
    TakeSnapshot,
    TaskCheckpointProtocol,
    TaskInstructions,
)
from engine.elements.errors import WeirError
from engine.elements.events import CancelCheckpointMarker, CheckpointBarrier
from engine.elements.operator import Operator
from engine.observe.trace_events import SnapshotAcknowledged, SnapshotTaken
from engine.runtime.channels import Channel, RecordWriter
from engine.runtime.storage import local_state_name
from engine.runtime.tasks.async_snapshot import AsyncSnapshot, WorkingTask
from engine.runtime.tasks.environment import BarrierProcessed, TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from state_backends.local import TaskLocalRecovery

if TYPE_CHECKING:
    from engine.runtime.tasks.task_end import TaskEnd

_POINTS = {NotifyOperatorsComplete: "sink.commit", NotifyOperatorsAborted: "sink.abort", NotifyOperatorsSubsumed: None}
"""The point at which a task tells its operators; only sinks commit and abort, other operators just hear of it."""


class StopAbortedError(WeirError):
    """The savepoint that was to stop the job was aborted, and this task has already done its part of stopping."""

    def __init__(self, task: str, checkpoint_id: int) -> None:
        super().__init__(
            f"{task}: savepoint {checkpoint_id}, with which the job was to stop, was aborted; the task cannot go on "
            "from where it has stopped, so the job goes back to its newest checkpoint"
        )


class CheckpointedTask(WorkingTask, Protocol):
    """The task that takes the checkpoints, and the mail about them."""

    @property
    def end(self) -> TaskEnd:
        """Everything it waits for before it ends."""


class TaskCheckpointing:
    """Everything about checkpoints in one attempt of one task."""

    def __init__(
        self,
        task: CheckpointedTask,
        place: TaskPlace,
        chain: OperatorChain,
        inputs: Sequence[Channel],
        writers: Sequence[RecordWriter],
    ) -> None:
        self._task = task
        self._place = place
        self._chain = chain
        self._input_channels = inputs
        self._writers = writers
        self.channel_state = ChannelStateWriter()
        self._protocol = TaskCheckpointProtocol(None)
        self.local: TaskLocalRecovery | None = None
        """The copies of this task's state that are kept beside it, if there are any."""
        self._running: dict[int, AsyncSnapshot] = {}
        self._measured: tuple[int | None, SubtaskCheckpointMetrics | None] = (None, None)
        """The last snapshot that failed, and its measurements; for the table only."""

    def restored(self, checkpoint_id: int | None) -> None:
        """The attempt starts from this checkpoint."""
        if checkpoint_id is not None:
            self._protocol = TaskCheckpointProtocol(checkpoint_id)
        place = self._place
        stores = place.environment.local.stores
        if stores is not None:
            self.local = stores.for_task(local_state_name(place.plan, place.vertex))
            self.local.restoring(checkpoint_id)

    # -- events of the task -----------------------------------------------------------------------------------

    def snapshot_due(self, due: TriggerSnapshot) -> None:
        """The barrier handler says that the snapshot is due: all barriers are here, or an unaligned one is."""
        checkpoint_id = due.barrier.checkpoint_id
        self._execute(self._protocol.on_snapshot_due(due.barrier, due.metrics))
        if checkpoint_id not in self._running:
            # Refused, or aborted by the coordinator before its barrier came: the captured records are not wanted.
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

    def storage_failed(self, error: Exception) -> None:
        """Checkpoint storage has failed: snapshots that are being written do, too."""
        for snapshot in list(self._running.values()):
            snapshot.storage_failed(error)

    def capture_failed(self, checkpoint_id: int) -> None:
        """Not all barriers of an unaligned checkpoint will come. When its own abort is not reported (a cancel marker of
        a later one made it vanish), its snapshot is declined here, because it could never be finished."""
        snapshot = self._running.get(checkpoint_id)
        self._abandon_channel_state(checkpoint_id)
        if snapshot is not None:
            snapshot.capture_failed()

    def input_recovered(self) -> None:
        """The task has read all restored records in flight."""
        self._place.environment.master.task_recovered(self._task.life)

    def arm_alignment_timer(self, checkpoint_id: int, at_ns: int) -> None:
        """The alignment of a checkpoint may take until ``at_ns``."""
        kernel = self._place.kernel
        kernel.schedule(max(at_ns, kernel.now_ns), "receive_mail", self._task, ("alignment_timeout", (checkpoint_id,)))

    def barrier_aborted(self, abort: AbortCheckpoint) -> None:
        """The barrier handler gave up on a checkpoint."""
        self._abandon_channel_state(abort.checkpoint_id)
        self._execute(self._protocol.on_alignment_aborted(abort.checkpoint_id, abort.reason))

    def trigger_refused(self, checkpoint_id: int, *, is_closing: bool) -> None:
        """The coordinator triggered a task that does not run yet, or does not run any more."""
        self._execute(self._protocol.on_trigger_refused(checkpoint_id, is_closing))

    def output_timeout(self, checkpoint_id: int) -> None:
        """The alignment timer of the outputs: barriers that still wait in them go to the front."""
        for channel in self.output_channels():
            channel.barrier_timeout(checkpoint_id)

    def notify_checkpoint_complete(self, checkpoint_id: int, last_subsumed_id: int) -> None:
        """The coordinator says that a checkpoint is durable (mail)."""
        self._execute(self._protocol.on_complete(checkpoint_id, last_subsumed_id))
        if self._task.end.waits_to_finish:
            self._task.end.finish()

    def notify_stop_complete(self, checkpoint_id: int, last_subsumed_id: int) -> None:
        """The savepoint with which the job stops is durable (mail). The coordinator repeats this until it is heard."""
        self.notify_checkpoint_complete(checkpoint_id, last_subsumed_id)

    def confirm(self, checkpoint_id: int) -> None:
        """This checkpoint, or a newer one, is durable; does nothing if that is known."""
        instructions = self._protocol.on_complete(checkpoint_id)
        if instructions:
            self._execute(instructions)

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed_id: int) -> None:
        """The coordinator says that a checkpoint will never complete (mail)."""
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
        """The asynchronous part failed; its files are deleted already."""
        place = self._place
        place.environment.master.note(f"checkpoint {checkpoint_id} failed in {place.name}: {error}")
        reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
        if isinstance(error, OSError):
            reason = CheckpointFailureReason.IO_EXCEPTION
        self.snapshot_declined(checkpoint_id, reason)

    def snapshot_declined(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """The asynchronous part can never end; its files are deleted already."""
        snapshot = self._running.pop(checkpoint_id, None)
        if snapshot is not None:
            # For the decline that follows.
            self._measured = (checkpoint_id, snapshot.measured())
        self._execute(self._protocol.on_snapshot_failed(checkpoint_id, reason))

    def abandon(self) -> None:
        """The task is dead or done: cancel running snapshots, delete their files, report nothing."""
        for snapshot in self._running.values():
            snapshot.cancel()
        self._running.clear()

    def perish(self) -> None:
        """The process of the task is gone: running snapshots end, and their files are not cleaned up."""
        for snapshot in self._running.values():
            snapshot.cancelled = True
        self._running.clear()

    def _abandon_channel_state(self, checkpoint_id: int) -> None:
        self.channel_state.abort(checkpoint_id)
        for channel in self.output_channels():
            channel.abandon_slot(checkpoint_id)

    def output_channels(self) -> Iterator[Channel]:
        """Every channel that the task sends on."""
        for writer in self._writers:
            yield from writer.channels

    # -- instructions of the protocol -------------------------------------------------------------------------

    def _execute(self, instructions: TaskInstructions) -> None:
        end = self._task.end
        for instruction in instructions:
            match instruction:
                case TakeSnapshot(barrier, metrics):
                    self._take(barrier, metrics)
                case BroadcastCancelMarker(checkpoint_id):
                    for writer in self._writers:
                        writer.broadcast(CancelCheckpointMarker(checkpoint_id))
                case AcknowledgeCheckpoint(checkpoint_id):
                    self._acknowledge(checkpoint_id)
                case DeclineCheckpoint(checkpoint_id, reason):
                    self._decline(checkpoint_id, reason)
                case CancelSnapshot(checkpoint_id) | DiscardSnapshot(checkpoint_id):
                    self._running.pop(checkpoint_id).cancel()
                case NotifyOperatorsComplete() | NotifyOperatorsAborted() | NotifyOperatorsSubsumed():
                    self.notify_rest(instruction)
                case StopTask() | FailTask():
                    self._end_stop(instruction)
                case _:
                    raise AssertionError(f"unknown instruction {instruction!r}")
        if end.is_closing and not self._running:
            end.finish()

    def notify_rest(
        self, instruction: NotifyOperatorsComplete | NotifyOperatorsAborted | NotifyOperatorsSubsumed, first: int = 0
    ) -> None:
        """Tell operator by operator from the ``first`` on, each after its state backend (Flink:
        ``AbstractUdfStreamOperator``). A pause may put off the rest (mail)."""
        checkpoint_id, local = instruction.checkpoint_id, self.local
        if local is not None and not first:
            if isinstance(instruction, NotifyOperatorsComplete):
                local.confirm(checkpoint_id)
            elif isinstance(instruction, NotifyOperatorsAborted):
                local.abort(checkpoint_id)
        chain, around = self._chain, self._place.around
        for position in range(first, len(chain.operators)):
            operator, keyed = chain.operators[position], chain.contexts[position].keyed
            # Without a history no snapshot of the backend builds on an earlier one.
            history = None if keyed is None else keyed.history
            with around(_POINTS[type(instruction)], operator, ("notify_rest", (instruction, position))) as goes_on:
                if not goes_on:
                    return
                match instruction:
                    case NotifyOperatorsComplete():
                        if history is not None:
                            history.complete(checkpoint_id)
                        operator.notify_checkpoint_complete(checkpoint_id)
                    case NotifyOperatorsAborted():
                        if history is not None:
                            history.abort(checkpoint_id)
                        operator.notify_checkpoint_aborted(checkpoint_id)
                    case NotifyOperatorsSubsumed():
                        if history is not None:
                            history.subsumed(checkpoint_id)

    @property
    def running_ids(self) -> tuple[int, ...]:
        """Checkpoints of which a snapshot is being written."""
        return tuple(self._running)

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot that was taken is not acknowledged or given up yet."""
        return bool(self._running)

    def _end_stop(self, instruction: StopTask | FailTask) -> None:
        if isinstance(instruction, StopTask):
            self._task.end.stop()
        else:
            self._task.life.fail(StopAbortedError(self._place.name, instruction.checkpoint_id))

    def _decline(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        place, (measured_id, measured) = self._place, self._measured
        metrics = measured if measured_id == checkpoint_id else None
        message = Decline(checkpoint_id, place.attempt, place.task_id, reason, metrics=metrics)
        place.environment.post.to_master(place.name, "receive_decline", message)

    def _take(self, barrier: CheckpointBarrier, metrics: AlignmentMetrics) -> None:
        place, checkpoint_id = self._place, barrier.checkpoint_id
        for operator in self._chain.operators:
            if type(operator).prepare_snapshot_pre_barrier is not Operator.prepare_snapshot_pre_barrier:
                with place.around("operator.prepare"):
                    operator.prepare_snapshot_pre_barrier(checkpoint_id)
        # The barrier leaves before the state is captured, but no record can come between the two: both happen
        # between two elements, and records emitted by the pre-barrier hook are before the barrier.
        instrument = place.environment.instrument
        sent: dict[int, int] = {}
        received: dict[int, int] = {}
        if instrument is not None:
            # Only the trace of a cut asks for them.
            sent = {channel.index: channel.sent_records for writer in self._writers for channel in writer.channels}
            received = {channel.index: channel.received_records for channel in self._input_channels}
        options = barrier.options
        # It is open already when records that come back are logged, whatever form the barrier has.
        has_state = options.needs_channel_state or checkpoint_id in self.channel_state.collecting
        state = self._open_channel_state(barrier) if has_state else None
        with place.around("barrier.forward"):
            for writer in self._writers:
                if writer.supports_unaligned:
                    form, overtaken = barrier, state
                else:
                    form, overtaken = barrier.with_options(options.with_unaligned_unsupported()), None
                for channel in writer.channels:
                    channel.put_barrier(form, overtaken)
        if state is not None:
            if options.timeoutable and options.aligned_timeout_ns is not None:
                due_ns = max(place.kernel.now_ns, barrier.timestamp_ns + options.aligned_timeout_ns)
                place.kernel.schedule(due_ns, "receive_mail", self._task, ("output_timeout", (checkpoint_id,)))
            state.finish_output(checkpoint_id)
        snapshot = AsyncSnapshot(
            self, self._task, place, self._chain, self._input_channels, barrier, metrics, sent, received, state
        )
        self._running[checkpoint_id] = snapshot
        if instrument is not None:
            now = place.kernel.now_ns
            instrument(
                SnapshotTaken(
                    now, place.attempt, checkpoint_id, place.name, metrics.alignment_ns, metrics.start_delay_ns
                )
            )
        with place.around("snapshot.sync"):
            snapshot.start()
        if place.vertex.has_coordinators:
            processed = BarrierProcessed(checkpoint_id, place.task_id, place.attempt)
            place.environment.post.to_master(place.name, "barrier_processed", processed)
        if options.stop is not None:
            self._task.end.await_stop()

    def _open_channel_state(self, barrier: CheckpointBarrier) -> ChannelStateWriter:
        state, checkpoint_id = self.channel_state, barrier.checkpoint_id
        if checkpoint_id not in state.collecting:
            # Aligned so far: no input record is in flight, but the outputs may still be overtaken.
            state.open(checkpoint_id)
            state.finish_input(checkpoint_id)
        return state

    def acknowledge_late(self, checkpoint_id: int) -> None:
        """Acknowledge after a pause, if the snapshot is still wanted."""
        if checkpoint_id in self._running:
            self._acknowledge(checkpoint_id)
            if self._task.end.is_closing and not self._running:
                self._task.end.finish()

    def _acknowledge(self, checkpoint_id: int) -> None:
        place = self._place
        with place.around("ack.send", rest=("acknowledge_late", (checkpoint_id,))) as goes_on:
            if not goes_on:
                return
            snapshot = self._running.pop(checkpoint_id)
            message = snapshot.acknowledgement()
            if place.environment.instrument is not None:
                size = message.metrics.checkpointed_bytes
                place.environment.instrument(
                    SnapshotAcknowledged(place.kernel.now_ns, place.attempt, checkpoint_id, place.name, size)
                )
            place.environment.post.to_master(place.name, "receive_acknowledge", message)

    def fingerprint(self) -> object:
        """The protocol's state and the snapshots under way."""
        return (
            self._protocol.fingerprint(),
            self.channel_state.fingerprint(),
            tuple((checkpoint_id, snapshot.fingerprint()) for checkpoint_id, snapshot in self._running.items()),
        )
