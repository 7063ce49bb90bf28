"""A checkpoint between its id and its end (Flink: ``PendingCheckpoint``).

Phases, only ever forward::

    INITIALIZING -> PREPARING -> TRIGGERED -> FULLY_ACKNOWLEDGED -> FINALIZING

In the last one the metadata is being written and may become durable at any instant: from there on nothing aborts the
checkpoint but the failure of that write. One checkpoint at a time is prepared, and one at a time is finalized.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from engine.checkpoint.messages import Acknowledge, FinishedState, TaskId, WriteMetadata
from engine.checkpoint.operator_coordinators import Preparation
from engine.checkpoint.plan import CheckpointPlan, finished_state
from engine.checkpoint.requests import TriggerRequest
from engine.checkpoint.shared_state_registry import SharedState
from engine.elements.events import CheckpointBarrier, SnapshotKind

_REMEMBERED_EXPIRED = 16
"""Expired ids that are told apart from unknown ones (Flink: ``NUM_GHOST_CHECKPOINT_IDS``)."""


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


class PendingSet:
    """All pending checkpoints of a job. Knows which one is being prepared, which ones wait for their metadata to be
    written and which one's is being written, and the ids that have expired last."""

    def __init__(self) -> None:
        self._by_id: dict[int, PendingCheckpoint] = {}
        self._preparing_id: int | None = None
        self._fully_acknowledged: list[int] = []
        self._finalizing_id: int | None = None
        self._expired: deque[int] = deque(maxlen=_REMEMBERED_EXPIRED)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def ids(self) -> tuple[int, ...]:
        """Pending checkpoints, oldest first."""
        return tuple(sorted(self._by_id))

    @property
    def in_order(self) -> tuple[PendingCheckpoint, ...]:
        """The checkpoints of ``ids``."""
        return tuple(self._by_id[checkpoint_id] for checkpoint_id in sorted(self._by_id))

    @property
    def is_preparing(self) -> bool:
        """Whether there is a checkpoint whose barriers have not been sent yet."""
        return self._preparing_id is not None

    @property
    def finalizing_id(self) -> int | None:
        """The checkpoint whose metadata is being written."""
        return self._finalizing_id

    @property
    def expired_ids(self) -> tuple[int, ...]:
        """The last expired ids, oldest first."""
        return tuple(self._expired)

    def get(self, checkpoint_id: int) -> PendingCheckpoint | None:
        """The checkpoint, ``None`` when it is not pending."""
        return self._by_id.get(checkpoint_id)

    def missing(self, checkpoint_id: int) -> tuple[TaskId, ...]:
        """The tasks that have yet to acknowledge a pending checkpoint; none of one that is not pending."""
        pending = self._by_id.get(checkpoint_id)
        return () if pending is None else tuple(pending.waiting)

    def in_preparation(self, checkpoint_id: int) -> PendingCheckpoint | None:
        """The checkpoint, ``None`` unless it waits for operator coordinators or master hooks."""
        pending = self._by_id.get(checkpoint_id)
        return pending if pending is not None and pending.phase is PendingPhase.PREPARING else None

    def add(self, pending: PendingCheckpoint) -> None:
        """The checkpoint got its id and is being prepared."""
        self._by_id[pending.checkpoint_id] = pending
        self._preparing_id = pending.checkpoint_id

    def triggered(self, pending: PendingCheckpoint) -> None:
        """Everything that comes before the barriers is done."""
        pending.phase = PendingPhase.TRIGGERED
        self._preparing_id = None
        # It may wait for no task at all.
        self._queue_if_acknowledged(pending)

    def acknowledge(self, pending: PendingCheckpoint, part: Acknowledge) -> bool:
        """Take the part of a task it waits for; whether every task has delivered by that."""
        pending.record(part)
        return self._queue_if_acknowledged(pending)

    def _queue_if_acknowledged(self, pending: PendingCheckpoint) -> bool:
        if pending.is_fully_acknowledged:
            pending.phase = PendingPhase.FULLY_ACKNOWLEDGED
            self._fully_acknowledged.append(pending.checkpoint_id)
        return pending.is_fully_acknowledged

    def next_to_finalize(self) -> PendingCheckpoint | None:
        """The checkpoint whose turn it is; ``None`` while the metadata of another one is being written."""
        if self._finalizing_id is not None or not self._fully_acknowledged:
            return None
        return self._by_id[self._fully_acknowledged.pop(0)]

    def finalize(self, pending: PendingCheckpoint) -> None:
        """Its metadata is being written from now on."""
        pending.phase = PendingPhase.FINALIZING
        self._finalizing_id = pending.checkpoint_id

    def finalized(self, checkpoint_id: int) -> PendingCheckpoint:
        """The metadata has been written, or could not be."""
        assert self._finalizing_id == checkpoint_id, f"no metadata of checkpoint {checkpoint_id} is being written"
        self._finalizing_id = None
        return self._by_id[checkpoint_id]

    def remove(self, pending: PendingCheckpoint, *, expired: bool = False) -> None:
        """It is pending no longer."""
        checkpoint_id = pending.checkpoint_id
        del self._by_id[checkpoint_id]
        if self._preparing_id == checkpoint_id:
            self._preparing_id = None
        if checkpoint_id in self._fully_acknowledged:
            self._fully_acknowledged.remove(checkpoint_id)
        if expired:
            self._expired.append(checkpoint_id)

    def validate(self) -> None:
        """Assert the invariants."""
        by_phase: dict[PendingPhase, list[int]] = {phase: [] for phase in PendingPhase}
        for checkpoint_id, pending in self._by_id.items():
            pending.validate()
            by_phase[pending.phase].append(checkpoint_id)
        prepared = by_phase[PendingPhase.INITIALIZING] + by_phase[PendingPhase.PREPARING]
        assert prepared == ([] if self._preparing_id is None else [self._preparing_id]), by_phase
        finalizing = [] if self._finalizing_id is None else [self._finalizing_id]
        assert by_phase[PendingPhase.FINALIZING] == finalizing, by_phase
        waiting = self._fully_acknowledged
        assert sorted(by_phase[PendingPhase.FULLY_ACKNOWLEDGED]) == sorted(waiting), by_phase
        assert finalizing or not waiting, waiting

    def fingerprint(self, now_ns: int) -> tuple[object, ...]:
        """All state that decides what happens next; times relative to ``now_ns``."""
        return (
            self._preparing_id,
            tuple(self._fully_acknowledged),
            self._finalizing_id,
            tuple(self._expired),
            tuple(pending.fingerprint(now_ns) for pending in self.in_order),
        )
