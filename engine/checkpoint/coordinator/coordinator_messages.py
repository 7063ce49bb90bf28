"""The messages between tasks and coordinator, and the coordinator's instructions to its driver.

Messages carry the attempt they were sent in; state handles are opaque here. Instructions are plain values, and the
tuple they come in is the order of execution.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from engine.checkpoint.coordinator.shared_state_registry import SharedState
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier, CheckpointOptions, SnapshotKind
from state_backends.base import value_class

TaskId = tuple[int, int]
"""``(vertex index, subtask)``."""

NONE_COMPLETED = 0
"""``latest_completed_id`` while nothing has completed (Flink's value; real ids start at 1)."""

NONE_SUBSUMED = -1
"""``last_subsumed_id`` when a completion subsumed nothing that may be deleted (Flink's value)."""


# --- tasks to coordinator -----------------------------------------------------------------------------------------


@value_class
class SubtaskCheckpointMetrics:
    """One subtask's row in the checkpoint table, under the names of Flink's (times in ns, sizes in bytes).

    ``checkpointed_bytes``  written for this checkpoint; ``full_bytes``  including what earlier ones wrote;
    ``processed_bytes``     taken by the task during alignment; ``persisted_bytes``  in-flight data in the snapshot.
    """

    start_delay_ns: int = 0
    alignment_ns: int = 0
    sync_ns: int = 0
    async_ns: int = 0
    checkpointed_bytes: int = 0
    full_bytes: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0

    @property
    def is_unaligned(self) -> bool:
        """Whether records in flight are part of the snapshot, whatever form the barrier had."""
        return self.persisted_bytes > 0


@value_class
class Acknowledge:
    """A task's part of a checkpoint is durable (Flink: ``AcknowledgeCheckpoint``).

    ``state``               everything the driver needs to write it into the metadata, or to delete it; ``None`` = none;
    ``operators_finished``  the task's operators had finished before the barrier, and it waits for its last completion;
    ``finished_on_restore`` the task was restored as finished: it ran no operator;
    ``uses_union_state``    the task holds union list state, which must not be partly finished;
    ``shared``              the shared state among ``state``: uploads, and placeholders for earlier ones;
    ``is_registered``       set by the coordinator: the registry manages ``shared`` now, so discarding this message
                            deletes private files only. Until then its uploads are deleted too, never placeholders.
    """

    checkpoint_id: int
    attempt: int
    task: TaskId
    state: object = None
    metrics: SubtaskCheckpointMetrics = SubtaskCheckpointMetrics()
    operators_finished: bool = False
    uses_union_state: bool = False
    shared: tuple[SharedState, ...] = ()
    is_registered: bool = False
    finished_on_restore: bool = False

    def registered(self, shared: tuple[SharedState, ...]) -> Acknowledge:
        """The message with its shared state as the registry knows it."""
        # Not by `replace`, which takes five times as long: nearly every message with keyed state is registered.
        return Acknowledge(
            self.checkpoint_id,
            self.attempt,
            self.task,
            self.state,
            self.metrics,
            self.operators_finished,
            self.uses_union_state,
            shared,
            True,
            self.finished_on_restore,
        )

    @property
    def discardable_shared(self) -> tuple[object, ...]:
        """Shared files that are deleted when this message is discarded."""
        if self.is_registered:
            return ()
        return tuple(state.handle for state in self.shared if state.handle is not None)


@value_class
class Decline:
    """A task will not take its part (Flink: ``DeclineCheckpoint``). ``cause`` is for the reader of the table, and so
    are ``metrics``: the task's measurements by then (Flink: ``reportIncompleteStats``)."""

    checkpoint_id: int
    attempt: int
    task: TaskId
    reason: CheckpointFailureReason
    cause: str = ""
    metrics: SubtaskCheckpointMetrics | None = None


# --- coordinator to driver ----------------------------------------------------------------------------------------


@value_class
class ArmPeriodicTimer:
    """Call ``on_timer`` at ``at_ns``. Replaces the earlier one; an outdated call is ignored anyway."""

    at_ns: int


@value_class
class DisarmPeriodicTimer:
    """The periodic timer is not needed any more."""


@value_class
class ArmTimeout:
    """Call ``on_timeout(checkpoint_id)`` at ``at_ns``."""

    checkpoint_id: int
    at_ns: int


@value_class
class DisarmTimeout:
    """The timeout of ``checkpoint_id`` is not needed any more; an outdated call is ignored anyway."""

    checkpoint_id: int


@value_class
class InitializeLocation:
    """Make the directory of the snapshot; answer ``on_location_ready`` or ``on_location_failed``.

    ``label``  of the request: the driver knows where its requester wants the savepoint.
    """

    checkpoint_id: int
    kind: SnapshotKind
    label: str | None = None


@value_class
class SnapshotOperatorCoordinators:
    """Have these operator coordinators take their snapshot and close their gateways; answer
    ``on_operator_coordinator_state`` for each, or ``on_preparation_failed``."""

    checkpoint_id: int
    names: tuple[str, ...]


@value_class
class CallMasterHooks:
    """Call these hooks; answer ``on_master_hook_state`` for each, or ``on_preparation_failed``."""

    checkpoint_id: int
    names: tuple[str, ...]


@value_class
class SendTrigger:
    """Send ``barrier`` to ``tasks``; report ``on_send_failed`` for a task that cannot be reached."""

    barrier: CheckpointBarrier
    tasks: tuple[TaskId, ...]


@value_class
class FinishedState:
    """The metadata's record of finished operators.

    ``fully_finished_vertices``  all subtasks have finished: their state is dropped;
    ``finished_subtasks``        finished ones of vertices that are only partly finished.
    """

    fully_finished_vertices: tuple[int, ...] = ()
    finished_subtasks: tuple[TaskId, ...] = ()


@value_class
class WriteMetadata:
    """All parts are here: make the checkpoint durable; answer ``on_metadata_written`` or ``on_metadata_failed``.

    ``acknowledgements`` are ordered by task; ``options`` are those of the barriers. ``coordinator_states`` and
    ``hook_states`` are those of operator coordinators and master hooks, with their names.
    """

    checkpoint_id: int
    kind: SnapshotKind
    timestamp_ns: int
    acknowledgements: tuple[Acknowledge, ...]
    finished: FinishedState
    options: CheckpointOptions = field(default_factory=CheckpointOptions)
    coordinator_states: tuple[tuple[str, object], ...] = ()
    hook_states: tuple[tuple[str, object], ...] = ()


@value_class
class NotifyComplete:
    """Tell ``tasks`` that the checkpoint is durable."""

    checkpoint_id: int
    last_subsumed_id: int
    tasks: tuple[TaskId, ...]


@value_class
class NotifyAborted:
    """Tell ``tasks`` that the checkpoint is given up, and which one completed last."""

    checkpoint_id: int
    latest_completed_id: int
    reason: CheckpointFailureReason
    tasks: tuple[TaskId, ...]


@value_class
class NotifyCoordinatorsComplete:
    """Tell these operator coordinators that the checkpoint is durable. Aborts that it caused were reported before."""

    checkpoint_id: int
    names: tuple[str, ...]


@value_class
class NotifyCoordinatorsAborted:
    """Tell these operator coordinators that the checkpoint is given up; their gateways open again."""

    checkpoint_id: int
    names: tuple[str, ...]


@value_class
class DiscardPendingCheckpoint:
    """Delete the parts received for an aborted checkpoint and its location; answer ``on_discarded``."""

    checkpoint_id: int
    acknowledgements: tuple[Acknowledge, ...]


@value_class
class DiscardCheckpoint:
    """Delete a completed checkpoint that is not retained any more; answer ``on_discarded``."""

    checkpoint_id: int


@value_class
class DiscardAcknowledgedState:
    """Delete the state in a message that no checkpoint takes. Needs no answer."""

    acknowledgement: Acknowledge


@value_class
class DiscardSharedState:
    """Delete shared files that no retained checkpoint uses. Needs no answer; a file may be gone already
    (a message that was late or came twice may have brought its name back)."""

    handles: tuple[object, ...]


class IgnoredBecause(Enum):
    """Why a message changed nothing."""

    OLDER_ATTEMPT = "it was sent in an older attempt"
    DUPLICATE = "the task has acknowledged already"
    UNKNOWN_TASK = "the task is not part of this checkpoint"
    NOT_PENDING = "the checkpoint is not pending (any more)"
    EXPIRED = "the checkpoint has expired"
    DURABLE = "the checkpoint is, or may be, durable"
    BEING_FINALIZED = "the checkpoint is being made durable"
    SHUT_DOWN = "the coordinator has shut down"
    UNKNOWN_SHARED_STATE = "it refers to shared state that does not exist (any more)"


@value_class
class MessageIgnored:
    """For the record: a message was ignored, and why."""

    message: Acknowledge | Decline
    why: IgnoredBecause


@value_class
class RequestCompleted:
    """The request with this label led to a durable snapshot."""

    label: str
    checkpoint_id: int


@value_class
class RequestFailed:
    """The request with this label failed; ``checkpoint_id`` is ``None`` when it never got an id."""

    label: str
    reason: CheckpointFailureReason
    checkpoint_id: int | None = None


@value_class
class FailJob:
    """The failure budget is used up. Always the last instruction. ``task``: the one to blame, if any."""

    reason: CheckpointFailureReason
    checkpoint_id: int | None = None
    task: TaskId | None = None


CoordinatorInstruction = (
    ArmPeriodicTimer
    | DisarmPeriodicTimer
    | ArmTimeout
    | DisarmTimeout
    | InitializeLocation
    | SnapshotOperatorCoordinators
    | CallMasterHooks
    | SendTrigger
    | WriteMetadata
    | NotifyComplete
    | NotifyAborted
    | NotifyCoordinatorsComplete
    | NotifyCoordinatorsAborted
    | DiscardPendingCheckpoint
    | DiscardCheckpoint
    | DiscardAcknowledgedState
    | DiscardSharedState
    | MessageIgnored
    | RequestCompleted
    | RequestFailed
    | FailJob
)
CoordinatorInstructions = tuple[CoordinatorInstruction, ...]
Out = list[CoordinatorInstruction]
"""The list to which the parts of the coordinator append their instructions."""
