"""What all tasks of one attempt share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from engine.checkpoint.coordinator import Acknowledge, Decline
from engine.graph.partitioner import KeyTypeAgreement
from engine.observe.trace_events import Instrument
from engine.protocols.interface import CheckpointProtocol
from engine.runtime.config import CostModel, DebloatSettings
from engine.runtime.kernel import Kernel
from state_backends.api import StateBackend
from state_backends.files import FileSystem
from state_backends.snapshots import ChannelName

if TYPE_CHECKING:
    from engine.graph.plan import ChannelPlan, ExecutionPlan
    from engine.observe.provenance import Provenance
    from engine.runtime.hook import RunHook
    from engine.runtime.kernel import Post
    from engine.runtime.storage import LocalFiles
    from engine.runtime.tasks.operator_messages import BarrierProcessed, OperatorEvent
    from engine.runtime.tasks.source_progress import SourceProgress
    from engine.runtime.tasks.task import Task
    from engine.runtime.tasks.tracking import RunTracking
    from state_backends.snapshots import CheckpointLocation, CheckpointStorage


class Master(Protocol):
    """What a task may tell the job manager."""

    def task_reached_end(self, task: Task) -> None:
        """All input of the task has ended and its operators have finished."""

    def task_finished(self, task: Task) -> None:
        """The task is closed."""

    def task_recovered(self, task: Task) -> None:
        """All restored records in flight are behind the task: it counts as running now."""

    def task_failed(self, report: tuple[int, str, Exception]) -> None:
        """``(attempt, task, error)`` (kernel event)."""

    def receive_acknowledge(self, message: Acknowledge) -> None:
        """A task's part of a checkpoint is durable (kernel event)."""

    def receive_decline(self, message: Decline) -> None:
        """A task could not take its part of a checkpoint (kernel event)."""

    def operator_event(self, message: OperatorEvent) -> None:
        """An operator has sent something to its coordinator (kernel event)."""

    def barrier_processed(self, message: BarrierProcessed) -> None:
        """The snapshot of a task whose operators have coordinators has been taken (kernel event)."""

    def source_backlog(self, task: Task, is_backlog: bool) -> None:
        """A source has begun, or ended, to work off a backlog."""

    def note(self, text: str) -> None:
        """Something a user should know that is no error."""


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """Shared by the tasks of one attempt; read-only."""

    plan: ExecutionPlan
    attempt: int
    incarnation: int
    kernel: Kernel
    master: Master
    sources: SourceProgress
    """Told of what sources emit."""
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
    """What tasks keep beside them while they run."""
    snapshot_compression: str
    counters: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    """``(operator uid, subtask) -> counter name -> value``, over all attempts of the run."""
    losses: dict[str, None] = field(default_factory=dict)
    """What sinks can never commit, in the order of telling, over all attempts of the run."""
    starts_from_another_run: bool = False
    """Whether the attempt starts from the snapshot that the job was started from, not from one of its own."""
    allow_non_restored_state: bool = False
    """Whether operator state may be dropped that no operator asks for."""
    debloating: DebloatSettings | None = None
    hook: RunHook | None = None
    """Absent when nobody interferes."""
    provenance: Provenance | None = None
    """Who is told what caused what, if anybody is."""
    tracking: RunTracking | None = None
    """Absent when records are not tracked."""
    _key_types: dict[int, KeyTypeAgreement] = field(default_factory=dict, init=False)

    def key_type_agreement(self, vertex: int) -> KeyTypeAgreement:
        """What all senders to a keyed vertex, and the state of its subtasks, agree on."""
        return self._key_types.setdefault(vertex, KeyTypeAgreement())

    def target_input(self, edge: int) -> int:
        """Which input of its target an edge of the plan feeds: 0 for the first or only one, 1 for the second."""
        return self.plan.edges[edge].target_input

    def channel_name(self, channel: ChannelPlan) -> ChannelName:
        """What identifies a channel in a checkpoint, whatever index it has in this plan."""
        edge = self.plan.edges[channel.edge]
        return ChannelName(edge.name, channel.sender_subtask, channel.receiver_subtask)

    def resolve_path(self, path: str) -> str:
        """A relative path is below the run's output directory."""
        return path if path.startswith("/") else f"{self.output_dir}/{path}"
