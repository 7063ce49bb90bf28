"""Failover regions: which tasks die together (Flink: ``PipelinedRegionComputeUtil``).

All channels of Weir are pipelined: what a task has sent cannot be sent again without the task. So tasks that exchange
records, directly or through others, in either direction, have to go back to a checkpoint together. A region is a
weakly connected component of the graph of subtasks; there are no channels between two regions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.checkpoint.coordinator import TaskId

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan

Region = tuple[TaskId, ...]
"""Tasks in plan order."""


def single_task_regions(plan: ExecutionPlan) -> tuple[Region, ...]:
    """Each task for itself: whoever lives sends again what a dead task had."""
    return tuple(((subtask.vertex, subtask.subtask),) for subtask in plan.subtasks)


def failover_regions(plan: ExecutionPlan) -> tuple[Region, ...]:
    """The regions of a plan, ordered by their first task; together they are all tasks."""
    leader = {(subtask.vertex, subtask.subtask): (subtask.vertex, subtask.subtask) for subtask in plan.subtasks}

    def leader_of(task: TaskId) -> TaskId:
        while leader[task] != task:
            leader[task] = task = leader[leader[task]]
        return task

    for channel in plan.channels:
        sender = leader_of((channel.sender_vertex, channel.sender_subtask))
        receiver = leader_of((channel.receiver_vertex, channel.receiver_subtask))
        leader[max(sender, receiver)] = min(sender, receiver)
    regions: dict[TaskId, list[TaskId]] = {}
    for task in leader:
        regions.setdefault(leader_of(task), []).append(task)
    return tuple(tuple(region) for region in regions.values())
