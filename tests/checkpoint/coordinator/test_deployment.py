"""Checkpoint plans: which tasks to trigger, to wait for, to notify; what is recorded about finished tasks."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointEdge,
    CheckpointGraph,
    FinishedState,
    TaskId,
    TaskStatus,
)
from engine.checkpoint.coordinator.deployment import (
    CheckpointPlan,
    PartlyFinishedUnionStateError,
    TasksNotRunningError,
    compute_checkpoint_plan,
    finished_state,
)


def pointwise(source_parallelism: int, target_parallelism: int) -> tuple[tuple[int, ...], ...]:
    """Contiguous groups: each target subtask with the sources it is connected to."""
    if source_parallelism >= target_parallelism:
        return tuple(
            tuple(
                source
                for source in range(source_parallelism)
                if source * target_parallelism // source_parallelism == target
            )
            for target in range(target_parallelism)
        )
    return tuple((target * source_parallelism // target_parallelism,) for target in range(target_parallelism))


def statuses_of(graph: CheckpointGraph, finished: list[TaskId]) -> dict[TaskId, TaskStatus]:
    statuses = dict.fromkeys(graph.tasks(), TaskStatus.RUNNING)
    return statuses | dict.fromkeys(finished, TaskStatus.FINISHED)


def test_all_to_all_predecessor_counts_while_any_subtask_runs() -> None:
    """Over an all-to-all edge barriers trigger a task while one sender runs; after that the coordinator does."""
    graph = CheckpointGraph((2, 1), (CheckpointEdge(0, 1),))

    half = compute_checkpoint_plan(graph, statuses_of(graph, [(0, 0)]))
    whole = compute_checkpoint_plan(graph, statuses_of(graph, [(0, 0), (0, 1)]))

    assert half.trigger == ((0, 1),)
    assert whole.trigger == ((1, 0),)
    assert whole.fully_finished_vertices == (0,)


@pytest.mark.parametrize("status", [TaskStatus.DEPLOYING, TaskStatus.FAILED])
def test_every_unfinished_task_must_run(status: TaskStatus) -> None:
    """A task that does not run, wherever it is in the graph, refuses the plan."""
    graph = CheckpointGraph((1, 2), (CheckpointEdge(0, 1),))

    with pytest.raises(TasksNotRunningError):
        compute_checkpoint_plan(graph, statuses_of(graph, []) | {(1, 1): status})


@given(st.data())
def test_triggered_tasks_reach_every_waited_for_task(data: st.DataObject) -> None:
    """Barriers from the triggered tasks, forwarded along unfinished ones, come to every task that is waited for."""
    parallelisms = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    edges = tuple(
        CheckpointEdge(source, target, pointwise(parallelisms[source], parallelisms[target]) if point else None)
        for target in range(1, len(parallelisms))
        for source in data.draw(st.lists(st.integers(0, target - 1), unique=True))
        for point in [data.draw(st.booleans())]
    )
    graph = CheckpointGraph(parallelisms, edges)
    finished = data.draw(st.lists(st.sampled_from(graph.tasks()), unique=True))

    plan = compute_checkpoint_plan(graph, statuses_of(graph, finished))

    reached = set(plan.trigger)
    for vertex, subtask in graph.tasks():
        for edge in edges:
            if edge.target == vertex and (vertex, subtask) in plan.wait:
                senders = edge.connections[subtask] if edge.connections else range(parallelisms[edge.source])
                if any((edge.source, sender) in reached for sender in senders):
                    reached.add((vertex, subtask))
    assert reached == set(plan.wait)
    assert set(plan.wait) | set(finished) == set(graph.tasks())
    for vertex, subtask in plan.trigger:
        for edge in edges:
            if edge.target == vertex:
                senders = edge.connections[subtask] if edge.connections else range(parallelisms[edge.source])
                assert all((edge.source, sender) in finished for sender in senders)


def acknowledgements(
    *restored: TaskId, at_the_end: tuple[TaskId, ...] = (), union: tuple[TaskId, ...] = (), wait: tuple[TaskId, ...]
) -> dict[TaskId, Acknowledge]:
    """Of all tasks that were waited for. ``restored``: as finished; ``at_the_end``: their operators have finished."""
    return {
        task: Acknowledge(
            1,
            0,
            task,
            operators_finished=task in at_the_end,
            finished_on_restore=task in restored,
            uses_union_state=task in union,
        )
        for task in wait
    }


def test_union_state_may_be_wholly_finished() -> None:
    """Union list state is no obstacle once all subtasks have finished, or their operators, or while none has."""
    union = ((0, 0), (0, 1))
    plan = CheckpointPlan(union, union, parallelisms=(2,))

    assert FinishedState((0,)) == finished_state(plan, acknowledgements(*union, union=union, wait=union))
    assert FinishedState() == finished_state(plan, acknowledgements(at_the_end=union, union=union, wait=union))
    assert FinishedState() == finished_state(plan, acknowledgements(union=union, wait=union))


@pytest.mark.parametrize("how", ["finished", "restored", "at the end"])
def test_union_state_must_not_be_partly_finished(how: str) -> None:
    """Neither by a task that is gone, nor by one restored as finished, nor by operators that have finished."""
    one, other = (0, 0), (0, 1)
    if how == "finished":
        plan = CheckpointPlan((other,), (other,), (one,), parallelisms=(2,))
        acks = acknowledgements(union=(other,), wait=plan.wait)
    else:
        plan = CheckpointPlan((one, other), (one, other), parallelisms=(2,))
        restored, at_the_end = ((one,), ()) if how == "restored" else ((), (one,))
        acks = acknowledgements(*restored, at_the_end=at_the_end, union=(other,), wait=plan.wait)

    with pytest.raises(PartlyFinishedUnionStateError):
        finished_state(plan, acks)


def test_finished_operators_do_not_mark_their_task() -> None:
    """Its state is that of a task at the end of its data; a restored one finds no more work."""
    plan = CheckpointPlan(((0, 0),), ((0, 0), (0, 1)), parallelisms=(2,))

    assert FinishedState() == finished_state(plan, acknowledgements(at_the_end=((0, 0),), wait=plan.wait))


def test_tasks_finished_and_restored_as_finished_count_together() -> None:
    """One that has ended since and one that was restored as finished make a wholly finished vertex of two."""
    plan = CheckpointPlan((), ((0, 1),), ((0, 0),), parallelisms=(2,))

    assert FinishedState((0,)) == finished_state(plan, acknowledgements((0, 1), wait=plan.wait))
    assert FinishedState((), ((0, 0),)) == finished_state(plan, acknowledgements(wait=plan.wait))


def test_graph_of_an_execution_plan() -> None:
    """All-to-all and pointwise edges of a real job are taken over from its channels."""
    from engine.graph.job import Job
    from operators.sources import SequenceSource

    job = Job("plan", parallelism=2)
    stream = job.source(SequenceSource(0, 10, splits=2), name="numbers")
    stream.map(lambda value: value, name="triple", parallelism=4).key_by(lambda value: value).reduce(
        lambda a, b: a + b, name="sum", parallelism=3
    ).print(name="out", parallelism=1)

    plan = job.plan()
    graph = CheckpointGraph.of(plan)

    assert tuple(vertex.parallelism for vertex in plan.vertices) == graph.parallelisms
    assert len(plan.edges) == len(graph.edges)
    for edge, planned in zip(graph.edges, plan.edges, strict=True):
        assert (edge.connections is not None) is planned.partitioner.pointwise
    sources = tuple((vertex.index, i) for vertex in plan.vertices if vertex.is_source for i in range(2))
    assert sources == compute_checkpoint_plan(graph, statuses_of(graph, [])).trigger
