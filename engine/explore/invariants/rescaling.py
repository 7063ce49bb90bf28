"""V10: after a restore every key group has one owner, and all parts together are the whole, in state and in flight.

The state at the start of an attempt is compared with its checkpoint. Other code than the restore reads the checkpoint:
all handles of an operator are read into one more backend for each subtask, which takes its own key groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from engine.elements.batch import Batch
from engine.explore.invariants.base import Shared, Watcher, shown
from engine.explore.invariants.snapshots import readable_metadata, snapshot_of
from engine.explore.run import CaseView, hears
from engine.graph.partitioner import HashPartitioner
from engine.graph.plan import EdgePlan, ExecutionPlan, VertexPlan
from engine.observe.trace_events import AttemptStarted, TaskState
from engine.runtime.channels import Channel
from engine.runtime.tasks import Task
from state_backends.api import BackendEnvironment
from state_backends.base import (
    KeyGroupRange,
    StateBackendError,
    key_group_for,
    key_group_range_for_index,
    operator_index_for_key_group,
)
from state_backends.codec import default_codec
from state_backends.files import MemoryFileSystem
from state_backends.named import state_backend_named
from state_backends.offline import write_in_full
from state_backends.snapshots import (
    ChannelName,
    CheckpointMetadata,
    CheckpointStorage,
    FullKeyedStateHandle,
    KeyedStateHandle,
    StateReader,
    read_channel_state,
)

_MOST_BYTES = 64 * 1024
"""Of larger states only the key groups are checked."""


class _Full(NamedTuple):
    """The keyed state of an operator in a checkpoint, in the form that every backend reads."""

    handles: list[FullKeyedStateHandle]
    reader: StateReader


class WholeAfterRestore(Watcher):
    name = "V10"
    title = "After a restore each key group has one owner, and state and records in flight are those of the checkpoint."
    reason = "Restored at another parallelism, what goes to the wrong subtask is never seen again, or seen twice."
    source = "Flink StateAssignmentOperation; FLINK-35351 (custom partitioners), FLINK-38544 (records in flight)"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._attempt = 0
        self._restored: CheckpointMetadata | None = None
        self._reader: StateReader | None = None
        self._handles: dict[str, _Full] = {}
        """By uid of an operator."""
        self._is_new = False

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        self._attempt, self._is_new = event.attempt, True
        self._handles.clear()
        self._restored = None
        if event.restored_checkpoint is None:
            return
        snapshot = snapshot_of(self.view, event.restored_checkpoint, durable=False)
        self._restored, self._reader = readable_metadata(self.shared, snapshot), snapshot.location.reader()

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        metadata = self._restored
        if metadata is None or event.attempt != self._attempt or event.state != "running":
            return
        tasks = self.view.execution.manager.tasks
        plan = self.view.execution.manager.plan
        try:
            if self._is_new:
                # The first task to run: no element was taken from a channel yet.
                self._is_new = False
                self._judge_channels(metadata, plan, tasks.values(), event.time_ns)
            for task in tasks.values():
                if task.name == event.task:
                    self._judge_state(metadata, plan.vertices[task.place.plan.vertex], task, event.time_ns)
        except (StateBackendError, OSError) as error:
            self.skipped = f"checkpoint {metadata.checkpoint_id} could not be read: {error}"

    # -- keyed state ------------------------------------------------------------------------------------------------

    def _judge_state(self, metadata: CheckpointMetadata, vertex: VertexPlan, task: Task, now_ns: int) -> None:
        for context in task.chain.contexts:
            backend = context.keyed
            if backend is None:
                continue
            subtask, number = task.place.plan.subtask, metadata.checkpoint_id
            mine = key_group_range_for_index(vertex.max_parallelism, vertex.parallelism, subtask)
            if backend.key_group_range != mine:
                text = f"{task.name} owns key groups {backend.key_group_range} of {context.name}, not {mine}"
                self.violated(text, now_ns, task=task.name, checkpoint_id=number)
                continue
            whole = self._in_full(metadata, context.uid, vertex.max_parallelism)
            if whole is not None and backend.fingerprint() != _digest(whole, vertex.max_parallelism, mine):
                self.violated(
                    f"{task.name} begins attempt {self._attempt} with other state of {context.name} than checkpoint"
                    f" {number} holds for key groups {mine.first} to {mine.last}: {backend.num_entries()} entries",
                    now_ns,
                    task=task.name,
                    checkpoint_id=number,
                )

    def _in_full(self, metadata: CheckpointMetadata, uid: str, max_parallelism: int) -> _Full | None:
        """``None`` when it is too large, or its key groups differ from the job's."""
        known = self._handles.get(uid)
        if known is not None:
            return known
        assert self._reader is not None
        operators = [operator for operator in metadata.operators if operator.uid == uid]
        if any(operator.max_parallelism != max_parallelism for operator in operators):
            return None
        found: list[KeyedStateHandle] = [
            snapshot.keyed
            for operator in operators
            for _, snapshot in sorted(operator.subtasks.items())
            if snapshot.keyed is not None
        ]
        if sum(one.size_bytes for one in found) > _MOST_BYTES:
            return None
        where = CheckpointStorage(MemoryFileSystem(), "/", "full").initialize_location(1)
        streams = where.stream_factory("full")
        written = [write_in_full(one, self._reader, max_parallelism, default_codec(), streams) for one in found]
        whole = self._handles[uid] = _Full([one for one in written if one is not None], where.reader())
        return whole

    # -- records in flight ------------------------------------------------------------------------------------------

    def _judge_channels(
        self, metadata: CheckpointMetadata, plan: ExecutionPlan, tasks: Iterable[Task], now_ns: int
    ) -> None:
        expected = self._in_flight(metadata)
        if not expected:
            return
        edges = {edge.name: edge for edge in plan.edges}
        found: dict[str, Counter[str]] = {name: Counter() for name in expected}
        counts: Counter[str] = Counter()
        under_way = self._under_way()
        for task in tasks:
            if task.life.attempt != self._attempt:
                # Another region: it kept running, and its records kept moving.
                for channel in task.inputs:
                    expected.pop(plan.edges[channel.plan.edge].name, None)
                continue
            for channel in task.inputs:
                edge = plan.edges[channel.plan.edge]
                counts[edge.name] += channel.queued_records
                for batch in (*_waiting(channel), *under_way.get(channel.index, ())):
                    found.setdefault(edge.name, Counter()).update(map(repr, batch.values))
                    self._judge_owner(plan, edge, channel, batch, now_ns)
        for name, rows in sorted(expected.items()):
            if name not in edges or (counts[name] == rows.total() and found[name].total() < counts[name]):
                # Or some are passing over a link of limited bandwidth, where they are not visible.
                continue
            lost, more = rows - found[name], found[name] - rows
            if lost or more:
                self.violated(
                    f"attempt {self._attempt} begins with other records in flight on {name} than checkpoint"
                    f" {metadata.checkpoint_id} holds: {lost.total()} missing ({shown(lost)}), {more.total()} too many"
                    f" ({shown(more)})",
                    now_ns,
                    checkpoint_id=metadata.checkpoint_id,
                )

    def _under_way(self) -> dict[int, list[Batch]]:
        """By channel: batches that have left the sender and have not reached the receiver."""
        found: dict[int, list[Batch]] = {}
        for event in self.view.execution.kernel.pending():
            is_arrival = event.operation.startswith("arrive") and event.target.attempt == self._attempt
            if is_arrival and isinstance(event.payload[1], Batch):
                found.setdefault(event.target.index, []).append(event.payload[1])
        return found

    def _in_flight(self, metadata: CheckpointMetadata) -> dict[str, Counter[str]]:
        assert self._reader is not None
        found: dict[str, Counter[str]] = {}
        for operator in metadata.operators:
            for snapshot in operator.subtasks.values():
                for handle in (snapshot.input_channels, snapshot.output_channels):
                    if handle is None:
                        continue
                    for name, columns in read_channel_state(self._reader, handle).items():
                        assert isinstance(name, ChannelName)
                        rows = found.setdefault(name.edge, Counter())
                        for one in columns:
                            rows.update(map(repr, one.values))
        return found

    def _judge_owner(self, plan: ExecutionPlan, edge: EdgePlan, channel: Channel, batch: Batch, now_ns: int) -> None:
        if not isinstance(edge.partitioner, HashPartitioner) or batch.keys is None:
            return
        target, receiver = plan.vertices[edge.target_vertex], channel.plan.receiver_subtask
        for key in batch.keys:
            group = key_group_for(key, target.max_parallelism, edge.partitioner.key_type)
            owner = operator_index_for_key_group(target.max_parallelism, target.parallelism, group)
            if owner != receiver:
                text = f"a restored record with key {key!r} is on its way to {target.name}[{receiver}], but belongs to"
                self.violated(f"{text} {target.name}[{owner}]", now_ns, task=f"{target.name}[{receiver}]")

    def process_started(self, view: CaseView) -> None:
        """Attempts count from 1 again."""
        super().process_started(view)
        self._attempt, self._restored = 0, None


def _waiting(channel: Channel) -> Iterable[Batch]:
    for _, element in (*channel.queue, *(channel.outgoing or ())):
        if isinstance(element, Batch):
            yield element


def _digest(whole: _Full, max_parallelism: int, mine: KeyGroupRange) -> bytes:
    """Of a backend that has read the state of some key groups."""
    environment = BackendEnvironment(None, max_parallelism, mine, MemoryFileSystem(), "/work", "expected")
    backend = state_backend_named("heap").create_keyed_backend(environment)
    try:
        backend.restore(whole.handles, whole.reader)
        return backend.fingerprint()
    finally:
        backend.dispose()
