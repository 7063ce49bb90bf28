"""Builds the tasks and channels of one attempt from the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial

from engine.checkpoint.coordinator import TaskId
from engine.graph.partitioner import RouterContext
from engine.graph.plan import ExecutionPlan, SubtaskPlan
from engine.observe.trace_events import records_of
from engine.runtime.channels import Channel, ChannelSettings, FloatingCredit, RecordWriter, Sender
from engine.runtime.config import ChannelCredit
from engine.runtime.storage import NOTHING_IN_FLIGHT, RestoredJob
from engine.runtime.tasks.environment import TaskEnvironment
from engine.runtime.tasks.feedback_loops import FeedbackWriter, Loop, build_loops, channel_classes
from engine.runtime.tasks.source_task import SourceTask
from engine.runtime.tasks.task import Task
from engine.runtime.tasks.watched import WatchedRouter

_UNBOUNDED = 2**62
"""Records: more than any channel will ever hold."""


def build_tasks(
    plan: ExecutionPlan,
    environment: TaskEnvironment,
    restored: RestoredJob | None,
    credit: ChannelCredit,
    *,
    only: Collection[TaskId] | None = None,
) -> dict[TaskId, Task]:
    """All tasks, wired, in plan order, with the restored records in flight in their channels; none is started.

    ``only``: a region of the plan, to build no other tasks.
    """
    chosen = frozenset(only) if only is not None else None
    tasks = [
        _task_class(plan, subtask)(subtask, plan.vertices[subtask.vertex], environment)
        for subtask in plan.subtasks
        if chosen is None or (subtask.vertex, subtask.subtask) in chosen
    ]
    by_id = {task.life.task_id: task for task in tasks}
    heard, hook, links = records_of(environment.instrument), environment.hook, environment.host_links
    for_channel = None if hook is None else hook.for_channel
    weigh = None if credit.segment_bytes is None else environment.cost.bytes_of
    # Once per sender: there may be a thousand times as many channels.
    settings = {
        task_id: ChannelSettings(
            environment.kernel,
            environment.cost,
            environment.cost.latency_ns(task.place.vertex.names_of(task.place.plan.subtask)),
            credit.capacity,
            environment.attempt,
            environment.instrument,
            credit.output_capacity,
            for_channel,
            heard,
            delay=environment.link_delay,
            host_link=None if links is None else links[task.place.plan.subtask],
            weigh=weigh,
        )
        for task_id, task in by_id.items()
        if task.place.plan.output_channels
    }
    classes = channel_classes(plan) if plan.has_loops else {}
    usual = Channel if environment.tracking is None else environment.tracking.channel_class
    channels = {
        channel.index: classes.get(channel.index, usual)(
            channel,
            by_id[channel.sender_vertex, channel.sender_subtask],
            by_id[channel.receiver_vertex, channel.receiver_subtask].name,
            settings[channel.sender_vertex, channel.sender_subtask],
        )
        for channel in plan.channels
        if chosen is None or (channel.sender_vertex, channel.sender_subtask) in chosen
    }
    loops = build_loops(plan, by_id, channels) if plan.has_loops else {}
    for task in tasks:
        task.end.loop = loop = loops.get(task.life.task_id)
        writers = _writers(plan, task, channels, environment, loop)
        inputs = [channels[index] for index in task.place.plan.input_channels]
        if credit.floating and inputs:
            FloatingCredit(credit.floating, inputs, credit.segment_bytes or 1)
        task.wire(inputs, writers)
    if restored is not None and restored.has_channel_state:
        _restore_channels(plan, tasks, channels, environment, restored)
    return by_id


def replaced_task(plan: ExecutionPlan, environment: TaskEnvironment, dead: Task, outputs: Iterable[Channel]) -> Task:
    """The successor of a task on its channels, which outlive it."""
    subtask = dead.place.plan
    task = _task_class(plan, subtask)(subtask, dead.place.vertex, environment)
    channels = {channel.index: channel for channel in outputs}
    for channel in channels.values():
        channel.sender_replaced(task)
    task.wire(dead.inputs, _writers(plan, task, channels, environment, None))
    return task


def lone_task(
    plan: ExecutionPlan,
    environment: TaskEnvironment,
    subtask: SubtaskPlan,
    feeder: Sender,
) -> tuple[Task, dict[int, Channel]]:
    """A task without its neighbours, and its output channels by their index. The caller puts elements into its inputs
    in the name of ``feeder``, and takes the elements of its outputs, whose gates it sets. No channel is ever full."""
    task = _task_class(plan, subtask)(subtask, plan.vertices[subtask.vertex], environment)
    settings = ChannelSettings(environment.kernel, environment.cost, 0, _UNBOUNDED, environment.attempt, None)
    inputs = [Channel(plan.channels[index], feeder, task.name, settings) for index in subtask.input_channels]
    outputs = {
        index: Channel(plan.channels[index], task, plan.edges[edge].name, settings)
        for edge, indices in subtask.output_channels
        for index in indices
    }
    task.wire(inputs, _writers(plan, task, outputs, environment, None))
    return task, outputs


def _task_class(plan: ExecutionPlan, subtask: SubtaskPlan) -> type[Task]:
    return SourceTask if plan.vertices[subtask.vertex].is_source else Task


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
        hook = receivers[channel.index].place.hook
        if hook is None or in_flight is NOTHING_IN_FLIGHT:
            channel.restore(in_flight.inputs, in_flight.outputs)
        else:
            replay = partial(channel.restore, in_flight.inputs, in_flight.outputs)
            hook.in_deployment("restore.replay-channel", replay)
    for task in tasks:
        if task.inputs:
            task.gate.recover()


def _writers(
    plan: ExecutionPlan, task: Task, channels: Mapping[int, Channel], environment: TaskEnvironment, loop: Loop | None
) -> list[RecordWriter]:
    writers: list[RecordWriter] = []
    subtask, sent = task.place.plan, environment.sent
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
            sent=sum([sent.get(index, 0) for index in indices]) if sent else 0,
        )
        router, receivers = edge.partitioner.router(context), [channels[index] for index in indices]
        if environment.provenance is not None:
            router = WatchedRouter(router, task.chain)
        elif task.tracking is not None:
            router = task.tracking.router(router)
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
