"""The port through which faults reach a run. With none attached the runtime asks nobody.

The runtime says where it is and what it is about to send; the other side answers what goes wrong there. It never
reaches into the runtime itself, except for what :class:`engine.runtime.execution.Execution` offers to everybody.
"""

from __future__ import annotations

from typing import Protocol

from engine.runtime.kernel import PROCESS

DROPPED, OVERTAKES = -1, -2
"""Instead of a delay, in a network that breaks what channels promise: an element never arrives, or arrives ahead of the
one in front of it."""


ZOMBIE = "zombie "
"""What is in front of the name of a task that was declared dead and goes on nevertheless."""


class StruckDown(BaseException):
    """``target`` dies here, in the middle of what it does: a subtask's or worker's name, ``job manager`` or
    ``process``. Not an :class:`Exception`, so that no error handling can survive it; the run catches it between two
    events, declares the target dead and goes on, or ends when it is the process."""

    is_over = False
    """Whether the run has dealt with it: until then whatever still happens is the unwinding of a dead process."""

    def __init__(self, target: str, cause: str) -> None:
        self.target, self.cause = target, cause
        super().__init__(f"{target}: {cause}")


class ProcessDiedError(StruckDown):
    """The whole process of a run is dead, at ``at_ns`` of virtual time: nothing was closed, ended or deleted. What is
    in files is all there is to go on from."""

    def __init__(self, cause: str, at_ns: int) -> None:
        super().__init__(PROCESS, cause)
        self.at_ns = at_ns


class Interference(Protocol):
    """What goes wrong in a run."""

    def at(self, point: str, phase: str, actor: str) -> None:
        """``actor`` (a task, or ``job manager``) has come to a point of :mod:`engine.observe.points`.

        Raises :class:`StruckDown` to have somebody die right here; any :class:`Exception` to have the step fail.
        """

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        """When a message between the job manager, or an acker, and ``task`` arrives, as delays in ns: ``(0,)`` as
        usual, ``()`` never, ``(0, 0)`` twice."""

    def element_delay_ns(self, channel: str, kind: str) -> int:
        """How much longer than usual an element (``records`` or the class of an event) is under way on a channel
        (``sender->receiver``). A channel stays FIFO whatever the answers; but for :data:`DROPPED` and
        :data:`OVERTAKES`."""

    def clock_skew_ns(self, task: str) -> int:
        """How far the processing-time clock of a task is from the true one, asked whenever it is read."""

    def hold_ns(self, task: str, is_source: bool) -> int:
        """For how long a task takes nothing further from its inputs (or emits nothing further, ``is_source``), asked
        each time it is about to: 0 as usual, else it asks again when that time is over."""

    def watermark_delay_ns(self, task: str) -> int:
        """For how long a watermark that has come to a task is kept from it, and those that follow with it."""
