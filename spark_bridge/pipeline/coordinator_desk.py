"""The operator coordinators of a job, beside the driver: their events travel with the batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.checkpoint.coordinator import TaskId
from engine.elements.operator_coordination import CoordinatorError
from engine.graph.plan import ExecutionPlan
from engine.runtime.job import OperatorCoordinators
from engine.runtime.storage import RestoredJob
from engine.runtime.tasks import BarrierProcessed
from spark_bridge.pipeline.subtask_batch import SubtaskReport

_ATTEMPT = 1


@dataclass(frozen=True, slots=True)
class _Deployed:
    """A subtask, as coordinators see it: it always runs, in one batch or the next."""

    task: TaskId
    index: int
    name: str
    attempt: int = _ATTEMPT
    is_running: bool = True
    state: str = "running"

    @property
    def life(self) -> _Deployed:
        return self


class CoordinatorDesk:
    """Takes the events of coordinators for the next batch, and hands them those of the last one. ``notes``: where
    facts for the user go."""

    def __init__(self, plan: ExecutionPlan, notes: list[str]) -> None:
        self.tasks = {
            (one.vertex, one.subtask): _Deployed((one.vertex, one.subtask), one.index, one.name)
            for one in plan.subtasks
        }
        self.coordinators = OperatorCoordinators(plan, self)  # type: ignore[arg-type]
        self._notes = notes
        self._waiting: dict[int, list[tuple[int, Any]]] = {}
        self._failed: Exception | None = None

    # -- the job, as its coordinators know it -------------------------------------------------------------------------

    @property
    def post(self) -> CoordinatorDesk:
        return self

    def to_task(self, task: _Deployed, message: str, position: int, event: Any) -> None:
        assert message == "coordinator_event", message
        self._waiting.setdefault(task.index, []).append((position, event))

    def note(self, text: str) -> None:
        self._notes.append(text)

    def fail_soon(self, why: str, error: Exception) -> None:
        self._failed = self._failed or error

    # -- batches ------------------------------------------------------------------------------------------------------

    def begin(self, restored: RestoredJob | None) -> None:
        """The job begins, or goes on from a checkpoint."""
        states = {} if restored is None else restored.coordinators
        self.coordinators.reset(None if restored is None else restored.checkpoint_id, states)
        self.coordinators.deployed(self.tasks)
        self._check()

    def cut(self, name: str, checkpoint_id: int) -> bytes:
        """The state of a coordinator at the beginning of a batch."""
        taken = self.coordinators.checkpoint(name, checkpoint_id)
        if isinstance(taken, CoordinatorError):
            raise taken
        return taken

    def take(self) -> dict[int, Sequence[tuple[int, Any]]]:
        """The events for the batch that begins, by index of the subtask."""
        waiting, self._waiting = self._waiting, {}
        return dict(waiting)

    def batch_over(self, checkpoint_id: int, reports: Iterable[SubtaskReport]) -> None:
        """A batch is complete: events for the subtasks may go out again, and those of the subtasks come."""
        coordinated = self.coordinators.coordinated
        for task in self.tasks.values():
            if task.task[0] in coordinated:
                self.coordinators.barrier_processed(BarrierProcessed(checkpoint_id, task.task, _ATTEMPT))
        for report in reports:
            for event in report.events:
                self.coordinators.operator_event(replace(event, attempt=_ATTEMPT))
        self._check()

    def close(self) -> None:
        """The job is over."""
        self.coordinators.close()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
