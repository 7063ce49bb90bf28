"""Where a task is: its part of the plan and its surroundings. The parts of a task get this instead of the task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.runtime.hook import nothing_around

if TYPE_CHECKING:
    from engine.graph.plan import SubtaskPlan, VertexPlan
    from engine.runtime.hook import Around, TaskHook
    from engine.runtime.tasks.environment import TaskEnvironment


class TaskPlace:
    """One subtask of one attempt. ``hook`` is absent when nobody interferes."""

    __slots__ = ("around", "attempt", "environment", "hook", "kernel", "name", "plan", "task_id", "vertex")

    def __init__(
        self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment, hook: TaskHook | None
    ) -> None:
        self.plan = plan
        self.vertex = vertex
        self.environment = environment
        self.name = plan.name
        self.task_id = (plan.vertex, plan.subtask)
        self.attempt = environment.attempt
        self.kernel = environment.kernel
        self.hook = hook
        self.around: Around = nothing_around if hook is None else hook.around
