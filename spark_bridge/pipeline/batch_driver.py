"""The driver's side of a batch: what the subtasks get, the checkpoint that their reports make, and the commits after.

One batch is one checkpoint. The coordinator of the simulator decides about it, and its files are those of the
simulator, so either can go on from the other's.

Rules.
* A batch begins from the newest completed checkpoint, and from nothing else. Repeating one changes nothing.
* The checkpoint is durable before a sink commits: the operators that commit are restored from it, as they would be
  after a crash, and hear that it is complete.
* A subtask whose data has ended reads no more, and only takes snapshots, so that its operators finish once. A vertex is
  over when the data of all its subtasks has ended, and nothing more is to be sent (:mod:`.completion`): the next
  checkpoint says so, and it runs no more.
* An operator coordinator is cut when a batch begins: events that it has sent by then reach their subtasks in the
  batch, and events of subtasks reach it after the batch.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointCoordinator,
    CheckpointGraph,
    CheckpointStatistics,
    CoordinatorConfig,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    DiscardSharedState,
    FailJob,
    InitializeLocation,
    NotifyCoordinatorsComplete,
    SendTrigger,
    SnapshotOperatorCoordinators,
    TaskStatus,
    WriteMetadata,
)
from engine.elements.errors import KeyTypeMismatchError, StorageError
from engine.elements.events import CheckpointBarrier
from engine.graph.partitioner import RebalancePartitioner, RescalePartitioner
from engine.graph.plan import ExecutionPlan, OperatorPlan, SubtaskPlan, VertexPlan
from engine.observe.trace_events import CheckpointAborted, CheckpointCompleted, CheckpointCut, Instrument, TraceEvent
from engine.runtime.config import RunConfig
from engine.runtime.kernel import START_NS
from engine.runtime.storage import CheckpointFiles, RestoredJob, TaskSnapshot
from spark_bridge.pipeline.checksums import differing_reports, not_deterministic
from spark_bridge.pipeline.completion import Completion
from spark_bridge.pipeline.coordinator_desk import CoordinatorDesk
from spark_bridge.pipeline.subtask_batch import BatchOrder, ChannelTime, SubtaskBatch, SubtaskReport
from spark_bridge.pipeline.turns import TURNS_DIR_NAME
from state_backends.base import KeyType
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage

RunBatch = Callable[[BatchOrder], Sequence[SubtaskReport]]
"""Runs all subtasks of a batch whose vertices have not ended, wherever that is."""

_ATTEMPT = 1
_MOST_IDLE_INTERVALS = 16
_IN_TURN = RebalancePartitioner | RescalePartitioner


class BatchDriver:
    """Runs a job batch by batch. ``run``: runs the subtasks; ``storage`` is held by this process."""

    def __init__(
        self,
        plan: ExecutionPlan,
        config: RunConfig,
        storage: CheckpointStorage,
        incarnation: int,
        output_dir: str,
        run: RunBatch,
        *,
        source_records: int,
        interval_ns: int,
        instruments: Sequence[Instrument] = (),
    ) -> None:
        """``source_records``: the most that a subtask of a source emits in a batch. ``interval_ns``: virtual time of a
        batch."""
        self.files = CheckpointFiles(
            storage, plan, incarnation, config.allow_non_restored_state, LocalFileSystem(), config.backend().name
        )
        self.is_over = False
        """Whether all data has ended, and everything is committed."""
        self.counters: dict[tuple[str, int], dict[str, int]] = {}
        self.losses: dict[str, None] = {}
        self.notes: list[str] = []
        self.source_records = 0
        self.records: dict[int, tuple[int, int]] = {}
        """By index of the subtask: records in and out."""
        self.committed: list[int] = []
        """Checkpoints whose sinks have committed, in this process."""
        self._config = config
        self._storage = storage
        self._incarnation = incarnation
        self._output_dir = output_dir
        self.run = run
        """Runs the subtasks of a batch."""
        self._limit = source_records
        self._instruments = instruments
        self._span_ns = self._interval_ns = interval_ns
        self.now_ns = START_NS
        """The time of the present batch: virtual, so that a batch is the same whenever it is run."""
        self._restored: RestoredJob | None = None
        self._times: dict[int, ChannelTime] = {}
        self._ended: set[int] = set()
        """Subtasks, by their index, whose data has ended."""
        self._key_types: dict[int, tuple[KeyType, str]] = {}
        """By vertex: the type of the keys that go there, and the subtask that has found it."""
        in_turn = {one.index for one in plan.edges if isinstance(one.partitioner, _IN_TURN)}
        self._sent = {channel.index: 0 for channel in plan.channels if channel.edge in in_turn}
        """Records of the complete batches of this process, for channels that get every n-th one."""
        self._over: set[int] = set()
        """Vertices."""
        self._in_flight: dict[int, int] = {}
        """By index of a channel: records of the restored checkpoint that the first batch replays."""
        self._attempt = 0
        self._desk = CoordinatorDesk(plan, self.notes)
        self._completion = Completion(plan)
        self._coordinator = CheckpointCoordinator(
            CheckpointGraph.of(plan),
            CoordinatorConfig(num_retained=config.retained, timeout_ns=2**62),
            config.protocol.options(),
            operator_coordinators=self._desk.coordinators.names,
        )
        self._barrier: CheckpointBarrier | None = None

    @property
    def plan(self) -> ExecutionPlan:
        """The job's, with the max parallelism of restored state where its own was only derived."""
        return self.files.plan

    @property
    def checkpoints(self) -> CheckpointStatistics:
        """What has become of each checkpoint of this process."""
        return self._coordinator.statistics

    # -- starting point -----------------------------------------------------------------------------------------------

    def begin(self, restored: RestoredJob | None) -> None:
        """Take over what is in storage, up to ``restored``, and commit what that lists: a process that has died may
        not have come to it."""
        files, coordinator = self.files, self._coordinator
        retained = [] if restored is None else files.retained(restored.checkpoint_id)
        next_id = files.next_checkpoint_id()
        files.discard_passed_over(restored)
        self._execute(coordinator.recover(retained, self.now_ns, next_id))
        coordinator.begin_attempt(_ATTEMPT)
        self._desk.begin(restored)
        if restored is not None:
            self.now_ns = max(START_NS, restored.timestamp_ns)
            self._restored = restored
            self._in_flight = {
                index: sum(map(len, (*one.inputs, *one.outputs))) for index, one in restored.channels.items()
            }
            for vertex in sorted(restored.finished_vertices):
                self._vertex_is_over(vertex)
            self._commit(restored.checkpoint_id)
        self.is_over = len(self._over) == len(self.plan.vertices)

    def _vertex_is_over(self, vertex: int) -> None:
        self._over.add(vertex)
        for subtask in range(self.plan.vertices[vertex].parallelism):
            self._coordinator.on_task_status((vertex, subtask), TaskStatus.FINISHED)

    def close(self) -> None:
        """No further batch is run."""
        storage = self.files.storage
        turns = posixpath.join(storage.working_dir, TURNS_DIR_NAME)
        self._try("rows of attempts at subtasks", partial(storage.file_system.delete_tree, turns))
        self._desk.close()

    # -- one batch ----------------------------------------------------------------------------------------------------

    def run_batch(self) -> int:
        """Run the next batch; returns the number of its checkpoint.

        Raises the error of the first subtask, in plan order, that has failed; then nothing has been committed.
        """
        assert not self.is_over
        self.now_ns += self._span_ns
        self._execute(self._coordinator.trigger_manual(None, self.now_ns))
        barrier = self._barrier
        assert barrier is not None, "the coordinator has nothing else to wait for"
        self._attempt += 1
        over = frozenset(one.index for one in self.plan.subtasks if one.vertex in self._over)
        order = BatchOrder(
            plan=self.plan,
            config=self._config,
            storage_dir=posixpath.dirname(self._storage.job_dir),
            output_dir=self._output_dir,
            incarnation=self._incarnation,
            attempt=self._attempt,
            barrier=barrier,
            span_ns=self._span_ns,
            restored=self._restored,
            times=self._times,
            over=over,
            resting=frozenset(self._ended - over),
            source_records=self._limit,
            is_adopted=self._is_adopted(),
            is_committed=self._restored is not None and self._restored.checkpoint_id in self.committed,
            key_types={vertex: key_type for vertex, (key_type, _) in self._key_types.items()},
            sent=dict(self._sent),
            events=self._desk.take(),
        )
        reports = sorted(self.run(order), key=lambda report: report.subtask)
        self._take(reports, barrier.checkpoint_id)
        return barrier.checkpoint_id

    def _take(self, reports: Sequence[SubtaskReport], checkpoint_id: int) -> None:
        error = next((report.error for report in reports if report.error is not None), None)
        error = error or self._key_types_differ(reports) or self._checksums_differ(reports, checkpoint_id)
        if error is not None:
            self._execute(self._coordinator.stop(self.now_ns))
            self._trace(CheckpointAborted(self.now_ns, _ATTEMPT, checkpoint_id, str(error)))
            raise error
        read, ended_before = 0, frozenset(self._ended)
        for report in reports:
            self._times |= report.times
            self.notes += report.notes
            self.losses |= dict.fromkeys(report.losses)
            for operator, counted in report.counters.items():
                total = self.counters.setdefault(operator, {})
                for name, amount in counted.items():
                    total[name] = total.get(name, 0) + amount
            acknowledgement = report.acknowledgement
            assert isinstance(acknowledgement, Acknowledge), report
            assert isinstance(acknowledgement.state, TaskSnapshot)
            state = acknowledgement.state
            read += state.read
            came, went = self.records.get(report.subtask, (0, 0))
            taken = sum(report.received.values()) + state.read
            self.records[report.subtask] = came + taken, went + (state.read or sum(report.sent.values()))
            for channel, count in report.sent.items():
                if channel in self._sent:
                    self._sent[channel] += count
            acknowledgement = replace(acknowledgement, attempt=_ATTEMPT)
            self._execute(self._coordinator.on_acknowledge(acknowledgement, self.now_ns))
            if report.has_ended:
                self._ended.add(report.subtask)
        self.source_records += read
        self._trace_cut(checkpoint_id, reports)
        restored, problems = self.files.latest({checkpoint_id})
        if restored is None:
            raise StorageError("\n  ".join([f"checkpoint {checkpoint_id} was written and cannot be read", *problems]))
        self._restored = restored
        self._commit(checkpoint_id)
        over = self._completion.vertices_over(self.plan, frozenset(self._over), self._ended, ended_before)
        for vertex in over:
            self._vertex_is_over(vertex)
        self._desk.batch_over(checkpoint_id, reports)
        is_idle = not (read or any(one.has_ended or one.events for one in reports))
        self._span_ns = self._next_span_ns(reports) if is_idle else self._interval_ns
        self.is_over = len(self._over) == len(self.plan.vertices)

    def _next_span_ns(self, reports: Iterable[SubtaskReport]) -> int:
        """How long the next batch is when nothing was read in this one. A source begins a pause anew in each batch: one
        that is longer than the batch would never end. One that looks for records in short intervals, for ever, would
        look ever more often in a batch that grows without bound."""
        longer_ns = min(2 * self._span_ns, _MOST_IDLE_INTERVALS * self._interval_ns)
        return max(longer_ns, self._interval_ns + max((one.waits_ns for one in reports), default=0))

    def _is_adopted(self) -> bool:
        return self._restored is not None and self.files.is_adopted(self._restored.checkpoint_id)

    def _key_types_differ(self, reports: Sequence[SubtaskReport]) -> Exception | None:
        """Senders in different processes cannot agree while they run: 1 of one and True of another would meet in one
        cell of state. So their batch fails."""
        for report in reports:
            name = self.plan.subtasks[report.subtask].name
            for vertex, key_type in report.key_types.items():
                known, finder = self._key_types.setdefault(vertex, (key_type, name))
                if known != key_type:
                    return KeyTypeMismatchError(
                        f"{self.plan.vertices[vertex].name!r} gets keys of type {known} from {finder} and of type"
                        f" {key_type} from {name}\n  fix the key function: all keys of a stream have one type"
                    )
        return None

    def _checksums_differ(self, reports: Sequence[SubtaskReport], checkpoint_id: int) -> Exception | None:
        subtask = differing_reports(self.plan, reports)
        return None if subtask is None else not_deterministic(self.plan, subtask, checkpoint_id)

    def _trace_cut(self, checkpoint_id: int, reports: Sequence[SubtaskReport]) -> None:
        """Each record that was sent in the batch must have been received in it."""
        sent: dict[int, int] = dict.fromkeys((one.index for one in self.plan.channels), 0)
        received, size = dict(sent), 0
        in_flight, self._in_flight = self._in_flight, {}
        for report in reports:
            assert report.acknowledgement is not None
            sent |= report.sent
            received |= report.received
            size += report.acknowledgement.metrics.checkpointed_bytes
        for channel, count in in_flight.items():
            sent[channel] += count
        differences = tuple(
            (channel, count, received[channel]) for channel, count in sent.items() if count != received[channel]
        )
        self._trace(CheckpointCompleted(self.now_ns, _ATTEMPT, checkpoint_id, size))
        cut = CheckpointCut(self.now_ns, _ATTEMPT, checkpoint_id, len(sent), sum(sent.values()), differences)
        self._trace(cut)

    def _trace(self, event: TraceEvent) -> None:
        for instrument in self._instruments:
            instrument(event)

    # -- instructions of the coordinator ------------------------------------------------------------------------------

    def _execute(self, instructions: Iterable[object]) -> None:
        now_ns, coordinator, files = self.now_ns, self._coordinator, self.files
        for instruction in instructions:
            match instruction:
                case InitializeLocation(checkpoint_id=checkpoint_id):
                    files.initialize(checkpoint_id)
                    self._execute(coordinator.on_location_ready(checkpoint_id, now_ns))
                case SnapshotOperatorCoordinators(checkpoint_id=checkpoint_id, names=names):
                    for name in names:
                        taken = self._desk.cut(name, checkpoint_id)
                        self._execute(coordinator.on_operator_coordinator_state(checkpoint_id, name, taken, now_ns))
                case NotifyCoordinatorsComplete(checkpoint_id=checkpoint_id, names=names):
                    self._desk.coordinators.completed(checkpoint_id, names)
                case SendTrigger(barrier=barrier):
                    self._barrier = barrier
                case WriteMetadata(checkpoint_id=checkpoint_id):
                    snapshots = {one.task: one.state for one in instruction.acknowledgements}
                    directory = files.complete(instruction, snapshots)  # type: ignore[arg-type]
                    self._execute(coordinator.on_metadata_written(checkpoint_id, now_ns, directory))
                case (
                    DiscardPendingCheckpoint(checkpoint_id=checkpoint_id)
                    | DiscardCheckpoint(checkpoint_id=checkpoint_id)
                ):
                    self._try(f"checkpoint {checkpoint_id}", partial(files.discard, checkpoint_id))
                    self._execute(coordinator.on_discarded(checkpoint_id, now_ns))
                case DiscardSharedState(handles=handles):
                    self._try("shared state that no checkpoint uses", partial(files.delete_shared, handles))
                case FailJob():
                    raise AssertionError(f"{instruction!r}: a batch fails by the error of its subtask")
                case _:
                    # Timers: a batch has none. Messages to tasks: they are gone, and `_commit` tells those that commit.
                    pass

    def _try(self, what: str, delete: Callable[[], None]) -> None:
        """Delete something; what cannot be deleted does no harm."""
        try:
            delete()
        except OSError as error:
            self.notes.append(f"{what} could not be deleted: {error}")

    # -- commits ------------------------------------------------------------------------------------------------------

    def _commit(self, checkpoint_id: int) -> None:
        restored = self._restored
        assert restored is not None
        self._attempt += 1
        for vertex in self.plan.vertices:
            if vertex.index in self._over:
                continue
            for operator in vertex.operators:
                if self._completion.commits(vertex.index, operator.position):
                    for subtask in range(vertex.parallelism):
                        self.commit_operator(vertex, operator, subtask, restored)
        self.committed.append(checkpoint_id)

    def commit_operator(self, vertex: VertexPlan, operator: OperatorPlan, subtask: int, restored: RestoredJob) -> None:
        """Restore one operator, by itself and without keyed state: it commits what the checkpoint lists."""
        has_ended = all(one.index in self._ended for one in self.plan.subtasks if one.vertex == vertex.index)
        alone = replace(operator, position=0, chained_outputs=(), edge_outputs=())
        lone_vertex = replace(vertex, index=0, operators=(alone,), is_source=False, input_edges=(), output_edges=())
        lone_subtask = SubtaskPlan(0, 0, subtask, f"{operator.name}[{subtask}]", (), ())
        plan = replace(self.plan, vertices=(lone_vertex,), edges=(), subtasks=(lone_subtask,), channels=())
        known = {
            key: replace(state, keyed=()) for key, state in restored.operators.items() if key == (operator.uid, subtask)
        }
        order = BatchOrder(
            plan=plan,
            config=self._config,
            storage_dir=posixpath.dirname(self._storage.job_dir),
            output_dir=self._output_dir,
            incarnation=self._incarnation,
            attempt=self._attempt,
            barrier=CheckpointBarrier(restored.checkpoint_id, self.now_ns),
            span_ns=0,
            restored=replace(restored, operators=known),
            times={},
            over=frozenset(),
            resting=frozenset({0}) if has_ended else frozenset(),
            source_records=0,
            is_adopted=self._is_adopted(),
        )
        part = SubtaskBatch(order, lone_subtask)
        try:
            report = part.commit()
        finally:
            part.close()
        if report.error is not None:
            raise report.error
        self.losses |= dict.fromkeys(report.losses)
