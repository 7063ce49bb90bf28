"""State of a completed checkpoint, assigned to the subtasks of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.checkpoint.coordinator import CheckpointGraph
from engine.checkpoint.restore import RestorePlan, RestoreTarget, RestoreVertex, check_finished_markers, plan_restore
from engine.elements.errors import JobChangedError, MalformedStateError, WeirError
from engine.elements.operator import Operator
from engine.graph.plan import ExecutionPlan
from engine.observe.provenance import Provenance
from engine.runtime.storage.restored_channels import InFlight, restore_channels
from engine.runtime.storage.shared_files import check_forms
from state_backends.base import CorruptStateError, KeyType, StateBackendError
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointMetadata,
    KeyedStateHandle,
    OperatorStateHandle,
    StateReader,
)


@dataclass(frozen=True, slots=True)
class RestoredOperator:
    """The state that one operator in one subtask gets back."""

    keyed: tuple[KeyedStateHandle, ...]
    operator: tuple[OperatorStateHandle, ...]
    reader: StateReader


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """A checkpoint, ready to start an attempt from."""

    checkpoint_id: int
    timestamp_ns: int
    operators: Mapping[tuple[str, int], RestoredOperator]
    """By ``(uid, subtask)``."""
    dropped: tuple[str, ...] = ()
    """Uids whose state no operator of the plan claims, which was allowed."""
    has_channel_state: bool = False
    """Whether records were in flight anywhere: then every task reads restored records before new ones."""
    channels: Mapping[int, InFlight] = field(default_factory=dict)
    """Records in flight, by index of the channel."""
    key_types: Mapping[int, KeyType] = field(default_factory=dict)
    """By vertex: the type of the keys among its records in flight."""
    plan: ExecutionPlan | None = None
    """The plan to go on with when it differs from the requested one: state keeps its number of key groups, and a
    vertex whose number was only derived from its parallelism takes that over."""
    finished_vertices: frozenset[int] = frozenset()
    """Vertices that had finished as a whole: they are not run again."""
    coordinators: Mapping[str, bytes] = field(default_factory=dict)
    """The encoded states of operator coordinators, by uid."""

    @classmethod
    def assign(
        cls,
        metadata: CheckpointMetadata,
        plan: ExecutionPlan,
        location: CheckpointLocation,
        *,
        allow_non_restored_state: bool,
        state_backend: str = "heap",
        provenance: Provenance | None = None,
    ) -> RestoredJob:
        """Give every subtask of ``plan`` its part of the checkpoint. ``state_backend``: the name of the backend that
        reads it; ``provenance``: knows the causes of the records in flight.

        Raises :class:`engine.elements.errors.JobChangedError` when the job does not fit its state.
        """
        check_forms(metadata, state_backend)
        targets = [
            RestoreTarget(
                operator.uid,
                operator.name,
                vertex.parallelism,
                vertex.max_parallelism,
                vertex.is_max_parallelism_derived,
                operator.generated_uid,
            )
            for vertex, operator in plan.operators()
        ]
        restore = plan_restore(metadata.operators, targets, allow_non_restored_state=allow_non_restored_state)
        adapted = plan.with_max_parallelism(_max_parallelism(plan, restore))
        reader = location.reader()
        operators = {
            key: RestoredOperator(state.keyed, state.operator, reader) for key, state in restore.subtasks.items()
        }
        in_flight = restore_channels(
            metadata, adapted, reader, allow_non_restored_state=allow_non_restored_state, provenance=provenance
        )
        return cls(
            metadata.checkpoint_id,
            metadata.timestamp,
            operators,
            (*restore.dropped, *in_flight.dropped),
            in_flight.any,
            in_flight.channels,
            in_flight.key_types,
            None if adapted is plan else adapted,
            _finished_vertices(metadata, plan),
            restore.coordinators,
        )

    def for_task(self, subtask: int, uids: Iterable[str]) -> dict[str, RestoredOperator]:
        """The state that the operators ``uids`` of one subtask get back."""
        return {uid: self.operators[uid, subtask] for uid in uids if (uid, subtask) in self.operators}


def _max_parallelism(plan: ExecutionPlan, restore: RestorePlan) -> dict[int, int]:
    """By vertex, the number of key groups to go on with where it differs from the plan's.

    Raises :class:`JobChangedError` when operators that are in one chain now were written with different numbers.
    """
    changed: dict[int, int] = {}
    for vertex in plan.vertices:
        stateful = [operator for operator in vertex.operators if (operator.uid, 0) in restore.subtasks]
        wanted = {restore.max_parallelism[operator.uid]: operator.name for operator in stateful}
        if len(wanted) > 1:
            told = ", ".join(f"{name!r} with {number}" for number, name in sorted(wanted.items()))
            raise JobChangedError(
                f"the operators of {vertex.name!r} run in one task now, but their state was written with different "
                f"max parallelisms: {told}\n  give one of them a task of its own with chain=False"
            )
        for number in wanted:
            if number != vertex.max_parallelism:
                changed[vertex.index] = number
    return changed


def _finished_vertices(metadata: CheckpointMetadata, plan: ExecutionPlan) -> frozenset[int]:
    """Raises :class:`JobChangedError` when the graph does not fit the tasks that had finished."""
    if not any(subtask.finished for operator in metadata.operators for subtask in operator.subtasks.values()):
        return frozenset()
    vertices = [
        RestoreVertex(vertex.name, tuple(operator.uid for operator in vertex.operators)) for vertex in plan.vertices
    ]
    return frozenset(check_finished_markers(metadata.operators, vertices, CheckpointGraph.of(plan).edges))


def take_over_state(operator: Operator) -> None:
    """Have an operator take over its state.

    Raises :class:`engine.elements.errors.MalformedStateError` when it does not have the form that the operator writes.
    """
    try:
        operator.initialize_state()
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, CorruptStateError) as error:
        checkpoint_id = operator.context.restored_checkpoint_id()
        if checkpoint_id is None or isinstance(error, WeirError):
            raise
        if isinstance(error, StateBackendError) and not isinstance(error, CorruptStateError):
            raise
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, CorruptStateError):
            what = f"{error.path}: {error.what}"
        raise MalformedStateError(operator.context.uid, checkpoint_id, what) from error
