"""The tasks of the job as the coordinator knows them: in which attempt each was deployed, and whether it runs.

An attempt belongs to a task. After the restart of a region its tasks are in a newer attempt than the others, which go
on in theirs. Messages carry the attempt they were sent in; those of an older attempt of their task change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.checkpoint.messages import Acknowledge, Decline, TaskId
from engine.checkpoint.plan import CheckpointGraph, CheckpointPlan, TaskStatus, compute_checkpoint_plan


class Deployment:
    """Attempts and states of all tasks; see the rules at the top of the module."""

    def __init__(self, graph: CheckpointGraph) -> None:
        self._graph = graph
        self._attempt = 0
        # That of this coordinator; 0 before it has begun.
        self._first_attempt = 0
        # An older attempt than the current one for tasks that a regional restart left alone.
        self._attempts: dict[TaskId, int] = dict.fromkeys(graph.tasks(), 0)
        self._statuses: dict[TaskId, TaskStatus] = dict.fromkeys(graph.tasks(), TaskStatus.DEPLOYING)

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks in order."""
        return self._graph.tasks()

    @property
    def attempt(self) -> int:
        """The current attempt."""
        return self._attempt

    def attempt_of(self, task: TaskId) -> int:
        """The attempt in which a task was deployed last."""
        return self._attempts[task]

    def deploy(self, tasks: Iterable[TaskId], attempt: int, status: TaskStatus) -> None:
        """These tasks are deployed anew; messages of their older attempts are void from now on."""
        self._attempt = attempt
        self._first_attempt = self._first_attempt or attempt
        for task in tasks:
            self._attempts[task] = attempt
            self._statuses[task] = status

    def on_status(self, task: TaskId, status: TaskStatus) -> None:
        """A task of its current attempt has changed."""
        assert task in self._statuses, task
        self._statuses[task] = status

    def plan(self, *, after_tasks_finish: bool) -> CheckpointPlan:
        """The plan of a checkpoint triggered now; raises ``TasksNotRunningError``."""
        return compute_checkpoint_plan(self._graph, self._statuses, after_tasks_finish=after_tasks_finish)

    def has(self, task: TaskId) -> bool:
        """Whether the job has this task."""
        return task in self._statuses

    def is_void(self, message: Acknowledge | Decline) -> bool:
        """Whether an older attempt of its task sent the message."""
        attempt = self._attempts.get(message.task, self._attempt)
        assert message.attempt <= attempt, f"{message} comes from the future of attempt {attempt}"
        return message.attempt < attempt

    def is_foreign(self, message: Acknowledge | Decline) -> bool:
        """Whether the message was sent to a coordinator that has died."""
        return message.attempt < self._first_attempt

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(attempt <= self._attempt for attempt in self._attempts.values()), self._attempts

    def undisturbed_fingerprint(self) -> tuple[object, ...]:
        """Without attempts."""
        return tuple(status.value for status in self._statuses.values())

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next."""
        attempts = tuple(self._attempts.values())
        return (*self.undisturbed_fingerprint(), self._attempt, self._first_attempt, *attempts)
