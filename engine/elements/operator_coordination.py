"""The contract of an operator coordinator: the part of an operator that exists once, beside the job manager.

A coordinator hands work to the subtasks of its operator, or agrees on something with them (Flink:
``OperatorCoordinator``; the enumerator of a source's splits is one). Both sides send events, which are plain values of
the kind that state can hold, and arrive as copies. An operator has a coordinator when its factory, or the transform
that makes the operators, has a method ``create_coordinator()``.

Rules
-----
* Events sent before ``checkpoint(n)`` returned reach a subtask before the barrier of checkpoint ``n`` does; events sent
  afterwards come after that barrier. So the coordinator's state is the work it has *not* handed out yet; work handed
  out is in the state of the subtasks.
* Events of a subtask are part of no checkpoint: it may have to send them again after a restore. A restored subtask asks
  anew for everything it needs.
* When subtasks fail and the others go on, the coordinator goes on as well. Events to a failed subtask since the
  checkpoint that ``subtask_reset`` names are lost, and the coordinator must take back their work. Events to a subtask
  that does not run are lost too; ``subtask_ready`` says when it runs.
* When the whole job goes back, so does the coordinator: ``reset_to_checkpoint``.
* A coordinator that raises fails the whole job, as the state of its subtasks is unknown by then.
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
        """Call ``on_coordinator_event(event)`` in ``subtask``, between two records and after every event sent
        to it before. Lost when the subtask does not run, or has come to the end of its input.

        Raises :class:`engine.elements.errors.StateError` for an event that is not a plain value, and
        ``IndexError`` when there is no such subtask.
        """


class OperatorCoordinator:
    """Base of all coordinators; subclasses override what they need. Life cycle::

    [reset_to_checkpoint] -> start -> { handle_event | subtask_ready | subtask_reset | checkpoint
                                        | reset_to_checkpoint | notify_checkpoint_* }* -> close
    """

    gateways: SubtaskGateways

    state_shape: Shape = staticmethod(anything)
    """The shape of the state that ``checkpoint`` returns; checked before ``reset_to_checkpoint`` gets it."""

    def start(self, gateways: SubtaskGateways) -> None:
        """Receive the gateways to the subtasks; they are deployed, and reported ready one by one afterwards."""
        self.gateways = gateways

    def subtask_ready(self, subtask: int) -> None:
        """``subtask`` was deployed and can receive events (Flink: ``executionAttemptReady``)."""

    def handle_event(self, subtask: int, event: Any) -> None:
        """``subtask`` has sent ``event``. No event comes from a subtask that has failed meanwhile."""
        raise TypeError(f"{type(self).__name__} takes no events")

    def checkpoint(self, checkpoint_id: int) -> Any:
        """The state, a plain value: it is encoded as soon as this returns, so it may be the object itself."""
        return None

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any) -> None:
        """Go back to ``state`` of ``checkpoint_id``; both are ``None`` when the job begins from nothing, and ``state``
        is ``None`` when the checkpoint has none for this operator. Called before ``start`` when a job is started from a
        checkpoint; called later, all subtasks go back as well."""

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """``subtask`` has failed and goes back to ``checkpoint_id`` (``None``: to its beginning), but the coordinator
        does not. ``subtask_ready`` follows."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` is durable. Aborts that this caused were reported before."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """``checkpoint_id`` will never be restored from; ``checkpoint`` may not have been asked for it."""

    def close(self) -> None:
        """Release resources; always comes, also after a failure."""

    def fingerprint(self) -> object:
        """State that makes two coordinators behave differently."""
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
"""Makes a fresh coordinator for one job manager. Its captured variables are read-only."""


def coordinator_factory(factory: object) -> CoordinatorFactory | None:
    """The factory of coordinators for the operators that ``factory`` makes; ``None`` when they have none.

    ``factory`` is an object with ``create_coordinator``, or a method of one.
    """
    for holder in (factory, getattr(factory, "__self__", None)):
        create = getattr(holder, "create_coordinator", None)
        if callable(create):
            made: CoordinatorFactory = create
            return made
    return None
