"""One subtask's part of one batch: the task that the simulator runs, alone, fed from rows and drained into rows.

The task starts from the state of the checkpoint before, gets everything that its inputs bring in this batch, and then
the barrier. Its acknowledgement ends the part. A batch spans some virtual time, in which sources read and may pause;
for all other tasks the clock stands. Other costs, and faults, play no role here.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.coordinator import Acknowledge
from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import JobGraphError
from engine.elements.events import CheckpointBarrier, EndOfData, Watermark, WatermarkStatus
from engine.graph.partitioner import KeyTypeAgreement
from engine.graph.plan import ExecutionPlan, SubtaskPlan
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.kernel import Kernel, Post
from engine.runtime.storage import NOTHING_IN_FLIGHT, LocalFiles, RestoredJob
from engine.runtime.tasks import OperatorEvent, SourceProgress, SourceTask, TaskEnvironment, lone_task
from spark_bridge.pipeline.completion import tells
from spark_bridge.pipeline.packed_elements import Element
from spark_bridge.pipeline.subtask_surroundings import SubtaskSurroundings
from spark_bridge.transform import RunRows, SparkTransformOperator
from state_backends.base import KeyType
from state_backends.files import LocalFileSystem, WritableFile
from state_backends.snapshots import CheckpointStorage

_EVENTS_BETWEEN_LOOKS = 64
_FOR_EVER_NS = 2**62
_TURN = "turn"


@dataclass(frozen=True, slots=True)
class ChannelTime:
    """The event time of a channel at the end of a batch: the same at the beginning of the next one."""

    watermark_ms: int | None = None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class BatchOrder:
    """Everything that the subtasks of one batch have in common.

    ``barrier``        with which the batch ends; its number is that of the batch's checkpoint;
    ``attempt``        part of the names of files;
    ``span_ns``        virtual time of the batch, from the time of its barrier on;
    ``restored``       the checkpoint before; ``None`` in the first batch;
    ``times``          by index of a channel; those absent have no event time yet;
    ``over``           subtasks, by their index in the plan, that do not run: their vertex has ended before;
    ``resting``        subtasks whose data has ended, and that of others of their vertex has not: they take snapshots;
    ``is_adopted``     whether ``restored`` is of another run;
    ``is_committed``   whether the driver has committed what ``restored`` lists;
    ``key_types``      by vertex: the type of the keys that go there, as far as it is known;
    ``source_records`` the most records that a subtask of a source emits in the batch;
    ``sent``           by index of a channel that gets every n-th record: those that it got in the batches before;
    ``events``         of coordinators, by index of the subtask: the position of the operator and the event.
    """

    plan: ExecutionPlan
    config: RunConfig
    storage_dir: str
    output_dir: str
    incarnation: int
    attempt: int
    barrier: CheckpointBarrier
    span_ns: int
    restored: RestoredJob | None
    times: dict[int, ChannelTime]
    over: frozenset[int]
    resting: frozenset[int]
    source_records: int
    is_adopted: bool = False
    is_committed: bool = False
    key_types: Mapping[int, KeyType] = field(default_factory=dict)
    sent: Mapping[int, int] = field(default_factory=dict)
    events: Mapping[int, Sequence[tuple[int, Any]]] = field(default_factory=dict)


@dataclass(slots=True)
class SubtaskReport:
    """The outcome of one subtask's part. ``acknowledgement`` is ``None`` when ``error`` is not."""

    subtask: int
    acknowledgement: Acknowledge | None = None
    error: Exception | None = None
    has_ended: bool = False
    """Whether its data has ended."""
    key_types: dict[int, KeyType] = field(default_factory=dict)
    """By vertex."""
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)
    """Records, by index of the channel."""
    sent_checksums: dict[int, int] = field(default_factory=dict)
    received_checksums: dict[int, int] = field(default_factory=dict)
    """Of all that went over a channel, by its index; none where nothing did."""
    times: dict[int, ChannelTime] = field(default_factory=dict)
    """Of its output channels, by index."""
    counters: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: list[OperatorEvent] = field(default_factory=list)
    """For the coordinators of its operators."""
    waits_ns: int = 0
    """Of a source whose pause is longer than the batch: how long after the beginning of the batch it would end."""


class NewFiles(LocalFileSystem):
    """Another attempt may still hold a file of the same name open: writing begins with a new file, and does not empty
    that one."""

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        if not exclusive:
            with suppress(FileNotFoundError):
                self.delete(path)
        return super().open_write(path, exclusive=exclusive)


_ATTEMPTS = itertools.count()
"""Numbers the attempts of this process. With it and its host they have names that no other attempt has. No such name
is in a row that is shuffled."""


class SubtaskBatch:
    """Runs the part of ``subtask`` in a batch. Feed it with :meth:`take`, end it with :meth:`finish`; after each, the
    output so far is in :meth:`drained`. :meth:`close` it in the end."""

    def __init__(self, order: BatchOrder, subtask: SubtaskPlan, run_rows: RunRows | None = None) -> None:
        """``run_rows``: what a Spark transform in the subtask does with the rows of a closed period."""
        self.report = SubtaskReport(subtask.index)
        self._order = order
        self._losses: dict[str, None] = {}
        self._kernel = kernel = Kernel(order.barrier.timestamp_ns)
        self._part = SubtaskSurroundings(kernel, self.report)
        part: Any = self._part
        self._slice_over = False
        attempt = f"{socket.gethostname()}-{os.getpid()}-{next(_ATTEMPTS)}"
        storage = CheckpointStorage(
            LocalFileSystem(),
            order.storage_dir,
            order.plan.job_name,
            inline_threshold_bytes=order.config.inline_state_bytes,
            attempt=attempt,
        )
        self._local = local = LocalFiles(
            storage, order.output_dir, keeps_state=False, note=part.note, attempt=attempt
        )
        vertex = order.plan.vertices[subtask.vertex]
        limit = order.source_records
        environment = TaskEnvironment(
            plan=order.plan,
            attempt=order.attempt,
            incarnation=order.incarnation,
            kernel=kernel,
            master=part,
            sources=SourceProgress(order.config.batch_size, limit if vertex.is_source else None, self._end_of_slice),
            post=Post(kernel, None, part),
            protocol=order.config.protocol,
            cost=CostModel(source_record_ns=order.config.cost.source_record_ns),
            storage=storage,
            location=storage.location,
            file_system=NewFiles(),
            output_dir=order.output_dir,
            instrument=None,
            state_backend=order.config.backend(),
            local=local,
            snapshot_compression=order.config.snapshot_compression,
            counters=self.report.counters,
            losses=self._losses,
            allow_non_restored_state=order.config.allow_non_restored_state,
            starts_from_another_run=order.is_adopted,
            restored_is_committed=order.is_committed,
            sent=order.sent,
            work_takes_time=False,
        )
        for receiver, key_type in order.key_types.items():
            environment.key_type_agreement(receiver).adopt(key_type)
        self._task, self._outputs = lone_task(order.plan, environment, subtask, part)
        for channel in self._outputs.values():
            channel.gate = part
            if channel.index in order.times:
                self.report.times[channel.index] = order.times[channel.index]
        for operator in self._task.chain.operators:
            if run_rows is not None and isinstance(operator, SparkTransformOperator):
                operator.run_rows = run_rows
        self._inputs = {channel.index: channel for channel in self._task.inputs}
        restored = order.restored
        uids = {context.uid for context in self._task.chain.contexts}
        state = {} if restored is None else restored.for_task(subtask.subtask, uids)
        self._turns = list(map(LocalFileSystem().wait_for_directory, self._written_alone()))
        self._task.start(state, None if restored is None else restored.checkpoint_id)
        self._replay_records_in_flight(environment)
        chain = self._task.chain
        if restored is not None and any(map(tells, chain.plans, chain.operators)):
            self._hear_of_completion(restored.checkpoint_id)
        for position, event in order.events.get(subtask.index, ()):
            self._mail("coordinator_event", position, event)
        self._go_on_in_time()

    def _written_alone(self) -> Iterable[str]:
        """The directories to hold, because another subtask may write there; sorted, so that no two subtasks wait for
        each other."""
        chain = self._task.chain
        places = zip(chain.operators, chain.contexts, strict=True)
        paths = {context.resolve_path(path) for operator, context in places for path in operator.writes_alone}
        return sorted(posixpath.join(path, _TURN) for path in paths)

    def _hear_of_completion(self, checkpoint_id: int) -> None:
        """The checkpoint that the operators were restored from is complete. The task itself knows that."""
        order, vertex = self._order, self._task.place.plan.vertex
        has_ended = all(one.index in order.resting for one in order.plan.subtasks if one.vertex == vertex)

        def tell() -> None:
            for operator in self._task.chain.operators:
                if has_ended:
                    operator.resume_at_end(checkpoint_id)
                operator.notify_checkpoint_complete(checkpoint_id)

        if self._task.life.is_running:
            self._task.life.survives(tell)

    def close(self) -> None:
        """Release everything, whatever has become of the task."""
        self._task.life.cancel()
        for turn in self._turns:
            turn.release()
        with suppress(OSError):
            # The next run sweeps what is left.
            self._local.sweep()

    def _mail(self, message: str, *arguments: Any) -> None:
        self._kernel.schedule(self._kernel.now_ns, "receive_mail", self._task, (message, arguments))

    def _replay_records_in_flight(self, environment: TaskEnvironment) -> None:
        """A checkpoint of the simulator may hold records that were under way: they come before all others."""
        restored, vertex = self._order.restored, self._task.place.plan.vertex
        if restored is None or not restored.has_channel_state:
            return
        if vertex in restored.key_types:
            environment.key_type_agreement(vertex).adopt(restored.key_types[vertex])
        for channel in self._inputs.values():
            in_flight = restored.channels.get(channel.index, NOTHING_IN_FLIGHT)
            for batch in (*in_flight.inputs, *in_flight.outputs):
                channel.put_batch(batch)

    def _go_on_in_time(self) -> None:
        """Event time stands where the batch before has left it."""
        order = self._order
        if self.report.subtask in order.resting:
            return
        gone = order.over | order.resting
        over = {(one.vertex, one.subtask) for one in order.plan.subtasks if one.index in gone}
        for channel in self._inputs.values():
            if (channel.plan.sender_vertex, channel.plan.sender_subtask) in over:
                channel.put_event(Watermark(MAX_TIMESTAMP_MS))
                channel.put_event(EndOfData())
                continue
            time = order.times.get(channel.index)
            if time is None:
                continue
            if time.watermark_ms is not None:
                channel.put_event(Watermark(time.watermark_ms))
            if time.idle:
                channel.put_event(WatermarkStatus(True))

    # -- records ------------------------------------------------------------------------------------------------------

    def take(self, channel: int, elements: Iterable[Element]) -> None:
        """Elements come on an input channel."""
        receiver = self._inputs[channel]
        for element in elements:
            if isinstance(element, Batch):
                receiver.put_batch(element)
            else:
                receiver.put_event(element)
        self._run()

    def finish(self) -> Iterator[None]:
        """All input of the batch has come: take the snapshot. A source reads now, and yields to be drained."""
        is_resting = self.report.subtask in self._order.resting
        if isinstance(self._task, SourceTask):
            if is_resting:
                self._end_of_slice()
            else:
                yield from self._read()
        else:
            for channel in self._inputs.values():
                channel.put_barrier(self._order.barrier, None)
        self._run()
        report = self.report
        report.losses += self._losses
        report.has_ended = report.has_ended or is_resting
        report.key_types = self._key_types()
        self._refuse_processing_time()
        report.sent = {index: channel.sent_records for index, channel in self._outputs.items()}
        report.received = {index: channel.received_records for index, channel in self._inputs.items()}
        if report.error is None:
            assert report.acknowledgement is not None, f"{self._task.name} waits for something, and nothing comes"

    def finish_rows(self) -> None:
        """All input of the batch has come, and nobody needs the output or the snapshot: close what the barrier would
        close."""
        if self.report.error is None:
            for operator in self._task.chain.operators:
                operator.prepare_snapshot_pre_barrier(self._order.barrier.checkpoint_id)

    def _key_types(self) -> dict[int, KeyType]:
        """By vertex: what this subtask has found the keys to be."""
        vertices = {one.index: self._agreement(one.index).key_type for one in self._order.plan.vertices}
        return {vertex: key_type for vertex, key_type in vertices.items() if key_type is not None}

    def _agreement(self, vertex: int) -> KeyTypeAgreement:
        return self._task.place.environment.key_type_agreement(vertex)

    def _refuse_processing_time(self) -> None:
        """A timer in processing time would fire once per batch, whatever its time is."""
        for operator, plan in zip(self._task.chain.operators, self._task.chain.plans, strict=True):
            timers = getattr(operator, "timers", None)
            if timers is not None and timers.processing_time.next_time() is not None:
                self.report.error = self.report.error or JobGraphError(
                    f"{plan.name!r} sets a timer in processing time, which does not pass in a batch\n"
                    "  fix: use event time, or run the job without --on"
                )

    def commit(self) -> SubtaskReport:
        """Have the operators, which were restored from the checkpoint of the barrier, commit what it lists."""
        self._hear_of_completion(self._order.barrier.checkpoint_id)
        self._run()
        self.report.losses += self._losses
        return self.report

    def _read(self) -> Iterator[None]:
        task = self._task
        assert isinstance(task, SourceTask)
        kernel, span_ns = self._kernel, self._order.span_ns
        for at_ns, what in ((span_ns // 2, self._half_of_span), (span_ns, self._end_of_slice)):
            kernel.schedule(kernel.now_ns + at_ns, "end_span", self._part, what)
        while not (self._slice_over or task.end.input_ended or self.report.error):
            kernel.run(_EVENTS_BETWEEN_LOOKS)
            yield
        if self.report.error is None:
            self._end_of_slice()

    def _half_of_span(self) -> None:
        """Half of the batch's time is over: a pause that lasts for the rest of it is no short one."""
        task, now_ns, half_ns = self._task, self._kernel.now_ns, self._order.span_ns // 2
        assert isinstance(task, SourceTask)
        at_ns = None if self._slice_over or task.end.input_ended else task.source.available_at_ns(now_ns)
        if at_ns is not None and at_ns - now_ns > half_ns:
            self.report.waits_ns = at_ns - now_ns + half_ns

    def _end_of_slice(self) -> None:
        """The source has emitted as much as it may in this batch, or has come to its end."""
        if not self._slice_over:
            self._slice_over = True
            self._trigger()

    def _trigger(self) -> None:
        # After it the source reads nothing more: that would belong to the next batch.
        self._mail("trigger_checkpoint", self._order.barrier)
        self._task.rest(_FOR_EVER_NS)

    def _run(self) -> None:
        """Run until nothing is left to do at this instant, or the batch is over for the task."""
        if self.report.error is None:
            self._part.run_instant()

    # -- output -------------------------------------------------------------------------------------------------------

    def drained(self) -> Iterator[tuple[int, list[Element]]]:
        """The elements sent since the last call, by index of their channel. Nothing after the barrier is among them."""
        for index, channel in self._outputs.items():
            elements: list[Element] = []
            while channel.queue:
                element = channel.take()
                if not isinstance(element, CheckpointBarrier):
                    elements.append(element)
            if elements:
                self._note_time(index, elements)
                yield index, elements

    def _note_time(self, index: int, elements: Iterable[Element]) -> None:
        time = self.report.times.get(index, ChannelTime())
        for element in elements:
            match element:
                case Watermark(timestamp_ms):
                    time = ChannelTime(timestamp_ms, time.idle)
                case WatermarkStatus(idle):
                    time = ChannelTime(time.watermark_ms, idle)
        self.report.times[index] = time
