"""One subtask in one attempt. ``task`` takes events from the kernel; ``source_task`` has a source in place of inputs.
Their parts: ``operator_chain`` with a ``task_context`` and ``background`` work for each operator, ``task_timers``,
``task_checkpoint`` with one ``async_snapshot`` for each checkpoint, ``task_end``. ``environment`` is what all tasks of
an attempt share, ``source_progress`` how far their sources are, ``operator_messages`` what they tell operator
coordinators, ``loops`` what tasks in a circle need. ``attempt`` builds tasks and channels from the plan. ``tracking``
(acking) and ``watched`` (causes) are absent mostly.
"""

from __future__ import annotations

from engine.runtime.tasks.async_snapshot import AsyncSnapshot
from engine.runtime.tasks.attempt import build_tasks, replaced_task
from engine.runtime.tasks.environment import TaskEnvironment
from engine.runtime.tasks.loops import check_loops
from engine.runtime.tasks.operator_messages import BarrierProcessed, OperatorEvent, plain_copy
from engine.runtime.tasks.source_progress import SourceProgress
from engine.runtime.tasks.source_task import SourceTask
from engine.runtime.tasks.task import CREATED, RUNNING, Task

__all__ = [
    "AsyncSnapshot",
    "BarrierProcessed",
    "CREATED",
    "OperatorEvent",
    "RUNNING",
    "SourceProgress",
    "SourceTask",
    "Task",
    "TaskEnvironment",
    "build_tasks",
    "check_loops",
    "plain_copy",
    "replaced_task",
]
