"""The objects that all tasks of one attempt share, and a task part's view of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from engine.checkpoint.coordinator import TaskId
from engine.elements.errors import StateError
from engine.elements.outside_world import OutsideWorld
from engine.graph.partitioner import KeyTypeAgreement
from engine.graph.plan import ChannelPlan, ExecutionPlan, SubtaskPlan, VertexPlan
from engine.observe.provenance import Provenance
from engine.observe.trace_events import Instrument
from engine.protocols.barriers import CheckpointProtocol
from engine.runtime.channels import Channel, HostLink
from engine.runtime.config import CostModel, DebloatSettings
from engine.runtime.kernel import Around, Clock, Kernel, LinkHook, Post, RunHook, TaskHook, nothing_around
from engine.runtime.storage import LocalFiles
from engine.runtime.tasks.service_times import ServiceTimes
from engine.runtime.tasks.storage_times import StorageTimes
from engine.runtime.tasks.tracking import RunTracking
from state_backends.api import StateBackend
from state_backends.base import StateBackendError, value_class
from state_backends.codec import default_codec
from state_backends.files import FileSystem
from state_backends.snapshots import ChannelName, CheckpointLocation, CheckpointStorage

if TYPE_CHECKING:
    from engine.runtime.tasks.task import Task
    from engine.runtime.tasks.task_life import TaskLife

_new_tuple = tuple.__new__


@dataclass(frozen=True, slots=True)
class OperatorEvent:
    """An event that an operator sends to its coordinator. ``uid``: its own."""

    uid: str
    task: TaskId
    attempt: int
    event: Any


@dataclass(frozen=True, slots=True)
class BarrierProcessed:
    """A task's snapshot has been taken (Flink: ``AcknowledgeCheckpointEvent``)."""

    checkpoint_id: int
    task: TaskId
    attempt: int


def plain_copy(event: Any, operator: str) -> Any:
    """A copy of an event that shares nothing with it; raises :class:`StateError` when it is not a plain value."""
    try:
        return default_codec().copy(event)
    except StateBackendError as error:
        raise StateError(f"operator {operator!r}: an event between it and its coordinator: {error}") from error


class Master(Protocol):
    """The services of the job manager for tasks. Their messages come to it as kernel events."""

    def task_reached_end(self, task: TaskLife) -> None:
        """All input of the task has ended and its operators have finished."""

    def task_finished(self, task: TaskLife) -> None:
        """The task is closed."""

    def task_recovered(self, task: TaskLife) -> None:
        """The task has read all restored records in flight: it counts as running now."""

    def source_backlog(self, task: TaskLife, is_backlog: bool) -> None:
        """A source has begun, or ended, to work off a backlog."""

    def note(self, text: str) -> None:
        """A fact that a user should know and that is not an error."""


class AttemptHook(RunHook, Protocol):
    """Faults of a run, for the tasks of an attempt and their channels."""

    def for_task(self, plan: SubtaskPlan, vertex: VertexPlan, task: Task) -> TaskHook:
        """The hook of a task that is being built."""

    @property
    def for_channel(self) -> Callable[[Channel], LinkHook] | None:
        """Makes the hook of a channel; ``None`` when elements are never disturbed."""


class SourceProgress:
    """Counts the records that all sources of a run emit, ``batch_size`` at a time. Each time that ``interval`` more are
    emitted, ``interval_over`` is called."""

    def __init__(self, batch_size: int, interval: int | None, interval_over: Callable[[], None]) -> None:
        self.records = 0
        """Emitted records, in all attempts together."""
        self.interval = interval
        self.missing = interval or 0
        """Records to the end of the interval."""
        self._batch_size = batch_size
        self._interval_over = interval_over

    def begin_interval(self) -> None:
        """An interval begins now."""
        self.missing = self.interval or 0

    def emitted(self, records: int) -> None:
        """A source has emitted further records."""
        self.records += records
        if self.interval is not None:
            self.missing -= records
            if self.missing <= 0:
                self.missing += self.interval
                self._interval_over()

    def slice_records(self) -> int:
        """How many records a source may emit in one go: a batch, or the number missing to the end of the interval."""
        batch_size = self._batch_size
        if self.interval is None:
            return batch_size
        return max(1, min(batch_size, self.missing))


@value_class
class TaskEnvironment:
    """Shared by the tasks of one attempt; read-only."""

    plan: ExecutionPlan
    attempt: int
    incarnation: int
    kernel: Kernel
    master: Master
    sources: SourceProgress
    """Counts the records that sources emit."""
    post: Post
    protocol: CheckpointProtocol
    cost: CostModel
    storage: CheckpointStorage
    location: Callable[[int], CheckpointLocation]
    """Where tasks write their part of a snapshot, by its number."""
    file_system: FileSystem
    output_dir: str
    instrument: Instrument | None
    state_backend: StateBackend
    local: LocalFiles
    """The files that tasks keep beside them while they run."""
    snapshot_compression: str
    counters: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    """``(operator uid, subtask) -> counter name -> value``, over all attempts of the run."""
    losses: dict[str, None] = field(default_factory=dict)
    """Records that sinks can never commit, in the order of the reports, over all attempts of the run."""
    starts_from_another_run: bool = False
    """Whether the attempt starts from the snapshot that the job was started from, not from one of its own."""
    restored_is_committed: bool = False
    """Whether what the restored checkpoint lists has been committed, in this run."""
    allow_non_restored_state: bool = False
    """Whether operator state may be dropped that no operator asks for."""
    sent: Mapping[int, int] = field(default_factory=dict)
    """Records of earlier attempts that stand, by index of the channel."""
    work_takes_time: bool = True
    """Whether the time passes that operators spend."""
    debloating: DebloatSettings | None = None
    hook: AttemptHook | None = None
    """Absent in a run without faults."""
    provenance: Provenance | None = None
    """Is told the causes of records; absent when the run keeps no ledger."""
    tracking: RunTracking | None = None
    """Absent when records are not tracked."""
    world: OutsideWorld | None = None
    """Outside of the job; absent where no time passes."""
    storage_times: StorageTimes | None = None
    """Absent when storage takes no more time than the plain cost model says."""
    link_delay: Callable[[], int] | None = None
    """Draws the ns of an element on a channel; absent when that is not random."""
    host_links: Sequence[HostLink] | None = None
    """By index of the subtasks on a host; absent when its bandwidth is not limited."""
    service: ServiceTimes | None = None
    """Absent when no operator has a law of its service time."""
    _key_types: dict[int, KeyTypeAgreement] = field(default_factory=dict, init=False)

    def key_type_agreement(self, vertex: int) -> KeyTypeAgreement:
        """The key type that all senders to a keyed vertex, and the state of its subtasks, agree on."""
        agreement = self._key_types.get(vertex)
        if agreement is None:
            agreement = self._key_types[vertex] = KeyTypeAgreement()
        return agreement

    def target_input(self, edge: int) -> int:
        """Which input of its target an edge of the plan feeds: 0 for the first or only one, 1 for the second."""
        return self.plan.edges[edge].target_input

    def channel_name(self, channel: ChannelPlan) -> ChannelName:
        """The identity of a channel in a checkpoint, whatever index it has in this plan."""
        edge = self.plan.edges[channel.edge]
        # Written out: half as long as calling the class.
        return _new_tuple(ChannelName, (edge.name, channel.sender_subtask, channel.receiver_subtask))

    def resolve_path(self, path: str) -> str:
        """A relative path is below the run's output directory."""
        return path if path.startswith("/") else f"{self.output_dir}/{path}"


class TaskPlace:
    """The place of a task: one subtask of one attempt, and its surroundings. The parts of a task get this instead of
    the task. ``hook`` is absent without faults."""

    __slots__ = ("around", "attempt", "clock", "environment", "hook", "kernel", "name", "plan", "task_id", "vertex")

    def __init__(
        self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment, hook: TaskHook | None
    ) -> None:
        self.plan = plan
        self.vertex = vertex
        self.environment = environment
        self.name = plan.name
        self.task_id = (plan.vertex, plan.subtask)
        self.attempt = environment.attempt
        self.kernel = environment.kernel
        self.hook = hook
        self.around: Around = nothing_around if hook is None else hook.around
        self.clock: Clock = environment.kernel if hook is None or not hook.disturbs_time else hook
