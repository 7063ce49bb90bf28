"""The tasks of the job, and which of them a checkpoint triggers and waits for.

Rules of the deployment
-----------------------
* An attempt belongs to a task. After the restart of a region its tasks are in a newer attempt than the others, which
  go on in theirs. Messages carry the attempt they were sent in; those of an older attempt of their task change nothing.

Rules of a plan (Flink: ``DefaultCheckpointPlanCalculator``)
-----------------------------------------------------------
* All tasks running: trigger the sources, wait for all. Those that were waited for hear of the completion or the abort.
* A finished task, with checkpoints after tasks finish switched off, refuses the plan. So does any task that would
  have to be waited for and does not run.
* Otherwise finished tasks are left out. The unfinished tasks without an unfinished predecessor are triggered: over an
  all-to-all edge any unfinished subtask of the vertex before counts, over a pointwise edge only connected ones.
* At completion: all subtasks of a vertex finished (when the plan was made, or restored as finished) means fully
  finished, state dropped; some finished means these are marked. A vertex with union list state must not be partly
  finished, nor must the operators of only some of its tasks have finished. The share of those would be lost, or taken
  over by one of the others (Flink: ``DefaultCheckpointPlan.fulfillFinishedTaskStatus``). A task whose operators have
  finished is not marked itself: its state is that of a task at the end of its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from engine.checkpoint.coordinator.coordinator_messages import Acknowledge, Decline, FinishedState, TaskId
from engine.graph.plan import ExecutionPlan
from state_backends.base import value_class


class TaskStatus(Enum):
    """A task's state in the terms of a checkpoint (Flink: ``ExecutionState``)."""

    DEPLOYING = "deploying"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class TasksNotRunningError(Exception):
    """No plan can be made now (reason NOT_ALL_REQUIRED_TASKS_RUNNING). Handled by the coordinator."""


class PartlyFinishedUnionStateError(Exception):
    """A vertex with union list state is partly finished. Handled by the coordinator."""


@value_class
class CheckpointEdge:
    """An edge between two vertices.

    ``connections``  pointwise: for each target subtask the source subtasks that feed it; ``None``: all to all.
    """

    source: int
    target: int
    connections: tuple[tuple[int, ...], ...] | None = None


@value_class
class CheckpointGraph:
    """Vertices (by parallelism, index = vertex, topologically ordered or not) and edges."""

    parallelisms: tuple[int, ...]
    edges: tuple[CheckpointEdge, ...] = ()

    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks in order."""
        return tuple(
            (vertex, subtask) for vertex, parallelism in enumerate(self.parallelisms) for subtask in range(parallelism)
        )

    @classmethod
    def of(cls, plan: ExecutionPlan) -> CheckpointGraph:
        """The part of an execution plan that checkpoints need. A task does not wait for records that come back to it:
        feedback edges are none of its predecessors."""
        feeders: dict[int, dict[int, list[int]]] = {}
        for edge in plan.edges:
            if edge.partitioner.pointwise:
                feeders[edge.index] = {}
        for channel in plan.channels:
            if channel.edge in feeders:
                feeders[channel.edge].setdefault(channel.receiver_subtask, []).append(channel.sender_subtask)
        edges = []
        for edge in plan.edges:
            if edge.is_feedback:
                continue
            connections = None
            if edge.index in feeders:
                by_target = feeders[edge.index]
                targets = range(plan.vertices[edge.target_vertex].parallelism)
                connections = tuple(tuple(by_target.get(target, ())) for target in targets)
            edges.append(CheckpointEdge(edge.source_vertex, edge.target_vertex, connections))
        return cls(tuple(vertex.parallelism for vertex in plan.vertices), tuple(edges))


@value_class
class CheckpointPlan:
    """Tasks to trigger, to wait for and to notify, and those that have finished; all in task order."""

    trigger: tuple[TaskId, ...]
    wait: tuple[TaskId, ...]
    finished: tuple[TaskId, ...] = ()
    fully_finished_vertices: tuple[int, ...] = ()
    parallelisms: tuple[int, ...] = ()


_FINISHED, _RUNNING = TaskStatus.FINISHED, TaskStatus.RUNNING


def compute_checkpoint_plan(
    graph: CheckpointGraph, statuses: Mapping[TaskId, TaskStatus], *, after_tasks_finish: bool = True
) -> CheckpointPlan:
    """The plan for a checkpoint triggered now; raises :class:`TasksNotRunningError`."""
    tasks = sorted(statuses)
    finished = tuple([task for task in tasks if statuses[task] is _FINISHED])
    if finished and not after_tasks_finish:
        raise TasksNotRunningError(finished[0])
    unfinished = tuple([task for task in tasks if statuses[task] is not _FINISHED])
    for task in unfinished:
        if statuses[task] is not _RUNNING:
            raise TasksNotRunningError(task)
    open_subtasks: list[list[int]] = [[] for _ in graph.parallelisms]
    for vertex, subtask in unfinished:
        open_subtasks[vertex].append(subtask)
    incoming: list[list[CheckpointEdge]] = [[] for _ in graph.parallelisms]
    for edge in graph.edges:
        incoming[edge.target].append(edge)
    trigger = tuple(
        (vertex, subtask)
        for vertex, subtask in unfinished
        if not any(_has_unfinished_source(edge, subtask, statuses, open_subtasks) for edge in incoming[vertex])
    )
    fully_finished = tuple(vertex for vertex, subtasks in enumerate(open_subtasks) if not subtasks)
    return CheckpointPlan(trigger, unfinished, finished, fully_finished, graph.parallelisms)


def _has_unfinished_source(
    edge: CheckpointEdge, subtask: int, statuses: Mapping[TaskId, TaskStatus], open_subtasks: list[list[int]]
) -> bool:
    if edge.connections is None:
        return bool(open_subtasks[edge.source])
    return any(statuses[edge.source, source] is not _FINISHED for source in edge.connections[subtask])


def finished_state(plan: CheckpointPlan, acknowledgements: Mapping[TaskId, Acknowledge]) -> FinishedState:
    """The record of finished operators in a completing checkpoint; raises
    :class:`PartlyFinishedUnionStateError`."""
    gone: list[list[TaskId]] = [[] for _ in plan.parallelisms]
    for task in plan.finished:
        gone[task[0]].append(task)
    at_the_end = [0] * len(plan.parallelisms)
    uses_union = [False] * len(plan.parallelisms)
    for task, acknowledgement in acknowledgements.items():
        uses_union[task[0]] = uses_union[task[0]] or acknowledgement.uses_union_state
        if acknowledgement.finished_on_restore:
            gone[task[0]].append(task)
        elif acknowledgement.operators_finished:
            at_the_end[task[0]] += 1
    fully: list[int] = []
    partly: list[TaskId] = []
    for vertex, finished in enumerate(gone):
        if len(finished) == plan.parallelisms[vertex]:
            fully.append(vertex)
            continue
        if uses_union[vertex] and (finished or 0 < at_the_end[vertex] < plan.parallelisms[vertex]):
            raise PartlyFinishedUnionStateError(vertex)
        partly += sorted(finished)
    return FinishedState(tuple(fully), tuple(partly))


class Deployment:
    """Attempts and states of all tasks; see the rules at the top of the module."""

    def __init__(self, graph: CheckpointGraph) -> None:
        self._graph = graph
        self.tasks = graph.tasks()
        """All tasks in order."""
        self.attempt = 0
        """The current attempt."""
        # That of this coordinator; 0 before it has begun.
        self._first_attempt = 0
        # Tasks that a regional restart left alone are in an older attempt than the current one.
        self._attempts: dict[TaskId, int] = dict.fromkeys(self.tasks, 0)
        self._statuses: dict[TaskId, TaskStatus] = dict.fromkeys(self.tasks, TaskStatus.DEPLOYING)
        self._plan: CheckpointPlan | None = None
        """The last one, while the states of all tasks are what they were."""

    def attempt_of(self, task: TaskId) -> int:
        """The attempt in which a task was deployed last."""
        return self._attempts[task]

    def deploy(self, tasks: Iterable[TaskId], attempt: int, status: TaskStatus) -> None:
        """These tasks are deployed anew; messages of their older attempts are void from now on."""
        self.attempt = attempt
        self._first_attempt = self._first_attempt or attempt
        self._plan = None
        for task in tasks:
            self._attempts[task] = attempt
            self._statuses[task] = status

    def on_status(self, task: TaskId, status: TaskStatus) -> None:
        """The state of a task in its current attempt has changed."""
        assert task in self._statuses, task
        self._statuses[task] = status
        self._plan = None

    def plan(self, *, after_tasks_finish: bool) -> CheckpointPlan:
        """The plan of a checkpoint triggered now; raises ``TasksNotRunningError``."""
        # A plan without finished tasks is the same whether checkpoints may be taken after that or not.
        if self._plan is None or self._plan.finished:
            self._plan = compute_checkpoint_plan(self._graph, self._statuses, after_tasks_finish=after_tasks_finish)
        return self._plan

    def has(self, task: TaskId) -> bool:
        """Whether the job has this task."""
        return task in self._statuses

    def is_void(self, message: Acknowledge | Decline) -> bool:
        """Whether an older attempt of its task sent the message."""
        attempt = self._attempts.get(message.task, self.attempt)
        assert message.attempt <= attempt, f"{message} comes from the future of attempt {attempt}"
        return message.attempt < attempt

    def is_foreign(self, message: Acknowledge | Decline) -> bool:
        """Whether the message was sent to a coordinator that has died."""
        return message.attempt < self._first_attempt

    def validate(self) -> None:
        assert max(self._attempts.values(), default=0) <= self.attempt, self._attempts

    def undisturbed_fingerprint(self) -> tuple[object, ...]:
        """Without attempts."""
        return tuple(status.value for status in self._statuses.values())

    def fingerprint(self) -> tuple[object, ...]:
        attempts = tuple(self._attempts.values())
        return (*self.undisturbed_fingerprint(), self.attempt, self._first_attempt, *attempts)
