"""How a task passes its time, by Flink's names: busy, idle, back-pressured (``TaskIOMetricGroup``).

Busy is the time that records take, and that operators spend. Back-pressured is the time without work in which an output
has no credit, or an operator has taken on as much as it may. The rest is idle: no record may be read.

Nothing is counted per record. The time of records is their number times their cost, or the sum of the service times;
an output is noted when it fills and when its credit returns.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.runtime.kernel import Kernel
from engine.runtime.tasks.task_life import TaskLife


class TaskTimes(NamedTuple):
    """In virtual ns."""

    busy_ns: int = 0
    back_pressured_ns: int = 0
    idle_ns: int = 0

    def plus(self, other: TaskTimes) -> TaskTimes:
        """Those of both together."""
        return TaskTimes(*(one + another for one, another in zip(self, other, strict=True)))


class TaskWork:
    """The time of one task in one attempt. ``spent_ns``: time that its operators have spent."""

    __slots__ = ("_kernel", "_life", "_pressed_ns", "_pressed_since_ns", "spent_ns")

    def __init__(self, kernel: Kernel, life: TaskLife) -> None:
        self._kernel = kernel
        self._life = life
        self._pressed_ns = 0
        self._pressed_since_ns: int | None = None
        self.spent_ns = 0

    def pressed(self, spent_until_ns: int) -> None:
        """The first output is without credit. Until ``spent_until_ns`` the task is busy."""
        self._pressed_since_ns = max(spent_until_ns, self._kernel.now_ns)

    def relieved(self) -> None:
        """All outputs have credit again."""
        self._pressed_ns, self._pressed_since_ns = self._pressed_so_far(self._kernel.now_ns), None

    def _pressed_so_far(self, now_ns: int) -> int:
        since_ns = self._pressed_since_ns
        return self._pressed_ns if since_ns is None else self._pressed_ns + max(0, now_ns - since_ns)

    def times(self, records_ns: int) -> TaskTimes:
        """Until now, or until the task ended. ``records_ns``: what its records have taken."""
        life, now_ns = self._life, self._kernel.now_ns
        ran_ns = now_ns - life.runs_since_ns if life.is_running else life.ran_ns
        ended_ns = now_ns if life.is_running else life.runs_since_ns + ran_ns
        busy_ns = min(ran_ns, records_ns + self.spent_ns)
        pressed_ns = min(ran_ns - busy_ns, self._pressed_so_far(ended_ns))
        return TaskTimes(busy_ns, pressed_ns, ran_ns - busy_ns - pressed_ns)
