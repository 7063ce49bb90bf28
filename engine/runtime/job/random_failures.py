"""Failures at random times: renewal processes whose times and victims are choices of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from engine.checkpoint.coordinator import TaskId
from engine.elements.failure_laws import HOST, JOB_MANAGER, STORAGE, Failures
from engine.elements.laws import sample_ns
from engine.graph.plan import ExecutionPlan
from engine.runtime.job.job_state import ENDED, JobProgress
from engine.runtime.kernel import Kernel


class StruckJob(Protocol):
    """The job that fails."""

    @property
    def is_recovering(self) -> bool:
        """Whether not all tasks run that should."""

    def tasks_struck(self, ids: Sequence[TaskId], cause: str, *, with_disk: bool = False) -> None:
        """These tasks die, with the copies of their state beside them perhaps."""

    def kill_master(self, cause: str) -> None:
        """The job manager dies."""

    def storage_struck(self) -> None:
        """Snapshots that are being written fail."""


class RandomFailures:
    """The failures of one run. ``draw``: of its choices, by stream and bound."""

    name = "failures"

    def __init__(
        self,
        laws: Sequence[Failures],
        *,
        plan: ExecutionPlan,
        kernel: Kernel,
        draw: Callable[[str, int], int],
        job: JobProgress,
        struck: StruckJob,
    ) -> None:
        self._laws = laws
        self._kernel = kernel
        self._draw = draw
        self._job = job
        self._struck = struck
        self._tasks = [(subtask.vertex, subtask.subtask) for subtask in plan.subtasks]
        self._hosts = max(vertex.parallelism for vertex in plan.vertices)

    def begin(self) -> None:
        """Time begins to run."""
        for number in range(len(self._laws)):
            self._plan_next(number)

    def _plan_next(self, number: int) -> None:
        wait_ns = sample_ns(self._laws[number].law, partial(self._draw, f"time to failure {number}"))
        self._kernel.schedule(self._kernel.now_ns + max(1, wait_ns), "strike", self, number)

    def strike(self, number: int) -> None:
        """The next failure of a kind is due (kernel event)."""
        if self._job.state in ENDED:
            return
        one = self._laws[number]
        if one.during_recovery or not self._struck.is_recovering:
            self._strike(one.target)
        self._plan_next(number)

    def _strike(self, target: str) -> None:
        if target == JOB_MANAGER:
            self._struck.kill_master("struck by a failure")
        elif target == STORAGE:
            self._struck.storage_struck()
        elif target == HOST:
            host = self._draw("failing host", self._hosts)
            victims = [task for task in self._tasks if task[1] == host]
            self._struck.tasks_struck(victims, f"struck by a failure of host {host}", with_disk=True)
        else:
            victim = self._tasks[self._draw("failing task", len(self._tasks))]
            self._struck.tasks_struck([victim], "struck by a failure")
