"""State of a completed checkpoint, assigned to the subtasks of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.checkpoint.restore import RestoreTarget, plan_restore
from engine.runtime.restored_channels import InFlight, restore_channels
from state_backends.handles import KeyedStateHandle, OperatorStateHandle
from state_backends.heap import HeapKeyedStateBackend
from state_backends.key_groups import KeyType
from state_backends.operator_state import OperatorStateBackend
from state_backends.snapshot import StateReader

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan
    from state_backends.storage import CheckpointMetadata, CheckpointStorage


@dataclass(frozen=True, slots=True)
class RestoredOperator:
    """What one operator in one subtask gets back."""

    keyed: tuple[KeyedStateHandle, ...]
    operator: tuple[OperatorStateHandle, ...]
    reader: StateReader

    def restore_keyed(self, backend: HeapKeyedStateBackend) -> None:
        """Fill a fresh keyed backend."""
        backend.restore(self.keyed, self.reader)

    def restore_operator(self, backend: OperatorStateBackend) -> None:
        """Fill a fresh operator state backend."""
        backend.restore(self.operator, self.reader)


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
    """Whether records were in flight anywhere: then every task reads what is restored before anything new."""
    channels: Mapping[int, InFlight] = field(default_factory=dict)
    """Records in flight, by index of the channel."""
    key_types: Mapping[int, KeyType] = field(default_factory=dict)
    """By vertex: the type of the keys among its records in flight."""

    @classmethod
    def assign(
        cls,
        metadata: CheckpointMetadata,
        plan: ExecutionPlan,
        storage: CheckpointStorage,
        *,
        allow_non_restored_state: bool,
    ) -> RestoredJob:
        """Give every subtask of ``plan`` its part of the checkpoint.

        Raises :class:`engine.elements.errors.JobChangedError` when the job does not fit its state.
        """
        targets = [
            RestoreTarget(
                operator.uid,
                operator.name,
                vertex.parallelism,
                vertex.max_parallelism,
                vertex.is_max_parallelism_derived,
            )
            for vertex, operator in plan.operators()
        ]
        restore = plan_restore(
            metadata.operators, targets, allow_non_restored_state=allow_non_restored_state
        )
        reader = storage.reader(metadata.checkpoint_id)
        operators = {
            key: RestoredOperator(state.keyed, state.operator, reader) for key, state in restore.subtasks.items()
        }
        in_flight = restore_channels(metadata, plan, reader, allow_non_restored_state=allow_non_restored_state)
        return cls(
            metadata.checkpoint_id,
            metadata.timestamp,
            operators,
            (*restore.dropped, *in_flight.dropped),
            in_flight.any,
            in_flight.channels,
            in_flight.key_types,
        )

    def for_task(self, subtask: int, uids: Iterable[str]) -> dict[str, RestoredOperator]:
        """What the operators ``uids`` of one subtask get back."""
        return {uid: self.operators[uid, subtask] for uid in uids if (uid, subtask) in self.operators}
