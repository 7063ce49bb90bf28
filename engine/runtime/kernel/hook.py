"""The hook through which faults reach the runtime. A run without faults has no hook, and asks for none.

The runtime says *around* which named point of :mod:`engine.observe.points` it is, and asks whether it *may* take its
next step. The answering classes are in :mod:`engine.runtime.faulted`; no other room of the runtime knows more than
this. Parts that only say where they are get ``around`` itself, and :func:`nothing_around` when there is no hook.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from engine.elements.batch import Batch
from engine.elements.events import Event
from engine.elements.operator import Operator

PROCESS, JOB_MANAGER, WORKER = "process", "job manager", "worker"
"""Actors that may die besides single tasks. ``worker[1]``: all subtasks of that index (Flink: slot sharing)."""

Rest = tuple[str, tuple[Any, ...]]
"""The rest of a step: an operation of the task, as in its mail, and the arguments."""


class Around(Protocol):
    """Reports where an actor is."""

    def __call__(
        self, point: str | None, operator: Operator | None = None, rest: Rest | None = None
    ) -> AbstractContextManager[bool]:
        """A step at a named point (``None``: at none), of an operator perhaps. With a ``rest`` the step may be put off.
        Then the entered value is false, nothing of the step may be done, and the rest is carried out later."""


class Clock(Protocol):
    """A processing-time clock. That of the kernel is virtual time; a fault may have set another one wrong."""

    def clock_ns(self) -> int:
        """The time it shows."""

    def clock_ms(self) -> int:
        """The same in ms."""


class TaskHook(Clock, Protocol):
    """Faults of one task, whose clock it is."""

    def around(
        self, point: str | None, operator: Operator | None = None, rest: Rest | None = None
    ) -> AbstractContextManager[bool]:
        """See :class:`Around`."""

    def within_process(self, receive: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """A receiver for the records of an input, as a step at a point of its own."""

    def alone(self, *, is_dead: bool = False) -> AbstractContextManager[None]:
        """A step of another actor in which the task may die: that actor goes on. ``is_dead``: it has died already, and
        may not even come to the end of that."""

    def in_deployment(self, point: str, step: Callable[[], None]) -> None:
        """A step of the deployment at a point of the task. It is taken even if the task dies there."""

    def take_time(self, index: int, event: Event) -> None:
        """Hand the task a watermark, or a status of watermarks, of the input at ``index``, now or later."""

    def may(self, operation: str, payload: object = None, target: object = None) -> bool:
        """Whether the task, or a ``target`` that belongs to it, may now do what an event asks for. If not, it does so
        later, or never."""

    @property
    def disturbs_time(self) -> bool:
        """Whether :meth:`hold_ns` is to be asked, and whether the clock may be wrong."""

    @property
    def pause(self) -> object | None:
        """The present pause: the task cannot be heard or reached, and may do nothing."""

    def hold_ns(self) -> int:
        """For how long the task may take nothing further, asked whenever it is about to."""

    def happens(self, event: tuple[str, Any]) -> None:
        """An event that the hook has arranged is due."""

    def fingerprint(self) -> object:
        """State that determines the next faults of the task."""


class LinkHook(Protocol):
    """Faults on the way from one task to another."""

    def propagate(self, numbered: tuple[int, Batch | Event]) -> None:
        """An element has left; let it arrive at some time, or never."""

    def happens(self, event: tuple[str, Any]) -> None:
        """An event that the hook has arranged is due."""

    def cut(self) -> None:
        """Elements under way do not arrive any more."""

    def fingerprint(self) -> object:
        """The elements under way, and for how long."""


class RunHook(Protocol):
    """Faults of a run. Those of its channels and tasks are asked for in the rooms of these."""

    def at(self, actor: str) -> Around:
        """Reports where an actor is that is not a task: the job manager, an acker."""

    @property
    def disturbs_messages(self) -> bool:
        """Whether :meth:`delays_ns` is to be asked."""

    def delays_ns(self, message: str, task: str) -> tuple[int, ...]:
        """The delays after which a message between ``task`` and the job manager, or an acker, arrives: ``(0,)`` at
        once, ``()`` never, ``(0, 0)`` twice."""

    def happens(self, event: tuple[str, Any]) -> None:
        """An event that the hook has arranged is due."""


_NOTHING = nullcontext(True)


def nothing_around(
    point: str | None, operator: Operator | None = None, rest: Rest | None = None
) -> AbstractContextManager[bool]:
    """Takes the place of a hook when there is none."""
    return _NOTHING


def around_of(hook: RunHook | None, actor: str) -> Around:
    """Reports where an actor is that is not a task."""
    return nothing_around if hook is None else hook.at(actor)
