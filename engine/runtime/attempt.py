"""Builds the tasks and channels of one attempt from the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.checkpoint.messages import TaskId
from engine.graph.partitioner import RouterContext
from engine.runtime.channel import Channel
from engine.runtime.outputs import RecordWriter
from engine.runtime.source_task import SourceTask
from engine.runtime.task import Task

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan, SubtaskPlan
    from engine.runtime.environment import TaskEnvironment


def build_tasks(plan: ExecutionPlan, environment: TaskEnvironment, capacity: int) -> dict[TaskId, Task]:
    """All tasks, wired, in plan order; none is started."""
    tasks = [
        (SourceTask if plan.vertices[subtask.vertex].is_source else Task)(
            subtask, plan.vertices[subtask.vertex], environment
        )
        for subtask in plan.subtasks
    ]
    by_id = {(task.plan.vertex, task.plan.subtask): task for task in tasks}
    channels = [
        Channel(
            channel,
            sender := by_id[channel.sender_vertex, channel.sender_subtask],
            by_id[channel.receiver_vertex, channel.receiver_subtask],
            kernel=environment.kernel,
            cost=environment.cost,
            latency_ns=environment.cost.latency_ns(sender.vertex.names_of(sender.plan.subtask)),
            capacity=capacity,
            attempt=environment.attempt,
            instrument=environment.instrument,
        )
        for channel in plan.channels
    ]
    for task in tasks:
        task.wire(
            (channels[index] for index in task.plan.input_channels),
            _writers(plan, task.plan, channels, environment),
        )
    return by_id


def _writers(
    plan: ExecutionPlan, subtask: SubtaskPlan, channels: list[Channel], environment: TaskEnvironment
) -> list[RecordWriter]:
    writers = []
    for edge_index, indices in subtask.output_channels:
        edge = plan.edges[edge_index]
        source = plan.vertices[edge.source_vertex].operators[edge.source_position]
        context = RouterContext(
            operator=source.name,
            subtask=subtask.subtask,
            attempt=environment.attempt,
            channels=len(indices),
            receiver_max_parallelism=plan.vertices[edge.target_vertex].max_parallelism,
            key_type_agreement=environment.key_type_agreement(edge.target_vertex),
        )
        writers.append(
            RecordWriter(edge_index, edge.partitioner.router(context), [channels[index] for index in indices])
        )
    return writers
