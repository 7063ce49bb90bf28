"""The port through which faults reach a run. With none attached the runtime asks nobody.

The runtime says where it is and what it is about to send; the other side answers what goes wrong there. It never
reaches into the runtime itself, except for what :class:`engine.runtime.execution.Execution` offers to everybody.
"""

from __future__ import annotations

from typing import Protocol

MESSAGES = (
    "trigger_checkpoint",
    "notify_checkpoint_complete",
    "notify_checkpoint_aborted",
    "receive_acknowledge",
    "receive_decline",
    "may_finish",
)
"""Messages between job manager and tasks that may go astray, by the method that takes them."""

DELIVERED: tuple[int, ...] = (0,)
"""The usual fate of a message: it comes once, at once."""


class StruckDown(BaseException):
    """``target`` dies here, in the middle of what it does: a subtask's or worker's name, ``job manager`` or
    ``process``. Not an :class:`Exception`, so that no error handling can survive it; the run catches it between two
    events, declares the target dead and goes on, or ends when it is the process."""

    def __init__(self, target: str, cause: str) -> None:
        self.target, self.cause = target, cause
        super().__init__(f"{target}: {cause}")


class Interference(Protocol):
    """What goes wrong in a run."""

    def at(self, point: str, phase: str, actor: str) -> None:
        """``actor`` (a task, or ``job manager``) has come to a point of :mod:`engine.observe.points`.

        Raises :class:`StruckDown` to have somebody die right here; any :class:`Exception` to have the step fail.
        """

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        """When a message between the job manager and ``task`` arrives, as delays in ns: ``(0,)`` as usual, ``()``
        never, ``(0, 0)`` twice."""

    def element_delay_ns(self, channel: str, kind: str) -> int:
        """How much longer than usual an element (``records`` or the class of an event) is under way on a channel
        (``sender->receiver``). A channel stays FIFO whatever the answers."""

    def clock_skew_ns(self, task: str) -> int:
        """How far the processing-time clock of a task is from the true one, asked when it starts."""
