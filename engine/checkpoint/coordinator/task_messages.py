"""What tasks send about a checkpoint: which messages count, and what becomes of the state in the others.

* *Shared state* is registered before anything else is done with an acknowledgement, from any sender and however late:
  the task that uploaded it may build on it already. Only a savepoint's files are its own. A message to a coordinator
  that has died is not looked at: what that one made durable, savepoints above all, is not known here.
* The state in a message that does not count is deleted, unless it is, or may be, part of a durable checkpoint.
"""

from __future__ import annotations

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.coordinator_messages import (
    Acknowledge,
    Decline,
    DiscardAcknowledgedState,
    IgnoredBecause,
    MessageIgnored,
    Out,
)
from engine.checkpoint.coordinator.deployment import Deployment
from engine.checkpoint.coordinator.pending import PendingSet
from engine.checkpoint.coordinator.retained_checkpoints import RetainedCheckpoints


class TaskMessages:
    """Judges acknowledgements and declines; see the rules at the top of the module."""

    def __init__(
        self,
        deployment: Deployment,
        pending: PendingSet,
        retained: RetainedCheckpoints,
        statistics: CheckpointStatistics,
    ) -> None:
        self._deployment = deployment
        self._pending = pending
        self._retained = retained
        self._statistics = statistics

    def on_acknowledge(self, ack: Acknowledge, now_ns: int, out: Out, *, is_over: bool) -> bool:
        """A task has delivered its part; whether that was the last one missing. ``is_over``: the job is."""
        why = self._why_ignored(ack, is_over)
        pending = self._pending.by_id.get(ack.checkpoint_id)
        is_refused = False
        # Nothing of a foreign one is taken and nothing deleted: storage was tidied up at the start.
        is_foreign = self._deployment.is_foreign(ack)
        is_registrable = not is_over and (pending is None or not pending.is_savepoint)
        if ack.shared and is_registrable and not is_foreign:
            ack, is_refused = self._retained.register(ack)
        if why is None and pending is not None:
            if ack.task in pending.waiting and not is_refused:
                self._statistics.on_acknowledged(ack.checkpoint_id, ack.task, ack.metrics, now_ns)
                return self._pending.acknowledge(pending, ack)
            if ack.task in pending.waiting:
                # The checkpoint lacks this part and will expire; its abort tells the task what is complete.
                why = IgnoredBecause.UNKNOWN_SHARED_STATE
            else:
                known = ack.task in pending.acknowledgements
                why = IgnoredBecause.DUPLICATE if known else IgnoredBecause.UNKNOWN_TASK
        assert why is not None
        out.append(MessageIgnored(ack, why))
        # A duplicate carries the state that is already taken: deleting it would break the checkpoint. (Flink deletes
        # it when the checkpoint has completed meanwhile; its transport delivers no message twice, ours may.)
        # A stranger's state is part of nothing, and neither is another one than was taken.
        is_taken = why is IgnoredBecause.DUPLICATE or is_foreign or self._is_durable(ack)
        if (ack.state is not None or ack.discardable_shared) and not is_taken:
            out.append(DiscardAcknowledgedState(ack))
        return False

    def on_decline(self, decline: Decline, now_ns: int, out: Out, *, is_over: bool) -> bool:
        """A task will not deliver its part; whether the checkpoint is to be aborted for it."""
        why = self._why_ignored(decline, is_over)
        pending = self._pending.by_id.get(decline.checkpoint_id)
        if why is None and pending is not None and not pending.can_be_aborted:
            why = IgnoredBecause.BEING_FINALIZED
        if decline.metrics is not None and why in (None, IgnoredBecause.NOT_PENDING, IgnoredBecause.EXPIRED):
            self._statistics.on_incomplete(decline.checkpoint_id, decline.task, decline.metrics, now_ns)
        if why is not None:
            out.append(MessageIgnored(decline, why))
        return why is None

    def _is_durable(self, ack: Acknowledge) -> bool:
        return self._deployment.has(ack.task) and self._retained.holds_state_of(ack)

    def _why_ignored(self, message: Acknowledge | Decline, is_over: bool) -> IgnoredBecause | None:
        is_void = self._deployment.is_void(message)
        if is_over:
            return IgnoredBecause.SHUT_DOWN
        if is_void:
            return IgnoredBecause.OLDER_ATTEMPT
        if self._retained.is_durable(message.checkpoint_id):
            return IgnoredBecause.DURABLE
        if self._pending.by_id.get(message.checkpoint_id) is None:
            expired = message.checkpoint_id in self._pending.expired_ids
            return IgnoredBecause.EXPIRED if expired else IgnoredBecause.NOT_PENDING
        return None
