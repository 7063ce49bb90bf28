"""What the checkpoint coordinator remembers, with its queries, invariants and fingerprint.

The rules are told at the top of ``engine.checkpoint.coordinator``.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from engine.checkpoint.completed_store import CompletedCheckpoint, CompletedCheckpointStore, JobStatus
from engine.checkpoint.coordinator_config import CoordinatorConfig
from engine.checkpoint.failure_manager import CheckpointFailureManager
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import TaskId
from engine.checkpoint.pending import PendingCheckpoint, PendingPhase
from engine.checkpoint.plan import CheckpointGraph, TaskStatus
from engine.checkpoint.requests import CheckpointRequestDecider, TriggerRequest
from engine.checkpoint.shared_state_registry import SharedStateRegistry
from engine.checkpoint.statistics import CheckpointStatistics
from engine.elements.events import CheckpointOptions

_REMEMBERED_EXPIRED = 16
"""Expired ids that are told apart from unknown ones (Flink: ``NUM_GHOST_CHECKPOINT_IDS``)."""


class CoordinatorState(Enum):
    """Where in its life the coordinator is."""

    IDLE = "idle"
    SCHEDULING = "scheduling"
    SHUT_DOWN = "shut_down"


class CoordinatorBase:
    """All that the coordinator remembers."""

    def __init__(
        self,
        graph: CheckpointGraph,
        config: CoordinatorConfig,
        options: CheckpointOptions | None = None,
        statistics: CheckpointStatistics | None = None,
        *,
        operator_coordinators: tuple[str, ...] = (),
        master_hooks: tuple[str, ...] = (),
    ) -> None:
        """``options``: what the barriers of an ordinary checkpoint carry, by default aligned ones. ``statistics``:
        those of a coordinator that has died, to be continued. ``operator_coordinators``, ``master_hooks``: the names
        of those that take part in every checkpoint before the tasks do.

        :raises ConfigurationError: when ``config`` does not go with them
        """
        self.options = CheckpointOptions() if options is None else options
        config.check_fits(self.options)
        self.config = config
        self._operator_coordinators = operator_coordinators
        self._master_hooks = master_hooks
        self.statistics = CheckpointStatistics() if statistics is None else statistics
        self._graph = graph
        self._state = CoordinatorState.IDLE
        self._attempt = 0
        # That of this coordinator; 0 before it has begun.
        self._first_attempt = 0
        # The attempt each task was deployed in, which is an older one for those that a regional restart left alone.
        self._attempts: dict[TaskId, int] = dict.fromkeys(graph.tasks(), 0)
        self._in_backlog: dict[TaskId, None] = {}
        self._statuses: dict[TaskId, TaskStatus] = dict.fromkeys(graph.tasks(), TaskStatus.DEPLOYING)
        self._decider = CheckpointRequestDecider(config.max_concurrent, config.pause_ns)
        self._failures = CheckpointFailureManager(config.tolerable_failures)
        self._store = CompletedCheckpointStore(config.num_retained)
        self._registry = SharedStateRegistry()
        self._pending: dict[int, PendingCheckpoint] = {}
        self._next_id = 1
        self._id_refusal: CheckpointFailureReason | None = None
        self._next_sequence = 0
        self._planned_ns: int | None = None
        self._triggering: int | None = None
        self._to_finalize: list[int] = []
        self._finalizing: int | None = None
        self._being_deleted = 0
        self._last_completion_ns = 0
        # Ids whose files belong to a durable checkpoint, or may do: no straggling message may get them deleted.
        # With the state that each task delivered, where that is known here and the checkpoint may be subsumed one day.
        self._durable: dict[int, dict[TaskId, object]] = {}
        self._expired: deque[int] = deque(maxlen=_REMEMBERED_EXPIRED)
        self._job_status: JobStatus | None = None

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def state(self) -> CoordinatorState:
        """Idle, scheduling or shut down."""
        return self._state

    @property
    def is_scheduling(self) -> bool:
        """Whether periodic checkpoints are being taken."""
        return self._state is CoordinatorState.SCHEDULING

    @property
    def waiting_labels(self) -> tuple[str, ...]:
        """The labels of all requests whose outcome somebody still waits for."""
        requests = (*self._decider.queued, *(pending.request for pending in self._pending.values()))
        return tuple(request.label for request in requests if request.label is not None)

    @property
    def attempt(self) -> int:
        """The current attempt."""
        return self._attempt

    def attempt_of(self, task: TaskId) -> int:
        """The attempt in which a task was deployed last."""
        return self._attempts[task]

    @property
    def next_checkpoint_id(self) -> int:
        """The id that the next checkpoint will get."""
        return self._next_id

    @property
    def is_triggering(self) -> bool:
        """Whether a checkpoint is being prepared, whose barriers have not been sent yet."""
        return self._triggering is not None

    def missing(self, checkpoint_id: int) -> tuple[TaskId, ...]:
        """The tasks that have yet to acknowledge a pending checkpoint; none of one that is not pending."""
        pending = self._pending.get(checkpoint_id)
        return () if pending is None else tuple(pending.waiting)

    @property
    def pending_ids(self) -> tuple[int, ...]:
        """Pending checkpoints, oldest first."""
        return tuple(sorted(self._pending))

    @property
    def finalizing_id(self) -> int | None:
        """The checkpoint whose metadata is being written."""
        return self._finalizing

    @property
    def completed(self) -> tuple[CompletedCheckpoint, ...]:
        """Retained checkpoints, oldest first."""
        return self._store.entries

    @property
    def completed_ids(self) -> tuple[int, ...]:
        """Their ids."""
        return tuple(entry.checkpoint_id for entry in self._store.entries)

    @property
    def latest_completed_id(self) -> int:
        """The newest of them, 0 while there is none."""
        return self._store.latest_id

    @property
    def shared_state_keys(self) -> tuple[str, ...]:
        """All shared state that somebody uses or is about to, in the order of first registration."""
        return self._registry.keys

    @property
    def queued(self) -> tuple[TriggerRequest, ...]:
        """Requests that wait, in order."""
        return self._decider.queued

    @property
    def expired_ids(self) -> tuple[int, ...]:
        """The last expired ids, oldest first."""
        return tuple(self._expired)

    def restore_point(self) -> CompletedCheckpoint | None:
        """What a failed job is restored from. Only to be asked once no metadata is being written."""
        assert self._finalizing is None, f"the outcome of checkpoint {self._finalizing} is not known yet"
        return self._store.latest

    def validate(self) -> None:
        """Assert the invariants of the coordinator and of its parts."""
        self._decider.validate()
        self._failures.validate()
        self._store.validate()
        self._registry.validate()
        is_over = self._job_status is not None and self._finalizing is None
        assert self._registry.is_open is not is_over, self._job_status
        for pending in self._pending.values():
            pending.validate()
        unforced = [pending for pending in self._pending.values() if not pending.request.is_forced]
        assert len(unforced) <= self.config.max_concurrent, self.pending_ids
        assert all(0 < id_ < self._next_id for id_ in (*self._pending, *self.completed_ids)), self._next_id
        assert not any(id_ in self._pending for id_ in self.completed_ids), self.pending_ids
        in_phase = {
            phase: [id_ for id_, pending in self._pending.items() if pending.phase is phase]
            for phase in PendingPhase
        }
        optional = [[] if id_ is None else [id_] for id_ in (self._triggering, self._finalizing)]
        assert in_phase[PendingPhase.INITIALIZING] + in_phase[PendingPhase.PREPARING] == optional[0], in_phase
        assert in_phase[PendingPhase.FINALIZING] == optional[1], in_phase
        assert sorted(in_phase[PendingPhase.FULLY_ACKNOWLEDGED]) == sorted(self._to_finalize), in_phase
        assert self._finalizing is not None or not self._to_finalize, self._to_finalize
        assert self._planned_ns is None or self._state is CoordinatorState.SCHEDULING, self._planned_ns
        if self._state is CoordinatorState.SHUT_DOWN:
            assert self.pending_ids in ((), (self._finalizing,)), self.pending_ids
            assert not self.queued, self.queued
        assert self._being_deleted >= 0, self._being_deleted
        assert all(attempt <= self._attempt for attempt in self._attempts.values()), self._attempts

    def undisturbed_fingerprint(self, now_ns: int) -> tuple[object, ...]:
        """What decides what happens next as long as nothing fails: without attempts, and without what is complete."""
        return (
            self._state.value,
            self._next_id,
            self._triggering,
            tuple(self._to_finalize),
            self._finalizing,
            self._being_deleted,
            tuple(self._expired),
            self._job_status and self._job_status.value,
            tuple(self._statuses[task].value for task in self._graph.tasks()),
            tuple(sorted(self._in_backlog)),
            self._decider.fingerprint(),
            tuple(self._pending[id_].fingerprint(now_ns) for id_ in sorted(self._pending)),
        )

    def fingerprint(self, now_ns: int = 0) -> tuple[object, ...]:
        """All state that decides what happens next; times relative to ``now_ns``."""
        return (
            self._state.value,
            self._attempt,
            self._first_attempt,
            self._next_id,
            self._id_refusal and self._id_refusal.name,
            self._planned_ns and self._planned_ns - now_ns,
            max(0, self._last_completion_ns + self.config.pause_ns - now_ns),
            self._triggering,
            tuple(self._to_finalize),
            self._finalizing,
            self._being_deleted,
            tuple(self._expired),
            tuple(self._durable),
            self._job_status and self._job_status.value,
            tuple((task, self._statuses[task].value, self._attempts[task]) for task in self._graph.tasks()),
            tuple(sorted(self._in_backlog)),
            self._decider.fingerprint(),
            self._failures.fingerprint(),
            self._store.fingerprint(),
            self._registry.fingerprint(),
            tuple(self._pending[id_].fingerprint(now_ns) for id_ in sorted(self._pending)),
        )
