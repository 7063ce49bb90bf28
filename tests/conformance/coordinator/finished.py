"""Which tasks a checkpoint triggers and waits for, and what it records about finished ones."""

from __future__ import annotations

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointEdge,
    CheckpointGraph,
    CoordinatorConfig,
    JobStatus,
    TaskId,
    TaskStatus,
)
from engine.checkpoint.coordinator.deployment import (
    PartlyFinishedUnionStateError,
    TasksNotRunningError,
    compute_checkpoint_plan,
    finished_state,
)
from engine.graph.distribution_patterns import connections
from tests.checkpoint.coordinator.coordinator_driver import CoordinatorDriver
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields


def _edge(edge: Vector, parallelisms: tuple[int, ...]) -> CheckpointEdge:
    check_fields(edge, {"source", "target", "pattern"}, "an edge")
    source, target = edge["source"], edge["target"]
    if edge["pattern"] == "ALL_TO_ALL":
        return CheckpointEdge(source, target)
    if edge["pattern"] != "POINTWISE":
        raise MalformedVector(f"unknown pattern {edge['pattern']!r}")
    reached = connections(True, parallelisms[source], parallelisms[target])
    feeders = tuple(
        tuple(sender for sender, receivers in enumerate(reached) if receiver in receivers)
        for receiver in range(parallelisms[target])
    )
    return CheckpointEdge(source, target, feeders)


EXECUTION_STATES = {
    "CREATED": TaskStatus.DEPLOYING,
    "SCHEDULED": TaskStatus.DEPLOYING,
    "DEPLOYING": TaskStatus.DEPLOYING,
    "INITIALIZING": TaskStatus.DEPLOYING,
    "RECONCILING": TaskStatus.DEPLOYING,
    "RUNNING": TaskStatus.RUNNING,
    "FINISHED": TaskStatus.FINISHED,
    "CANCELING": TaskStatus.FAILED,
    "CANCELED": TaskStatus.FAILED,
    "FAILED": TaskStatus.FAILED,
}
"""The states of an execution, as far as they differ for a checkpoint."""


def status_of(state: object) -> TaskStatus:
    """The coordinator's view of a state of an execution."""
    if not isinstance(state, str) or state not in EXECUTION_STATES:
        raise MalformedVector(f"unknown task state {state!r}")
    return EXECUTION_STATES[state]


def checkpoint_plan(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"vertices", "edges", "allow_checkpoints_after_tasks_finished"}, "input")
    for vertex in given["vertices"]:
        check_fields(vertex, {"parallelism", "finished", "state"}, "a vertex")
    parallelisms = tuple(vertex["parallelism"] for vertex in given["vertices"])
    graph = CheckpointGraph(parallelisms, tuple(_edge(edge, parallelisms) for edge in given.get("edges", ())))
    statuses = {
        (vertex, subtask): TaskStatus.FINISHED
        if subtask in given["vertices"][vertex].get("finished", ())
        else status_of(given["vertices"][vertex].get("state", "RUNNING"))
        for vertex, subtask in graph.tasks()
    }
    observed: dict[str, object] = {"error": None}
    try:
        plan = compute_checkpoint_plan(
            graph, statuses, after_tasks_finish=given.get("allow_checkpoints_after_tasks_finished", True)
        )
    except TasksNotRunningError:
        observed["error"] = "NOT_ALL_REQUIRED_TASKS_RUNNING"
        observed |= dict.fromkeys(("trigger", "wait_and_commit", "finished", "fully_finished_vertices"))
    else:
        observed |= {
            "trigger": plan.trigger,
            "wait_and_commit": plan.wait,
            "finished": plan.finished,
            "fully_finished_vertices": plan.fully_finished_vertices,
        }
    check_fields(vector["expect"], observed, "expect")
    for name, expected in vector["expect"].items():
        comparison.field(name, expected, observed[name], as_set=True)
    return comparison.finish()


_VERTEX = {
    "id",
    "parallelism",
    "finished_subtasks",
    "finished_on_restore_subtasks",
    "operators_finished_subtasks",
    "uses_union_list_state",
}


def finalize_finished_states(vector: Vector) -> list[str]:
    """``finalize_finished_states``: the content of the metadata, and the reason that a coordinator gives."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"vertices"}, "input")
    vertices = given["vertices"]
    for vertex in vertices:
        check_fields(vertex, _VERTEX, "a vertex")
    graph = CheckpointGraph(tuple(vertex["parallelism"] for vertex in vertices))
    gone = _tasks(vertices, "finished_subtasks")
    statuses = dict.fromkeys(graph.tasks(), TaskStatus.RUNNING) | dict.fromkeys(gone, TaskStatus.FINISHED)
    plan = compute_checkpoint_plan(graph, statuses)
    restored = _tasks(vertices, "finished_on_restore_subtasks")
    at_the_end = _tasks(vertices, "operators_finished_subtasks")
    acks = {
        task: Acknowledge(
            1,
            1,
            task,
            operators_finished=task in at_the_end,
            finished_on_restore=task in restored,
            uses_union_state=vertices[task[0]].get("uses_union_list_state", False),
        )
        for task in plan.wait
    }
    observed: dict[str, object] = {"error": None, "checkpoint_failure_reason": _coordinator_says(graph, gone, acks)}
    status: dict[str, str] = {}
    marked: dict[str, list[int]] = {}
    try:
        state = finished_state(plan, acks)
    except PartlyFinishedUnionStateError:
        observed["error"] = "PARTIAL_FINISHING_NOT_SUPPORTED_BY_STATE"
    else:
        status = {vertices[index]["id"]: "FULLY_FINISHED" for index in state.fully_finished_vertices}
        for index, subtask in state.finished_subtasks:
            status[vertices[index]["id"]] = "PARTIALLY_FINISHED"
            marked.setdefault(vertices[index]["id"], []).append(subtask)
    observed |= {"operator_status": status, "subtask_marked_finished": marked}
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def _tasks(vertices: list[Vector], field: str) -> list[TaskId]:
    return [(index, subtask) for index, vertex in enumerate(vertices) for subtask in vertex.get(field, ())]


def _coordinator_says(graph: CheckpointGraph, gone: list[TaskId], acks: dict[TaskId, Acknowledge]) -> str | None:
    """Why the checkpoint fails in a real coordinator, ``None`` when it completes."""
    driver = CoordinatorDriver(CoordinatorConfig(tolerable_failures=None), graph)
    coordinator = driver.coordinator
    for task in gone:
        coordinator.on_task_status(task, TaskStatus.FINISHED)
    driver.tell(coordinator.trigger_manual("it", driver.now_ns))
    for ack in acks.values():
        driver.tell(coordinator.on_acknowledge(ack, driver.now_ns))
    driver.tell(coordinator.shut_down(JobStatus.SUSPENDED, driver.now_ns))
    return driver.log.reasons.get(1)


KINDS = {"checkpoint_plan": checkpoint_plan, "finalize_finished_states": finalize_finished_states}
