"""The port through which faults reach a run. With none attached the runtime asks for none.

The runtime says where it is and which message it is about to send; the other side answers which fault happens there.
It never reaches into the runtime itself, except for the public methods of :class:`engine.runtime.execution.Execution`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from engine.runtime.kernel import PROCESS

DROPPED, OVERTAKES = -1, -2
"""Instead of a delay, in a network that breaks the promises of channels: an element never arrives, or arrives before
its predecessor."""


ZOMBIE = "zombie "
"""Prefix to the name of a task that was declared dead and goes on nevertheless."""


class StruckDown(BaseException):
    """``target`` dies here, in the middle of its step: a subtask's or worker's name, ``job manager`` or ``process``.
    Not an :class:`Exception`, so that no error handling can survive it. The run catches it between two events, declares
    the target dead and goes on, or ends when the target is the process."""

    is_over = False
    """Whether the run has dealt with it: until then every further step is the unwinding of a dead process."""

    def __init__(self, target: str, cause: str) -> None:
        self.target, self.cause = target, cause
        super().__init__(f"{target}: {cause}")


class ProcessDiedError(StruckDown):
    """The whole process of a run is dead, at ``at_ns`` of virtual time: nothing was closed, ended or deleted. Only the
    files are left to go on from."""

    def __init__(self, cause: str, at_ns: int) -> None:
        super().__init__(PROCESS, cause)
        self.at_ns = at_ns


Visit = tuple[str, str, str]
"""A visit of a named point: point, phase and actor."""


class Weights:
    """``by_point``: how many opportunities of faults a visit has, where it is not one. It never changes."""

    __slots__ = ("by_point",)

    def __init__(self, by_point: Mapping[str, int]) -> None:
        self.by_point = by_point


_ONE_EACH = Weights({})


class NotedVisits:
    """Visits of named points in their order. ``calm`` opportunities of faults pass for certain: a visit with no more of
    them takes them, and is only added to ``passed``. ``weights``: how many a visit has."""

    __slots__ = ("calm", "passed", "weights")

    def __init__(self, weights: Weights = _ONE_EACH) -> None:
        self.passed: list[Visit] = []
        self.calm = 0
        self.weights = weights

    def passes(self, visit: Visit, weight: int) -> bool:
        """Whether a visit is noted; otherwise it may bring a fault."""
        if weight > self.calm:
            return False
        self.calm -= weight
        self.passed.append(visit)
        return True


class Interference(Protocol):
    """Decides the faults of a run."""

    @property
    def visited(self) -> NotedVisits:
        """Where visits are noted of which :meth:`at` need not be told; the same object in the whole run."""

    def at(self, point: str, phase: str, actor: str) -> None:
        """``actor`` (a task, or ``job manager``) has come to a point of :mod:`engine.observe.points`.

        Raises :class:`StruckDown` to let an actor die right here; any :class:`Exception` to let the step fail.
        """

    @property
    def disturbs_messages(self) -> bool:
        """Whether :meth:`fates` may ever be other than ``(0,)``; asked when a run is built."""

    def fates(self, message: str, task: str) -> tuple[int, ...]:
        """The delays in ns after which a message between the job manager, or an acker, and ``task`` arrives: ``(0,)``
        as usual, ``()`` never, ``(0, 0)`` twice."""

    @property
    def disturbs_elements(self) -> bool:
        """Whether :meth:`element_delay_ns` may ever be other than 0; asked when channels are built."""

    @property
    def disturbs_time(self) -> bool:
        """Whether clocks, holds and delays of watermarks may ever be other than 0; asked when a task is built."""

    def element_delay_ns(self, channel: str, kind: str) -> int:
        """How much longer than usual an element (``records`` or the class of an event) is under way on a channel
        (``sender->receiver``). A channel stays FIFO whatever the answers, except for :data:`DROPPED` and
        :data:`OVERTAKES`."""

    def clock_skew_ns(self, task: str) -> int:
        """How far the processing-time clock of a task is from the true one, asked whenever it is read."""

    def hold_ns(self, task: str, is_source: bool) -> int:
        """For how long a task takes nothing further from its inputs (or emits nothing further, ``is_source``), asked
        each time it is about to: 0 as usual, else it asks again when that time is over."""

    def watermark_delay_ns(self, task: str) -> int:
        """For how long a watermark that has come to a task is kept from it, and those that follow with it."""
