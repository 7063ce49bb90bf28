"""Builds the tasks and channels of one attempt from the plan."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine.checkpoint.coordinator import TaskId
from engine.graph.partitioner import RouterContext
from engine.runtime.acked_channel import AckedChannel
from engine.runtime.acked_task import AckedRouter, AckedTask, SpoutTask
from engine.runtime.channel import Channel
from engine.runtime.loops import FeedbackWriter, Loop, build_loops, channel_classes
from engine.runtime.outputs import RecordWriter
from engine.runtime.restored_channels import NOTHING_IN_FLIGHT
from engine.runtime.source_task import SourceTask
from engine.runtime.task import Task
from engine.runtime.watched import WatchedRouter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from engine.graph.plan import ExecutionPlan, SubtaskPlan
    from engine.runtime.environment import TaskEnvironment
    from engine.runtime.restored_state import RestoredJob


def build_tasks(
    plan: ExecutionPlan,
    environment: TaskEnvironment,
    restored: RestoredJob | None,
    *,
    capacity: int,
    output_capacity: int,
    only: Collection[TaskId] | None = None,
) -> dict[TaskId, Task]:
    """All tasks, wired, in plan order, with the restored records in flight in their channels; none is started.

    ``capacity`` and ``output_capacity``: records that each channel holds on the receiver's side, and beyond that on the
    sender's. ``only``: a region of the plan, to build no other tasks.
    """
    chosen = frozenset(only) if only is not None else None
    tasks = [
        _task_class(plan, subtask, environment)(subtask, plan.vertices[subtask.vertex], environment)
        for subtask in plan.subtasks
        if chosen is None or (subtask.vertex, subtask.subtask) in chosen
    ]
    by_id = {(task.plan.vertex, task.plan.subtask): task for task in tasks}
    # Once per sender: there may be a thousand times as many channels.
    latencies = {
        task_id: environment.cost.latency_ns(task.vertex.names_of(task.plan.subtask)) for task_id, task in by_id.items()
    }
    classes = channel_classes(plan)
    usual = Channel if environment.acking is None else AckedChannel
    channels = {
        channel.index: classes.get(channel.index, usual)(
            channel,
            by_id[channel.sender_vertex, channel.sender_subtask],
            by_id[channel.receiver_vertex, channel.receiver_subtask].name,
            kernel=environment.kernel,
            cost=environment.cost,
            latency_ns=latencies[channel.sender_vertex, channel.sender_subtask],
            capacity=capacity,
            output_capacity=output_capacity,
            attempt=environment.attempt,
            instrument=environment.instrument,
            hook=environment.hook,
        )
        for channel in plan.channels
        if chosen is None or (channel.sender_vertex, channel.sender_subtask) in chosen
    }
    if environment.acking is not None:
        for one in channels.values():
            assert isinstance(one, AckedChannel), one.name
            one.begin()
    loops = build_loops(plan, by_id, channels)
    for task in tasks:
        task.loop = loops.get(task.task_id)
        task.wire(
            (channels[index] for index in task.plan.input_channels),
            _writers(plan, task, channels, environment, task.loop),
        )
    if restored is not None and restored.has_channel_state:
        _restore_channels(plan, tasks, channels, environment, restored)
    return by_id


def replace_tasks(
    plan: ExecutionPlan, environment: TaskEnvironment, ids: Collection[TaskId], tasks: Mapping[TaskId, Task]
) -> dict[TaskId, Task]:
    """Successors of some of ``tasks``, which are dead, on their channels; none is started. Only in mode ``acking``."""
    assert environment.acking is not None, "channels of other modes die with their tasks"
    statistics = environment.acking.statistics
    replaced: dict[TaskId, Task] = {}
    for task_id in ids:
        dead = tasks[task_id]
        task = replaced[task_id] = _task_class(plan, dead.plan, environment)(dead.plan, dead.vertex, environment)
        outputs = {channel.index: channel for writer in dead.writers for channel in writer.channels}
        for channel in outputs.values():
            assert isinstance(channel, AckedChannel), channel.name
            channel.sender_replaced(task)
        task.wire(dead.inputs, _writers(plan, task, outputs, environment, None))
        for channel in task.inputs:
            assert isinstance(channel, AckedChannel), channel.name
            statistics.lost += channel.receiver_replaced()
    return replaced


def _task_class(plan: ExecutionPlan, subtask: SubtaskPlan, environment: TaskEnvironment) -> type[Task]:
    is_source = plan.vertices[subtask.vertex].is_source
    if environment.acking is not None:
        return SpoutTask if is_source else AckedTask
    return SourceTask if is_source else Task


def _restore_channels(
    plan: ExecutionPlan,
    tasks: list[Task],
    channels: Mapping[int, Channel],
    environment: TaskEnvironment,
    restored: RestoredJob,
) -> None:
    for vertex, key_type in restored.key_types.items():
        environment.key_type_agreement(vertex).adopt(key_type)
    receivers = {channel.index: task for task in tasks for channel in task.inputs}
    for channel in channels.values():
        in_flight = restored.channels.get(channel.index, NOTHING_IN_FLIGHT)
        hook = receivers[channel.index].hook
        if hook is None or in_flight is NOTHING_IN_FLIGHT:
            channel.restore(in_flight.inputs, in_flight.outputs)
        else:
            replay = partial(channel.restore, in_flight.inputs, in_flight.outputs)
            hook.in_deployment("restore.replay-channel", replay)
    for task in tasks:
        if task.inputs:
            task.gate.recover()


def _writers(
    plan: ExecutionPlan,
    task: Task,
    channels: Mapping[int, Channel],
    environment: TaskEnvironment,
    loop: Loop | None,
) -> list[RecordWriter]:
    writers: list[RecordWriter] = []
    subtask = task.plan
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
        router, receivers = edge.partitioner.router(context), [channels[index] for index in indices]
        if environment.provenance is not None:
            router = WatchedRouter(router, task)
        elif isinstance(task, AckedTask):
            router = AckedRouter(router, task)
        unaligned = edge.supports_unaligned
        if edge.is_feedback:
            assert loop is not None, edge
            writers.append(
                FeedbackWriter(
                    edge_index, router, receivers, supports_unaligned=unaligned, operator=source.name, loop=loop
                )
            )
        else:
            writers.append(RecordWriter(edge_index, router, receivers, supports_unaligned=unaligned))
    return writers
