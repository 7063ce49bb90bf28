"""The contract of an operator coordinator: the part of an operator that exists once, beside the job manager.

A coordinator hands work to the subtasks of its operator, or agrees something with them (Flink: ``OperatorCoordinator``;
the enumerator of a source's splits is one). Both sides send events, which are plain values of the kind that state can
hold, and arrive as copies. An operator has a coordinator when its factory, or the transform that makes the operators,
has a method ``create_coordinator()``.

Rules
-----
* What the coordinator sent before ``checkpoint(n)`` returned reaches a subtask before the barrier of checkpoint ``n``
  does; what it sends afterwards comes behind that barrier. So its state is what it has *not* handed out yet, and what
  was handed out is in the state of the subtasks.
* What a subtask sends is part of no checkpoint: it may be asked again after a restore. A subtask that was restored says
  anew what it needs.
* When subtasks fail and the others go on, the coordinator goes on as well. What it sent to a failed subtask since the
  checkpoint that ``subtask_reset`` names is lost, and it must take that back. What it sends to one that does not run
  is lost too; ``subtask_ready`` tells when it runs.
* When the whole job goes back, so does the coordinator: ``reset_to_checkpoint``.
* A coordinator that raises fails the whole job, as its subtasks may be anywhere by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from engine.elements.errors import UserFunctionError, WeirError
from state_backends.base import Shape, anything


class SubtaskGateways(Protocol):
    """The way from a coordinator to the subtasks of its operator."""

    parallelism: int

    def send(self, subtask: int, event: Any) -> None:
        """Have ``on_coordinator_event(event)`` called in ``subtask``, between two records and behind every event sent
        to it before. Lost when the subtask does not run, or has come to the end of its input.

        Raises :class:`engine.elements.errors.StateError` for an event that is no plain value, and
        ``IndexError`` when there is no such subtask.
        """


class OperatorCoordinator:
    """Base of all coordinators; subclasses override what they need. Life cycle::

    [reset_to_checkpoint] -> start -> { handle_event | subtask_ready | subtask_reset | checkpoint
                                        | reset_to_checkpoint | notify_checkpoint_* }* -> close
    """

    gateways: SubtaskGateways

    state_shape: Shape = staticmethod(anything)
    """Of what ``checkpoint`` returns; what a checkpoint holds is checked before ``reset_to_checkpoint`` gets it."""

    def start(self, gateways: SubtaskGateways) -> None:
        """Receive the way to the subtasks; they are deployed, and called ready one by one afterwards."""
        self.gateways = gateways

    def subtask_ready(self, subtask: int) -> None:
        """``subtask`` was deployed and can be sent to (Flink: ``executionAttemptReady``)."""

    def handle_event(self, subtask: int, event: Any) -> None:
        """``subtask`` has sent ``event``. Nothing comes from a subtask that has failed meanwhile."""
        raise TypeError(f"{type(self).__name__} takes no events")

    def checkpoint(self, checkpoint_id: int) -> Any:
        """The state, a plain value: it is encoded as soon as this returns, so it may be the object itself."""
        return None

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any) -> None:
        """Go back to ``state`` of ``checkpoint_id``; both are ``None`` when the job begins from nothing, and ``state``
        is ``None`` when the checkpoint has none for this operator. Comes before ``start`` when a job is started from a
        checkpoint; later, all subtasks go back as well."""

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """``subtask`` has failed and goes back to ``checkpoint_id`` (``None``: to its beginning), and the coordinator
        does not. ``subtask_ready`` follows."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` is durable. Aborts that this caused were told before."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` will never be restored from; ``checkpoint`` may not have been asked for it."""

    def close(self) -> None:
        """Release resources; always comes, also after a failure."""

    def fingerprint(self) -> object:
        """Whatever makes two coordinators behave differently."""
        return None


class CoordinatorError(WeirError):
    """A coordinator raised. Names the operator; the cause is chained."""

    exit_code = UserFunctionError.exit_code

    def __init__(self, operator: str, what: str, cause: BaseException) -> None:
        self.operator = operator
        if isinstance(cause, WeirError):
            self.exit_code = cause.exit_code
        super().__init__(
            f"{what} of the coordinator of operator {operator!r} raised {type(cause).__name__}: {cause}\n"
            "  the whole job goes back to its newest checkpoint; fix the coordinator if it fails there again"
        )


CoordinatorFactory = Callable[[], OperatorCoordinator]
"""Makes a fresh coordinator for one job manager. What it captures is read-only."""


def coordinator_factory(factory: object) -> CoordinatorFactory | None:
    """What makes the coordinators of the operators that ``factory`` makes; ``None`` when they have none.

    ``factory`` is an object with ``create_coordinator``, or a method of one.
    """
    for holder in (factory, getattr(factory, "__self__", None)):
        create = getattr(holder, "create_coordinator", None)
        if callable(create):
            made: CoordinatorFactory = create
            return made
    return None
