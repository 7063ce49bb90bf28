"""The operator of sinks that commit all rows of a checkpoint at once, under the number of that checkpoint.

Rules.
* A snapshot closes a batch: its rows are staged, and the state says what was staged for which checkpoint. The batch is
  committed when that checkpoint, or a later one, has completed.
* A restore from checkpoint ``n`` commits all batches in its state. Each may be committed already, so the target
  compares the number of the checkpoint with the last one that it has taken from this subtask: **a commit is
  idempotent by its number**. A batch keeps the subtask that staged it, also when another one commits it.
* Where another process has committed what the state lists (Spark: the driver, before the batch), a restore commits
  nothing: only that process calls the target's ``commit``.
* A target that has taken a later checkpoint than the one that is restored holds rows that will come again: an error.
* What dead attempts have staged is in no state, and is never committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from operators.basic import SinkOperator
from state_backends.base import anything, row, whole

# The number of the one commit of a run without checkpoints.
_AT_THE_END = 0


class BatchTarget(Protocol):
    """Takes the batches of one subtask."""

    def open(self, operator: Operator) -> None:
        """First call; ``operator`` has its context."""

    def check_start(self, restored_id: int | None) -> None:
        """Raises an error when later checkpoints than this one have been committed."""

    def take(self, batch: Batch) -> None:
        """Gather records; raises the user's error for one that does not fit."""

    def stage(self, checkpoint_id: int) -> Any:
        """Make sure that the records gathered so far can be committed, and forget them; returns a plain value for the
        state, ``None`` without records."""

    def commit(self, subtask: int, checkpoint_id: int, staged: Any) -> None:
        """Make a batch visible; does nothing when it is."""

    def fingerprint(self) -> object:
        """Of the gathered records."""


class BatchSinkOperator(SinkOperator):
    """``create``: makes the target."""

    def __init__(self, create: Callable[[], BatchTarget]) -> None:
        self._target = create()
        self._pending: dict[tuple[int, int], Any] = {}
        """By checkpoint and subtask."""

    def initialize_state(self) -> None:
        context = self.context
        self._state = context.operator_backend().list_state("staged-batches", row(whole, whole, anything))
        self._target.open(self)
        if context.restored_is_committed:
            # In a batch of Spark: the driver has done all of this, and a function for the driver must not run here.
            return
        if context.checkpointing_enabled or (context.incarnation, context.attempt) == (1, 1):
            # Without checkpoints a later attempt may find what an earlier one has committed at its end: the same rows.
            self._target.check_start(context.restored_checkpoint_id())
        for checkpoint_id, subtask, staged in sorted(self._state.get(), key=lambda one: one[:2]):
            # In the state of a completed checkpoint, so committed, whether or not the notification arrived.
            self._target.commit(subtask, checkpoint_id, staged)

    def process_batch(self, batch: Batch) -> None:
        if batch:
            self._target.take(batch)

    def snapshot_state(self, checkpoint_id: int) -> None:
        # No commit here: a checkpoint that never completes covers nothing.
        staged = self._target.stage(checkpoint_id)
        if staged is not None:
            self._pending[checkpoint_id, self.context.subtask] = staged
        self._state.update([(*name, staged) for name, staged in sorted(self._pending.items(), key=lambda one: one[0])])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for name in sorted(self._pending):
            if name[0] <= checkpoint_id:
                self._target.commit(name[1], name[0], self._pending[name])
                # Only now: after an error the batch is still pending.
                del self._pending[name]

    def finish(self) -> None:
        if not self.context.checkpointing_enabled:
            staged = self._target.stage(_AT_THE_END)
            if staged is not None:
                self._target.commit(self.context.subtask, _AT_THE_END, staged)

    def fingerprint(self) -> object:
        return self._target.fingerprint(), repr(sorted(self._pending.items(), key=lambda one: one[0]))
