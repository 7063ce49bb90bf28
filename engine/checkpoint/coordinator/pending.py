"""A request for a checkpoint, and the checkpoint between its id and its end (Flink: ``PendingCheckpoint``).

Phases, only ever forward::

    INITIALIZING -> PREPARING -> TRIGGERED -> FULLY_ACKNOWLEDGED -> FINALIZING

In the last one the metadata is being written and may become durable at any instant: from there on only the failure of
that write aborts the checkpoint. One checkpoint at a time is prepared, and one at a time is finalized.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from engine.checkpoint.coordinator.coordinator_messages import Acknowledge, FinishedState, TaskId, WriteMetadata
from engine.checkpoint.coordinator.deployment import CheckpointPlan, finished_state
from engine.checkpoint.coordinator.shared_state_registry import SharedState
from engine.elements.events import CheckpointBarrier, SavepointFormat, SnapshotKind, StopMode
from state_backends.base import value_class

_REMEMBERED_EXPIRED = 16
"""Expired ids that differ from unknown ones (Flink: ``NUM_GHOST_CHECKPOINT_IDS``)."""


class RequestedForm(Enum):
    """The form that a user requests (Flink: ``CheckpointType``)."""

    CONFIGURED = "configured"
    FULL = "full"
    INCREMENTAL = "incremental"


@value_class
class TriggerRequest:
    """One request for a snapshot.

    ``sequence``     order of submission, unique;
    ``requested_ns`` when it was made; its checkpoint, if one is triggered, has a time of its own;
    ``label``        names the request when its outcome is reported, ``None`` when no requester waits for it;
    ``is_forced``    may exceed ``max_concurrent`` (a savepoint while unaligned checkpoints are off);
    ``is_synchronous``  a savepoint that stops the job (Flink: stop-with-savepoint);
    ``stop``         how it stops the job (``None``: the driver does not tell tasks);
    ``savepoint_format``  how a savepoint is written, ``None`` for a checkpoint.
    """

    sequence: int
    requested_ns: int
    label: str | None = None
    is_periodic: bool = False
    is_savepoint: bool = False
    is_forced: bool = False
    is_synchronous: bool = False
    form: RequestedForm = RequestedForm.CONFIGURED
    stop: StopMode | None = None
    savepoint_format: SavepointFormat | None = None

    def rank(self) -> tuple[bool, bool, bool, int, int]:
        """Its place in the queue: rule R1 of :mod:`engine.checkpoint.coordinator.triggering`."""
        return (not self.is_savepoint, not self.is_forced, self.is_periodic, self.requested_ns, self.sequence)

    def kind(self, full_required: bool) -> SnapshotKind:
        """The kind of snapshot that serves it; ``full_required``: earlier files must not be referenced."""
        if self.is_savepoint:
            return SnapshotKind.SAVEPOINT
        if full_required or self.form is RequestedForm.FULL:
            return SnapshotKind.FULL_CHECKPOINT
        return SnapshotKind.CHECKPOINT

    def fingerprint(self) -> tuple[object, ...]:
        """As plain values, without its time: the order of the queue already contains the effects of that."""
        by_rank = (self.is_savepoint, self.is_forced, self.is_periodic)
        savepoint = (self.stop and self.stop.value, self.savepoint_format and self.savepoint_format.value)
        return (*by_rank, self.label, self.is_synchronous, self.form.value, *savepoint)


class PendingPhase(IntEnum):
    """How far it has come."""

    INITIALIZING = 0
    PREPARING = 1
    TRIGGERED = 2
    FULLY_ACKNOWLEDGED = 3
    FINALIZING = 4


@dataclass(slots=True)
class PendingCheckpoint:
    """The known facts of one pending checkpoint.

    ``coordinators``, ``hooks``: the names of those that deliver before its tasks are triggered: operator coordinators,
    then master hooks. ``waiting``: the tasks that have yet to acknowledge; ``is_savepoint``: the user will own it.
    """

    barrier: CheckpointBarrier
    request: TriggerRequest
    plan: CheckpointPlan
    coordinators: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    phase: PendingPhase = PendingPhase.INITIALIZING
    acknowledgements: dict[TaskId, Acknowledge] = field(default_factory=dict)
    checkpoint_id: int = field(init=False)
    is_savepoint: bool = field(init=False)
    waiting: dict[TaskId, None] = field(init=False)
    _coordinator_states: dict[str, object] = field(default_factory=dict)
    _hook_states: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoint_id = self.barrier.checkpoint_id
        self.is_savepoint = self.request.is_savepoint
        self.waiting = dict.fromkeys(self.plan.wait)

    @property
    def kind(self) -> SnapshotKind:
        """Checkpoint, full checkpoint or savepoint."""
        return self.barrier.options.kind

    @property
    def has_location(self) -> bool:
        """Whether storage holds something to delete when it fails."""
        return self.phase is not PendingPhase.INITIALIZING

    @property
    def can_be_aborted(self) -> bool:
        """Not while its metadata is being written: it may be durable already."""
        return self.phase is not PendingPhase.FINALIZING

    # --- before the tasks are triggered ---------------------------------------------------------------------------

    @property
    def waiting_coordinators(self) -> tuple[str, ...]:
        """Coordinators whose state is not there yet."""
        return tuple(name for name in self.coordinators if name not in self._coordinator_states)

    @property
    def waiting_hooks(self) -> tuple[str, ...]:
        """Hooks that have not answered yet; they are called only once all coordinators have delivered."""
        return tuple(name for name in self.hooks if name not in self._hook_states)

    def on_coordinator_state(self, name: str, state: object) -> None:
        """A coordinator has delivered."""
        assert name in self.waiting_coordinators, name
        self._coordinator_states[name] = state

    def on_hook_state(self, name: str, state: object) -> None:
        """A hook has answered."""
        assert not self.waiting_coordinators, self.waiting_coordinators
        assert name in self.waiting_hooks, name
        self._hook_states[name] = state

    # --- parts of the tasks ---------------------------------------------------------------------------------------

    def record(self, acknowledgement: Acknowledge) -> None:
        """Take the part of a task it waits for."""
        assert self.phase is PendingPhase.TRIGGERED, (self.checkpoint_id, self.phase)
        del self.waiting[acknowledgement.task]
        self.acknowledgements[acknowledgement.task] = acknowledgement

    def ordered_acknowledgements(self) -> tuple[Acknowledge, ...]:
        """The parts in task order, so that the metadata does not depend on the order of arrival."""
        return tuple(self.acknowledgements[task] for task in sorted(self.acknowledgements))

    def delivered_states(self) -> dict[TaskId, object]:
        """The state of each task, to tell a message that comes twice from another one. Empty for a savepoint: it is
        never subsumed, so the entry would never be dropped."""
        if self.is_savepoint:
            return {}
        return {task: acknowledgement.state for task, acknowledgement in self.acknowledgements.items()}

    def shared_state(self) -> tuple[SharedState, ...]:
        """The shared state it uses, once per key, in task order."""
        by_key = {state.key: state for ack in self.ordered_acknowledgements() for state in ack.shared}
        return tuple(by_key.values())

    def write_instruction(self) -> WriteMetadata:
        """The instruction that makes it durable; raises ``PartlyFinishedUnionStateError``."""
        finished: FinishedState = finished_state(self.plan, self.acknowledgements)
        return WriteMetadata(
            self.checkpoint_id,
            self.kind,
            self.barrier.timestamp_ns,
            self.ordered_acknowledgements(),
            finished,
            self.barrier.options,
            # In the order of their names in the job, not of their arrival.
            tuple((name, self._coordinator_states[name]) for name in self.coordinators),
            tuple((name, self._hook_states[name]) for name in self.hooks),
        )

    def validate(self) -> None:
        assert not any(task in self.waiting for task in self.acknowledgements), self.checkpoint_id
        assert len(self.waiting) + len(self.acknowledgements) == len(self.plan.wait), self.checkpoint_id
        if self.phase >= PendingPhase.FULLY_ACKNOWLEDGED:
            assert not self.waiting, (self.checkpoint_id, self.waiting)
        assert all(name in self.coordinators for name in self._coordinator_states), self._coordinator_states
        assert all(name in self.hooks for name in self._hook_states), self._hook_states
        assert not self._hook_states or not self.waiting_coordinators, self.waiting_coordinators
        if self.phase < PendingPhase.TRIGGERED:
            assert not self.acknowledgements, self.checkpoint_id
        else:
            assert not self.waiting_hooks, self.checkpoint_id

    def fingerprint(self, now_ns: int) -> tuple[object, ...]:
        return (
            self.checkpoint_id,
            self.kind.value,
            self.request.is_forced,
            self.request.is_synchronous,
            self.request.label,
            self.barrier.timestamp_ns - now_ns,
            int(self.phase),
            (self.waiting_coordinators, self.waiting_hooks),
            tuple(self.waiting),
            tuple(sorted(self.acknowledgements)),
        )


class PendingSet:
    """All pending checkpoints of a job. Knows which one is being prepared, which ones wait for their metadata to be
    written and whose metadata is being written, and the ids that have expired last."""

    def __init__(self) -> None:
        self.by_id: dict[int, PendingCheckpoint] = {}
        self.preparing_id: int | None = None
        """The checkpoint whose barriers have not been sent yet."""
        self.finalizing_id: int | None = None
        """The checkpoint whose metadata is being written."""
        self.fully_acknowledged: list[int] = []
        """The checkpoints whose metadata is to be written, in the order in which their last parts came."""
        self._expired: deque[int] = deque(maxlen=_REMEMBERED_EXPIRED)

    @property
    def ids(self) -> tuple[int, ...]:
        """Pending checkpoints, oldest first."""
        return tuple(sorted(self.by_id))

    @property
    def in_order(self) -> tuple[PendingCheckpoint, ...]:
        """The checkpoints of ``ids``."""
        return tuple(self.by_id[checkpoint_id] for checkpoint_id in sorted(self.by_id))

    @property
    def expired_ids(self) -> tuple[int, ...]:
        """The last expired ids, oldest first."""
        return tuple(self._expired)

    def missing(self, checkpoint_id: int) -> tuple[TaskId, ...]:
        """The tasks that have yet to acknowledge a pending checkpoint; none of one that is not pending."""
        pending = self.by_id.get(checkpoint_id)
        return () if pending is None else tuple(pending.waiting)

    def in_preparation(self, checkpoint_id: int) -> PendingCheckpoint | None:
        """The checkpoint, ``None`` unless it waits for operator coordinators or master hooks."""
        pending = self.by_id.get(checkpoint_id)
        return pending if pending is not None and pending.phase is PendingPhase.PREPARING else None

    def add(self, pending: PendingCheckpoint) -> None:
        """The checkpoint got its id and is being prepared."""
        self.by_id[pending.checkpoint_id] = pending
        self.preparing_id = pending.checkpoint_id

    def triggered(self, pending: PendingCheckpoint) -> None:
        """All steps before the barriers are done."""
        pending.phase = PendingPhase.TRIGGERED
        self.preparing_id = None
        # The checkpoint may wait for no task at all.
        self._queue_if_acknowledged(pending)

    def acknowledge(self, pending: PendingCheckpoint, part: Acknowledge) -> bool:
        """Take the part of a task it waits for; returns whether every task has delivered now."""
        pending.record(part)
        return self._queue_if_acknowledged(pending)

    def _queue_if_acknowledged(self, pending: PendingCheckpoint) -> bool:
        if not pending.waiting:
            pending.phase = PendingPhase.FULLY_ACKNOWLEDGED
            self.fully_acknowledged.append(pending.checkpoint_id)
        return not pending.waiting

    def finalize(self, pending: PendingCheckpoint) -> None:
        """Its metadata is being written from now on."""
        pending.phase = PendingPhase.FINALIZING
        self.finalizing_id = pending.checkpoint_id

    def finalized(self, checkpoint_id: int) -> PendingCheckpoint:
        """The metadata has been written, or could not be."""
        assert self.finalizing_id == checkpoint_id, f"no metadata of checkpoint {checkpoint_id} is being written"
        self.finalizing_id = None
        return self.by_id[checkpoint_id]

    def remove(self, pending: PendingCheckpoint, *, expired: bool = False) -> None:
        """It is pending no longer."""
        checkpoint_id = pending.checkpoint_id
        del self.by_id[checkpoint_id]
        if self.preparing_id == checkpoint_id:
            self.preparing_id = None
        if checkpoint_id in self.fully_acknowledged:
            self.fully_acknowledged.remove(checkpoint_id)
        if expired:
            self._expired.append(checkpoint_id)

    def validate(self) -> None:
        if not self.by_id:
            none = (self.preparing_id, self.finalizing_id, self.fully_acknowledged)
            assert none == (None, None, []), none
            return
        by_phase: dict[PendingPhase, list[int]] = {phase: [] for phase in PendingPhase}
        for checkpoint_id, pending in self.by_id.items():
            pending.validate()
            by_phase[pending.phase].append(checkpoint_id)
        prepared = by_phase[PendingPhase.INITIALIZING] + by_phase[PendingPhase.PREPARING]
        assert prepared == ([] if self.preparing_id is None else [self.preparing_id]), by_phase
        finalizing = [] if self.finalizing_id is None else [self.finalizing_id]
        assert by_phase[PendingPhase.FINALIZING] == finalizing, by_phase
        waiting = self.fully_acknowledged
        assert sorted(by_phase[PendingPhase.FULLY_ACKNOWLEDGED]) == sorted(waiting), by_phase
        assert finalizing or not waiting, waiting

    def fingerprint(self, now_ns: int) -> tuple[object, ...]:
        return (
            self.preparing_id,
            tuple(self.fully_acknowledged),
            self.finalizing_id,
            tuple(self._expired),
            tuple(pending.fingerprint(now_ns) for pending in self.in_order),
        )
