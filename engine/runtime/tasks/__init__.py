"""One subtask in one attempt. ``task`` takes events from the kernel; ``source_task`` has a source in place of inputs.
Their parts: ``operator_chain`` with a ``task_context`` and ``background`` work for each operator, ``task_timers``,
``task_checkpoint`` with one ``async_snapshot`` for each checkpoint, ``task_life``, ``task_end``. ``environment`` holds
objects that all tasks of an attempt share, ``feedback_loops`` the classes for tasks in a circle. ``attempt`` builds
tasks and channels from the plan. Most runs have neither ``tracking`` (acking) nor ``watched`` (causes).
"""

from __future__ import annotations

from engine.runtime.tasks.async_snapshot import AsyncSnapshot as AsyncSnapshot
from engine.runtime.tasks.attempt import (
    build_tasks as build_tasks,
    lone_task as lone_task,
    replaced_task as replaced_task,
)
from engine.runtime.tasks.drawn_world import DrawnWorld as DrawnWorld
from engine.runtime.tasks.environment import (
    AttemptHook as AttemptHook,
    BarrierProcessed as BarrierProcessed,
    OperatorEvent as OperatorEvent,
    SourceProgress as SourceProgress,
    TaskEnvironment as TaskEnvironment,
    TaskPlace as TaskPlace,
    plain_copy as plain_copy,
)
from engine.runtime.tasks.feedback_loops import check_loops as check_loops
from engine.runtime.tasks.operator_chain import OperatorChain as OperatorChain
from engine.runtime.tasks.service_times import ServiceTimes as ServiceTimes
from engine.runtime.tasks.source_task import SourceTask as SourceTask
from engine.runtime.tasks.storage_times import StorageTimes as StorageTimes
from engine.runtime.tasks.task import Task as Task
from engine.runtime.tasks.task_context import LOCAL as LOCAL, REMOTE as REMOTE
from engine.runtime.tasks.task_life import CREATED as CREATED, RUNNING as RUNNING, TaskLife as TaskLife
from engine.runtime.tasks.task_work import TaskTimes as TaskTimes
from engine.runtime.tasks.tracking import TaskTracking as TaskTracking, TrackedSource as TrackedSource
