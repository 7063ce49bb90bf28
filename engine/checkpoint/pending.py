"""A checkpoint between its id and its end (Flink: ``PendingCheckpoint``).

Phases, only ever forward::

    INITIALIZING -> PREPARING -> TRIGGERED -> FULLY_ACKNOWLEDGED -> FINALIZING

In the last one the metadata is being written and may become durable at any instant: from there on nothing aborts the
checkpoint but the failure of that write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from engine.checkpoint.messages import Acknowledge, FinishedState, TaskId, WriteMetadata
from engine.checkpoint.operator_coordinators import Preparation
from engine.checkpoint.plan import CheckpointPlan, finished_state
from engine.checkpoint.requests import TriggerRequest
from engine.checkpoint.shared_state_registry import SharedState
from engine.elements.events import CheckpointBarrier, SnapshotKind


class PendingPhase(IntEnum):
    """How far it has come."""

    INITIALIZING = 0
    PREPARING = 1
    TRIGGERED = 2
    FULLY_ACKNOWLEDGED = 3
    FINALIZING = 4


@dataclass(slots=True)
class PendingCheckpoint:
    """What is known of one pending checkpoint."""

    barrier: CheckpointBarrier
    request: TriggerRequest
    plan: CheckpointPlan
    phase: PendingPhase = PendingPhase.INITIALIZING
    acknowledgements: dict[TaskId, Acknowledge] = field(default_factory=dict)
    preparation: Preparation = field(default_factory=Preparation)
    waiting: dict[TaskId, None] = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = dict.fromkeys(self.plan.wait)

    @property
    def checkpoint_id(self) -> int:
        """Its id."""
        return self.barrier.checkpoint_id

    @property
    def kind(self) -> SnapshotKind:
        """Checkpoint, full checkpoint or savepoint."""
        return self.barrier.options.kind

    @property
    def is_savepoint(self) -> bool:
        """Whether the user will own it."""
        return self.request.is_savepoint

    @property
    def has_location(self) -> bool:
        """Whether there is something in storage to delete when it fails."""
        return self.phase is not PendingPhase.INITIALIZING

    @property
    def can_be_aborted(self) -> bool:
        """Not while its metadata is being written: it may be durable already."""
        return self.phase is not PendingPhase.FINALIZING

    @property
    def is_fully_acknowledged(self) -> bool:
        """Whether every task it waits for has delivered."""
        return not self.waiting

    def record(self, acknowledgement: Acknowledge) -> None:
        """Take the part of a task it waits for."""
        assert self.phase is PendingPhase.TRIGGERED, (self.checkpoint_id, self.phase)
        del self.waiting[acknowledgement.task]
        self.acknowledgements[acknowledgement.task] = acknowledgement

    def ordered_acknowledgements(self) -> tuple[Acknowledge, ...]:
        """The parts in task order, so that the metadata does not depend on the order of arrival."""
        return tuple(self.acknowledgements[task] for task in sorted(self.acknowledgements))

    def delivered_states(self) -> dict[TaskId, object]:
        """The state of each task, by which a message that comes twice is told from another one. Nothing for a
        savepoint: it is never subsumed, so nobody would ever forget it again."""
        if self.is_savepoint:
            return {}
        return {task: acknowledgement.state for task, acknowledgement in self.acknowledgements.items()}

    def shared_state(self) -> tuple[SharedState, ...]:
        """The shared state it uses, once per key, in task order."""
        by_key = {state.key: state for ack in self.ordered_acknowledgements() for state in ack.shared}
        return tuple(by_key.values())

    def write_instruction(self) -> WriteMetadata:
        """What makes it durable; raises ``PartlyFinishedUnionStateError``."""
        finished: FinishedState = finished_state(self.plan, self.acknowledgements)
        return WriteMetadata(
            self.checkpoint_id,
            self.kind,
            self.barrier.timestamp_ns,
            self.ordered_acknowledgements(),
            finished,
            self.barrier.options,
            self.preparation.ordered(self.preparation.coordinator_states, self.preparation.coordinators),
            self.preparation.ordered(self.preparation.hook_states, self.preparation.hooks),
        )

    def validate(self) -> None:
        """Assert the invariants."""
        assert not any(task in self.waiting for task in self.acknowledgements), self.checkpoint_id
        assert len(self.waiting) + len(self.acknowledgements) == len(self.plan.wait), self.checkpoint_id
        if self.phase >= PendingPhase.FULLY_ACKNOWLEDGED:
            assert self.is_fully_acknowledged, (self.checkpoint_id, self.waiting)
        self.preparation.validate()
        if self.phase < PendingPhase.TRIGGERED:
            assert not self.acknowledgements, self.checkpoint_id
        else:
            assert self.preparation.is_complete, self.checkpoint_id

    def fingerprint(self, now_ns: int) -> tuple[object, ...]:
        """All state that decides what happens next; times relative to ``now_ns``."""
        return (
            self.checkpoint_id,
            self.kind.value,
            self.request.is_forced,
            self.request.is_synchronous,
            self.request.label,
            self.barrier.timestamp_ns - now_ns,
            int(self.phase),
            self.preparation.fingerprint(),
            tuple(self.waiting),
            tuple(sorted(self.acknowledgements)),
        )
