"""The steps of a task in which something may go wrong, as methods of their own; and what its gate tells it.

A plain task carries them out and nothing else; one of :mod:`engine.runtime.interfered_task` tells before and after
each of them where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.elements.errors import MalformedStateError, WeirError
from engine.runtime.interference import ZOMBIE
from state_backends.base import CorruptStateError, StateBackendError

if TYPE_CHECKING:
    from engine.checkpoint.instructions import (
        AbortCheckpoint,
        AlignmentFinished,
        NotifyOperatorsAborted,
        NotifyOperatorsComplete,
        NotifyOperatorsSubsumed,
        TriggerSnapshot,
    )
    from engine.elements.operator import Operator
    from engine.runtime.checkpointed_input_gate import CheckpointedInputGate
    from engine.runtime.environment import TaskEnvironment
    from engine.runtime.interfered_task import Pause
    from engine.runtime.kernel import Kernel
    from engine.runtime.task_checkpoint import TaskCheckpointing

    Notification = NotifyOperatorsComplete | NotifyOperatorsAborted | NotifyOperatorsSubsumed


class TaskSteps:
    """What of a task a fault may concern."""

    name: str
    environment: TaskEnvironment
    kernel: Kernel
    gate: CheckpointedInputGate
    checkpointing: TaskCheckpointing

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
        # Who comes by, written out: of all that a fault may concern nothing is asked as often.
        interference.at(point, phase, f"{ZOMBIE}{self.name}" if self.disowned else self.name)

    def initialize(self, operator: Operator) -> None:
        """Have an operator take over its state.

        Raises :class:`engine.elements.errors.MalformedStateError` when it is not what the operator writes.
        """
        try:
            operator.initialize_state()
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, CorruptStateError) as error:
            checkpoint_id = operator.context.restored_checkpoint_id()
            if checkpoint_id is None or isinstance(error, WeirError):
                raise
            if isinstance(error, StateBackendError) and not isinstance(error, CorruptStateError):
                raise
            what = f"{type(error).__name__}: {error}"
            if isinstance(error, CorruptStateError):
                what = f"{error.path}: {error.what}"
            raise MalformedStateError(operator.context.uid, checkpoint_id, what) from error

    def prepare_operator(self, operator: Operator, checkpoint_id: int) -> None:
        """Have an operator send what belongs ahead of a barrier."""
        operator.prepare_snapshot_pre_barrier(checkpoint_id)

    def finish_operator(self, operator: Operator) -> None:
        """Tell an operator that its input has ended."""
        operator.finish()

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

    # -- what the gate tells ------------------------------------------------------------------------------------

    def trigger_snapshot(self, due: TriggerSnapshot) -> None:
        """The barrier handler says that the snapshot is due."""
        self.checkpointing.snapshot_due(due)

    def abort_checkpoint(self, abort: AbortCheckpoint) -> None:
        """The barrier handler gave up on a checkpoint."""
        self.checkpointing.barrier_aborted(abort)

    def alignment_finished(self, finished: AlignmentFinished) -> None:
        """All barriers of an unaligned checkpoint are here."""
        self.checkpointing.alignment_finished(finished)

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """The input part of a checkpoint's channel state has ended, or one of the slots of its output part."""
        self.checkpointing.channel_state_changed(checkpoint_id)

    def capture_failed(self, checkpoint_id: int) -> None:
        """Not all barriers of an unaligned checkpoint will come."""
        self.checkpointing.capture_failed(checkpoint_id)

    def arm_alignment_timer(self, checkpoint_id: int, at_ns: int) -> None:
        """The alignment of a checkpoint may take until ``at_ns``."""
        self.kernel.schedule(
            max(at_ns, self.kernel.now_ns), "receive_mail", self, ("alignment_timeout", (checkpoint_id,))
        )

    def alignment_timeout(self, checkpoint_id: int) -> None:
        """The alignment timer of a checkpoint fires (mail)."""
        self.gate.on_timeout(checkpoint_id, self.kernel.now_ns)

    def output_timeout(self, checkpoint_id: int) -> None:
        """The alignment timer of the outputs fires (mail)."""
        self.checkpointing.output_timeout(checkpoint_id)

    def debloat(self) -> None:
        """A period of buffer debloating is over (mail)."""
        assert self.gate.debloater is not None
        self.gate.debloater.period_over()
        if not self.gate.debloater.rests:
            self.debloat_later()

    def debloat_later(self) -> None:
        """Come back when the next period of buffer debloating is over, if there is any."""
        if self.gate.debloater is not None:
            due_ns = self.gate.debloater.next_period()
            self.kernel.schedule(due_ns, "receive_mail", self, ("debloat", ()))
