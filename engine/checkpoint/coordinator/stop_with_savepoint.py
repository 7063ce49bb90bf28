"""Stopping a job with a savepoint: which part does what, and what follows when half of it fails.

Rules (Flink: ``StopWithSavepointTerminationManager``, ``StopWithSavepointTerminationHandlerImpl``)
------------------------------------------------------------------------------------------------
* A job with a blocking output refuses (BLOCKING_OUTPUT_EXIST): its records would have no reader.
* The periodic scheduler stops first, which aborts everything queued and pending; then the savepoint is triggered.
* The savepoint decides first, the ends of the tasks second, in whatever order they come.
* Savepoint failed: the requester hears why, the scheduler starts again, and the job goes on (if it still runs; the
  scheduler checks that). From then on this request ignores how the tasks end.
* Savepoint complete and all tasks finished: the requester gets its path.
* Savepoint complete and some task not finished: global failover and an error. The savepoint is kept, and named in the
  error: its side effects may be committed already.

``engine.checkpoint.subtask.task_protocol`` has the rules of a single task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from engine.checkpoint.coordinator.coordinator_messages import TaskId
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import StopMode


class TaskTermination(Enum):
    """How a task ended (Flink: the terminal ``ExecutionState``)."""

    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"


# --- instructions to the driver -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopScheduler:
    """Stop periodic checkpoints; this aborts queued and pending ones."""


@dataclass(frozen=True, slots=True)
class TriggerSynchronousSavepoint:
    """Request the savepoint; report ``on_savepoint_completed`` or ``on_savepoint_failed``, and
    ``on_tasks_terminated`` once every task has ended."""

    stop: StopMode


@dataclass(frozen=True, slots=True)
class StartScheduler:
    """Go on with periodic checkpoints, if the job still runs."""


@dataclass(frozen=True, slots=True)
class FailGlobally:
    """Restart the whole job: it is neither running nor properly stopped."""

    cause: str


@dataclass(frozen=True, slots=True)
class StopSucceeded:
    """Tell the requester where the savepoint is."""

    checkpoint_id: int
    external_pointer: object


@dataclass(frozen=True, slots=True)
class StopFailed:
    """Tell the requester that the job did not stop, and why. ``external_pointer``: a savepoint that exists
    nevertheless, ``None`` when there is none."""

    cause: str
    reason: CheckpointFailureReason | None = None
    external_pointer: object = None


StopInstruction = (
    StopScheduler | TriggerSynchronousSavepoint | StartScheduler | FailGlobally | StopSucceeded | StopFailed
)
StopInstructions = tuple[StopInstruction, ...]


# --- the machine --------------------------------------------------------------------------------------------------


class StopPhase(Enum):
    """How far the request has come."""

    REQUESTED = "requested"
    WAITING_FOR_SAVEPOINT = "waiting for the savepoint"
    WAITING_FOR_TASKS = "waiting for the tasks to end"
    OVER = "over"


class StopWithSavepoint:
    """One request to stop a job; see the rules at the top of the module."""

    def __init__(self, stop: StopMode) -> None:
        self._stop = stop
        self.phase = StopPhase.REQUESTED
        """How far it has come."""
        self._savepoint: tuple[int, object] | None = None
        self._not_finished: dict[TaskId, TaskTermination] | None = None

    def begin(self, *, has_blocking_output: bool = False) -> StopInstructions:
        """Begin to work on the request."""
        assert self.phase is StopPhase.REQUESTED, self.phase
        if has_blocking_output:
            self.phase = StopPhase.OVER
            reason = CheckpointFailureReason.BLOCKING_OUTPUT_EXIST
            return (StopFailed(f"the job cannot be stopped with a savepoint: {reason.value}", reason),)
        self.phase = StopPhase.WAITING_FOR_SAVEPOINT
        return (StopScheduler(), TriggerSynchronousSavepoint(self._stop))

    def on_savepoint_completed(self, checkpoint_id: int, external_pointer: object) -> StopInstructions:
        """The savepoint is durable."""
        assert self.phase is StopPhase.WAITING_FOR_SAVEPOINT, self.phase
        self.phase = StopPhase.WAITING_FOR_TASKS
        self._savepoint = (checkpoint_id, external_pointer)
        return () if self._not_finished is None else self._settle(self._not_finished)

    def on_savepoint_failed(self, reason: CheckpointFailureReason, cause: str = "") -> StopInstructions:
        """There will be no savepoint."""
        assert self.phase is StopPhase.WAITING_FOR_SAVEPOINT, self.phase
        self.phase = StopPhase.OVER
        told = f"{reason.value} ({cause})" if cause else reason.value
        return (StartScheduler(), StopFailed(f"the savepoint failed: {told}; the job goes on", reason))

    def on_tasks_terminated(self, terminations: Mapping[TaskId, TaskTermination]) -> StopInstructions:
        """Every task has ended. Before the outcome of the savepoint this is only remembered; after a failed one, or a
        second time, it is ignored."""
        assert self.phase is not StopPhase.REQUESTED, self.phase
        not_finished: dict[TaskId, TaskTermination] = {
            task: how for task, how in sorted(terminations.items()) if how is not TaskTermination.FINISHED
        }
        if self.phase is StopPhase.WAITING_FOR_TASKS:
            return self._settle(not_finished)
        if self.phase is StopPhase.WAITING_FOR_SAVEPOINT:
            self._not_finished = not_finished
        return ()

    def _settle(self, not_finished: Mapping[TaskId, TaskTermination]) -> StopInstructions:
        assert self._savepoint is not None
        self.phase = StopPhase.OVER
        checkpoint_id, pointer = self._savepoint
        if not not_finished:
            return (StopSucceeded(checkpoint_id, pointer),)
        ends = ", ".join(f"task {vertex}/{subtask} {how.value}" for (vertex, subtask), how in not_finished.items())
        cause = f"savepoint {checkpoint_id} is complete, but the job did not stop properly: {ends}"
        return (FailGlobally(cause), StopFailed(f"{cause}; the savepoint is kept", None, pointer))

    def validate(self) -> None:
        assert self._savepoint is None or self.phase in (StopPhase.WAITING_FOR_TASKS, StopPhase.OVER), self.phase
        assert self.phase is not StopPhase.WAITING_FOR_TASKS or self._savepoint is not None
        assert self.phase is not StopPhase.REQUESTED or self._not_finished is None

    def fingerprint(self) -> tuple[object, ...]:
        not_finished = self._not_finished
        ends = None if not_finished is None else tuple((task, how.value) for task, how in not_finished.items())
        return (self._stop.value, self.phase.value, self._savepoint and self._savepoint[0], ends)
