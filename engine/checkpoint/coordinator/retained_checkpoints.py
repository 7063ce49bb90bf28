"""What is durable: the retained checkpoints, the shared state that they use, and what is being deleted.

Order of deletion (rules G6 and G7 of ``shared_state_registry``)
---------------------------------------------------------------
* A completed checkpoint enters the store. What that subsumes is deleted last, after the tasks are told: until then a
  crash must find the older checkpoint whole.
* First the registry says which shared files the checkpoints that remain do not use, then the cleaner which subsumed
  checkpoints may go, then these are deleted, then the files: a crash in between leaves files too many, never a
  checkpoint without its files.
* Every deletion is answered, well or badly. As long as too many are under way nothing new is triggered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.completed_store import (
    CompletedCheckpoint,
    CompletedCheckpointStore,
    JobStatus,
    RetentionPolicy,
)
from engine.checkpoint.coordinator.coordinator_messages import (
    NONE_SUBSUMED,
    Acknowledge,
    DiscardCheckpoint,
    DiscardPendingCheckpoint,
    DiscardSharedState,
    Out,
    TaskId,
)
from engine.checkpoint.coordinator.pending import PendingCheckpoint
from engine.checkpoint.coordinator.shared_state_registry import (
    SharedState,
    SharedStateError,
    SharedStateRegistry,
    Unused,
)


class Deletions:
    """The deletions of checkpoints that the driver has not answered yet."""

    def __init__(self) -> None:
        self.under_way = 0
        """How many there are."""

    def begin(self, instruction: DiscardCheckpoint | DiscardPendingCheckpoint, out: Out) -> None:
        """Have the driver delete a checkpoint."""
        self.under_way += 1
        out.append(instruction)

    def end(self, checkpoint_id: int) -> None:
        """The driver has answered."""
        assert self.under_way > 0, f"checkpoint {checkpoint_id} was not being deleted"
        self.under_way -= 1


class RetainedCheckpoints:
    """Adds, subsumes and deletes completed checkpoints; see the rules at the top of the module."""

    def __init__(self, num_retained: int, statistics: CheckpointStatistics, deletions: Deletions) -> None:
        self._statistics = statistics
        self._deletions = deletions
        self._store = CompletedCheckpointStore(num_retained)
        self._registry = SharedStateRegistry()
        # Ids whose files belong to a durable checkpoint, or may do: no straggling message may get them deleted.
        # With the state that each task delivered, where that is known here and the checkpoint may be subsumed one day.
        self._durable: dict[int, dict[TaskId, object]] = {}

    # --- queries --------------------------------------------------------------------------------------------------

    @property
    def entries(self) -> tuple[CompletedCheckpoint, ...]:
        """Retained checkpoints, oldest first."""
        return self._store.entries

    @property
    def ids(self) -> tuple[int, ...]:
        """Their ids."""
        return tuple(entry.checkpoint_id for entry in self._store.entries)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The newest of them."""
        return self._store.latest

    @property
    def latest_id(self) -> int:
        """Its id, 0 while there is none."""
        return self._store.latest_id

    @property
    def shared_keys(self) -> tuple[str, ...]:
        """All registered shared state, in the order of first registration."""
        return self._registry.keys

    @property
    def must_be_full(self) -> bool:
        """Whether the next checkpoint may not refer to earlier files, since the newest ones are not ours."""
        latest = self._store.latest
        return latest is not None and latest.is_unclaimed

    def is_durable(self, checkpoint_id: int) -> bool:
        """Whether its files belong, or may belong, to a durable checkpoint."""
        return checkpoint_id in self._durable

    def holds_state_of(self, ack: Acknowledge) -> bool:
        """Whether the message repeats, as far as is known here, a part of a durable checkpoint."""
        delivered = self._durable.get(ack.checkpoint_id)
        return delivered is not None and (not delivered or delivered.get(ack.task) == ack.state)

    # --- events ---------------------------------------------------------------------------------------------------

    def recover(self, entries: Sequence[CompletedCheckpoint]) -> None:
        """Take over what storage holds, before anything else happens."""
        self._store.recover(entries)
        # Before anything can be subsumed. What nothing may refer to is left out: the first checkpoint is full.
        for entry in self._store.entries:
            if not entry.is_unclaimed:
                self._registry.register_restored(entry.shared, entry.checkpoint_id, entry.restore_mode, entry.sharing)
        self._durable = {entry.checkpoint_id: {} for entry in self._store.entries}

    def rewind_to(self, checkpoint_id: int | None) -> CompletedCheckpoint | None:
        """The job was restored from this one (``None``: from nothing); newer ones are forgotten. Returns its entry."""
        self._store.rewind_to(checkpoint_id)
        return None if checkpoint_id is None else self._store.latest

    def register(self, ack: Acknowledge) -> tuple[Acknowledge, bool]:
        """The message with its placeholders resolved, and whether the registry refuses it. A refused one keeps what
        was not looked at any more: no checkpoint uses those files."""
        registered: list[SharedState] = []
        for state in ack.shared:
            try:
                registered.append(self._registry.register(state, ack.checkpoint_id))
            except SharedStateError:
                return replace(ack, shared=ack.shared[len(registered) + 1 :]), True
        return replace(ack, shared=tuple(registered), is_registered=True), False

    def add(self, pending: PendingCheckpoint, pointer: object) -> int:
        """Retain a checkpoint that has become durable. Returns the newest id that it subsumes and that may be
        deleted, or ``NONE_SUBSUMED``."""
        subsumed = self._store.add(
            CompletedCheckpoint(
                pending.checkpoint_id,
                pending.kind,
                pending.barrier.timestamp_ns,
                external_pointer=pointer,
                shared=pending.shared_state(),
            )
        )
        if subsumed and subsumed[-1].may_be_deleted:
            return subsumed[-1].checkpoint_id
        return NONE_SUBSUMED

    def note_durable(self, pending: PendingCheckpoint) -> None:
        """Its files belong, or may belong, to a durable checkpoint from now on."""
        self._durable[pending.checkpoint_id] = pending.delivered_states()

    def delete_subsumed(self, out: Out) -> None:
        """Delete what the last addition subsumed, and the shared state that nothing retained uses any more."""
        lowest_id = self._store.lowest_id
        assert lowest_id is not None, self._store.latest_id
        unused = self._registry.unregister_unused(lowest_id)
        self._delete(self._store.take_deletable(unused.in_use), unused, out)

    def close(self, policy: RetentionPolicy, status: JobStatus, out: Out) -> None:
        """The job is over, and nothing is being made durable any more: apply the retention policy."""
        self._registry.close()
        deletable = self._store.shut_down(policy, status)
        if status is JobStatus.SUSPENDED and not deletable:
            # It goes on elsewhere, from all that is here.
            return
        unused = self._registry.unregister_unused(self._store.oldest_registered_id)
        self._delete(deletable + self._store.take_rest(unused.in_use), unused, out)

    def _delete(self, checkpoint_ids: tuple[int, ...], unused: Unused, out: Out) -> None:
        for checkpoint_id in checkpoint_ids:
            self._statistics.on_discarded(checkpoint_id)
            self._durable.pop(checkpoint_id, None)
            self._deletions.begin(DiscardCheckpoint(checkpoint_id), out)
        if unused.handles:
            # After the checkpoints that used them: a crash in between leaves files too many, not a checkpoint without
            # (test_shared_files_are_deleted_after_everything_else).
            out.append(DiscardSharedState(unused.handles))

    def validate(self, *, is_closed: bool) -> None:
        """Assert the invariants."""
        self._store.validate()
        self._registry.validate()
        assert self._registry.is_open is not is_closed, is_closed

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next."""
        return (tuple(self._durable), self._store.fingerprint(), self._registry.fingerprint())
