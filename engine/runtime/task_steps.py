"""The steps of a task in which something may go wrong, as methods of their own.

A plain task carries them out and nothing else; one of :mod:`engine.runtime.interfered_task` tells before and after
each of them where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.runtime.interference import ZOMBIE

if TYPE_CHECKING:
    from engine.checkpoint.instructions import (
        NotifyOperatorsAborted,
        NotifyOperatorsComplete,
        NotifyOperatorsSubsumed,
    )
    from engine.elements.operator import Operator
    from engine.runtime.environment import TaskEnvironment
    from engine.runtime.interfered_task import Pause

    Notification = NotifyOperatorsComplete | NotifyOperatorsAborted | NotifyOperatorsSubsumed


class TaskSteps:
    """What of a task a fault may concern."""

    name: str
    environment: TaskEnvironment

    pause: Pause | None = None
    """What has come meanwhile, while a fault has the task do nothing."""
    disowned = False
    """Whether the job manager has declared the task dead: what it still does means nothing."""

    @property
    def actor(self) -> str:
        """Who comes by at a point: the task, or the zombie that it is."""
        return f"{ZOMBIE}{self.name}" if self.disowned else self.name

    def visit(self, point: str, phase: str) -> None:
        """The task has come to a named point; only where something may go wrong."""
        interference = self.environment.interference
        assert interference is not None, self.name
        interference.at(point, phase, self.actor)

    def initialize(self, operator: Operator) -> None:
        """Have an operator take over its state."""
        operator.initialize_state()

    def snapshot_operator(self, operator: Operator, checkpoint_id: int) -> None:
        """Have an operator bring its declared state up to date."""
        operator.snapshot_state(checkpoint_id)

    def may_notify(self, notification: Notification, operator: Operator) -> bool:
        """Whether an operator hears of a checkpoint now, and not after a pause of the task."""
        return True

    def notified(self, notification: Notification, operator: Operator) -> None:
        """An operator has heard of a checkpoint."""

    def close_operator(self, operator: Operator) -> None:
        """Have an operator release what it holds."""
        operator.close()
