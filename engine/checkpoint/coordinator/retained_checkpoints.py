"""The durable checkpoints: those retained, the shared state that they use, and those being deleted.

Order of deletion (rules G6 and G7 of ``shared_state_registry``)
---------------------------------------------------------------
* A completed checkpoint enters the store. The checkpoints it subsumes are deleted last, after the tasks are told: until
  then a crash must find the older checkpoint whole.
* First the registry finds the shared files that no remaining checkpoint uses, then the cleaner finds the subsumed
  checkpoints that may be deleted. Then these are deleted, then the files: a crash in between leaves files too many,
  never a checkpoint without its files.
* Every deletion is answered, well or badly. As long as too many are under way nothing new is triggered.

Retained and subsumed (Flink: ``CheckpointSubsumeHelper``, ``CheckpointsCleaner``)
---------------------------------------------------------------------------------
* After an add, while there are more than ``num_retained``, walk from the oldest to the newest: never drop the entry
  just added; always drop a savepoint; if the new entry is a synchronous savepoint drop anything; otherwise anything but
  the newest real checkpoint. So the size may stay above ``num_retained``, and one real checkpoint always remains.
* *lowest* is the id of the oldest real checkpoint. The registry of shared state releases shared files that nothing from
  there on uses. Then the cleaner looks at the subsumed entries below *lowest*. An entry whose files a restored or
  newer snapshot still uses stays, and is looked at again at the next completion. The others leave, and only those that
  the job owns are deleted: never a savepoint, never an entry that was restored without a claim.
* The retention policy decides about the end of the job.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointStatistics
from engine.checkpoint.coordinator.coordinator_config import JobStatus, RetentionPolicy
from engine.checkpoint.coordinator.coordinator_messages import (
    NONE_COMPLETED,
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
    RestoreMode,
    SharedState,
    SharedStateError,
    SharedStateRegistry,
    SharingFilesStrategy,
    Unused,
)
from engine.elements.events import SnapshotKind
from state_backends.base import value_class

_SHARING = {
    SnapshotKind.CHECKPOINT: SharingFilesStrategy.FORWARD_BACKWARD,
    SnapshotKind.FULL_CHECKPOINT: SharingFilesStrategy.FORWARD,
    SnapshotKind.SAVEPOINT: SharingFilesStrategy.NO_SHARING,
}


_SAVEPOINT = SnapshotKind.SAVEPOINT


@value_class
class CompletedCheckpoint:
    """One durable snapshot.

    ``is_unclaimed``      restored without taking ownership (NO_CLAIM): never deleted, never referenced by later ones;
    ``external_pointer``  everything the driver needs to find or read it again;
    ``shared``            the shared state it uses, every placeholder resolved;
    ``restored_sharing``  for a snapshot of another kind that was claimed and counts as a checkpoint of this job from
                          then on (CLAIM): the rule of its former kind.

    A savepoint among the entries was restored in mode LEGACY: others may refer to its files, and no job deletes them.
    """

    checkpoint_id: int
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    timestamp_ns: int = 0
    is_synchronous: bool = False
    is_unclaimed: bool = False
    external_pointer: object = None
    shared: tuple[SharedState, ...] = ()
    restored_sharing: SharingFilesStrategy | None = None

    @property
    def is_savepoint(self) -> bool:
        """Whether the user owns it."""
        return self.kind is _SAVEPOINT

    @property
    def may_be_deleted(self) -> bool:
        """Whether it is deleted once subsumed."""
        # The job does not delete checkpoints that it does not own (mutant "claim mode ignored").
        return not self.is_savepoint and not self.is_unclaimed

    @property
    def sharing(self) -> SharingFilesStrategy:
        """Which files it may use and lend."""
        return _SHARING[self.kind] if self.restored_sharing is None else self.restored_sharing

    @property
    def restore_mode(self) -> RestoreMode:
        """Who owns it, as the registry of shared state asks when it is recovered."""
        if self.is_unclaimed:
            return RestoreMode.NO_CLAIM
        return RestoreMode.LEGACY if self.is_savepoint else RestoreMode.CLAIM


# --- subsumed ones ------------------------------------------------------------------------------------------------


class CheckpointsCleaner:
    """Holds subsumed snapshots until they may be deleted (Flink: ``CheckpointsCleaner``)."""

    def __init__(self) -> None:
        self._subsumed: list[CompletedCheckpoint] = []

    @property
    def waiting_ids(self) -> tuple[int, ...]:
        """Subsumed ones that still exist, in the order of subsumption."""
        return tuple(entry.checkpoint_id for entry in self._subsumed)

    def add(self, subsumed: Iterable[CompletedCheckpoint]) -> None:
        """Take over the subsumed ones."""
        self._subsumed += subsumed

    def take_back(self, checkpoint_id: int) -> CompletedCheckpoint | None:
        """A subsumed snapshot is needed after all; ``None`` when it is not here (any more)."""
        for position, entry in enumerate(self._subsumed):
            if entry.checkpoint_id == checkpoint_id:
                return self._subsumed.pop(position)
        return None

    def clean(self, up_to: int | None, in_use: Container[int] = ()) -> tuple[int, ...]:
        """Ids to delete now: subsumed ones below ``up_to`` (``None``: all) that the job owns and no other one uses."""
        kept: list[CompletedCheckpoint] = []
        leaving: list[CompletedCheckpoint] = []
        for entry in self._subsumed:
            stays = (up_to is not None and entry.checkpoint_id >= up_to) or entry.checkpoint_id in in_use
            (kept if stays else leaving).append(entry)
        self._subsumed = kept
        return tuple(entry.checkpoint_id for entry in leaving if entry.may_be_deleted)

    def validate(self) -> None:
        assert len(set(self.waiting_ids)) == len(self.waiting_ids), self.waiting_ids

    def fingerprint(self) -> tuple[int, ...]:
        """All state that determines future behaviour; the adder of an id knows its other facts."""
        return self.waiting_ids


# --- retained ones ------------------------------------------------------------------------------------------------


class CompletedCheckpointStore:
    """Retained checkpoints in id order, and subsumed ones that wait for their deletion in the cleaner."""

    def __init__(self, num_retained: int = 1) -> None:
        assert num_retained >= 1, num_retained
        self._num_retained = num_retained
        self._entries: list[CompletedCheckpoint] = []
        self._cleaner = CheckpointsCleaner()

    @property
    def entries(self) -> tuple[CompletedCheckpoint, ...]:
        """The retained ones, oldest first."""
        return tuple(self._entries)

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The newest, from which a failed job is restored."""
        return self._entries[-1] if self._entries else None

    @property
    def latest_id(self) -> int:
        """Id of the newest, 0 while there is none."""
        return self._entries[-1].checkpoint_id if self._entries else NONE_COMPLETED

    @property
    def lowest_id(self) -> int | None:
        """Id of the oldest real checkpoint, ``None`` while there is none."""
        return next((entry.checkpoint_id for entry in self._entries if entry.kind is not _SAVEPOINT), None)

    @property
    def oldest_registered_id(self) -> int | None:
        """Id of the oldest entry whose files the registry manages, ``None`` while there is none."""
        return next((entry.checkpoint_id for entry in self._entries if not entry.is_unclaimed), None)

    def recover(self, entries: Sequence[CompletedCheckpoint]) -> None:
        """Take over the checkpoints of an earlier process; this subsumes nothing."""
        assert not self._entries, "a store is recovered before anything else is added"
        self._entries = sorted(entries, key=lambda entry: entry.checkpoint_id)

    def add(self, added: CompletedCheckpoint) -> tuple[CompletedCheckpoint, ...]:
        """Add a durable checkpoint; the entries it subsumes, in the order of subsumption."""
        latest = self.latest
        assert latest is None or added.checkpoint_id > latest.checkpoint_id, (added.checkpoint_id, self.latest_id)
        self._entries.append(added)
        surplus = len(self._entries) - self._num_retained
        newest_real = next((one for one in reversed(self._entries) if one.kind is not _SAVEPOINT), None)
        subsumed: list[CompletedCheckpoint] = []
        for entry in self._entries[:-1]:
            if len(subsumed) >= surplus:
                break
            if entry.is_savepoint or added.is_synchronous or entry is not newest_real:
                subsumed.append(entry)
        gone = [entry.checkpoint_id for entry in subsumed]
        self._entries = [entry for entry in self._entries if entry.checkpoint_id not in gone]
        self._cleaner.add(subsumed)
        return tuple(subsumed)

    def take_deletable(self, in_use: Container[int] = ()) -> tuple[int, ...]:
        """Subsumed ids that are to be deleted now. ``in_use``: ids whose files others still reference."""
        lowest = self.lowest_id
        return () if lowest is None else self._cleaner.clean(lowest, in_use)

    def rewind_to(self, checkpoint_id: int | None) -> None:
        """The job was restored from this one (``None``: from nothing). Newer entries could not be restored from;
        they are forgotten, and their files are left for inspection."""
        restored = NONE_COMPLETED if checkpoint_id is None else checkpoint_id
        self._entries = [entry for entry in self._entries if entry.checkpoint_id <= restored]
        if self.latest_id != restored:
            # It was subsumed already, but still existed when it was needed.
            known = self._cleaner.take_back(restored)
            self._entries.append(CompletedCheckpoint(restored) if known is None else known)

    def shut_down(self, policy: RetentionPolicy, status: JobStatus) -> tuple[int, ...]:
        """The job is over: ids to delete. :meth:`take_rest` handles those that wait in the cleaner."""
        if not policy.discards(status):
            return ()
        deletable = tuple(entry.checkpoint_id for entry in self._entries if entry.may_be_deleted)
        self._entries = [entry for entry in self._entries if not entry.may_be_deleted]
        return deletable

    def take_rest(self, in_use: Container[int]) -> tuple[int, ...]:
        """After the end of the job: subsumed ids to delete, those included that waited for a newer checkpoint."""
        return self._cleaner.clean(None, in_use)

    def validate(self) -> None:
        ids = [entry.checkpoint_id for entry in self._entries]
        assert ids == sorted(set(ids)), ids
        self._cleaner.validate()
        gone = self._cleaner.waiting_ids
        assert not any(checkpoint_id in ids for checkpoint_id in gone), (ids, gone)

    def fingerprint(self) -> tuple[object, ...]:
        entries = tuple((entry.checkpoint_id, entry.kind.value, entry.is_unclaimed) for entry in self._entries)
        return (entries, self._cleaner.fingerprint())


class Deletions:
    """The deletions of checkpoints that the driver has not answered yet."""

    def __init__(self) -> None:
        self.under_way = 0
        """How many deletions are under way."""

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
        # Ids whose files belong to a durable checkpoint, or may do: a late message must not get them deleted.
        # With the state that each task delivered, where that is known here and the checkpoint may be subsumed later.
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
        """Whether the next checkpoint may not refer to earlier files, since the job does not own the newest ones."""
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
        """Take over the contents of storage, before anything else happens."""
        self._store.recover(entries)
        # Before anything can be subsumed. Entries that nothing may refer to are left out: the first checkpoint is full.
        for entry in self._store.entries:
            if not entry.is_unclaimed:
                self._registry.register_restored(entry.shared, entry.checkpoint_id, entry.restore_mode, entry.sharing)
        self._durable = {entry.checkpoint_id: {} for entry in self._store.entries}

    def rewind_to(self, checkpoint_id: int | None) -> CompletedCheckpoint | None:
        """The job was restored from this one (``None``: from nothing); newer ones are forgotten. Returns its entry."""
        self._store.rewind_to(checkpoint_id)
        return None if checkpoint_id is None else self._store.latest

    def register(self, ack: Acknowledge) -> tuple[Acknowledge, bool]:
        """The message with its placeholders resolved, and whether the registry refuses it. A refused message keeps only
        the states after the failed one: no checkpoint uses those files."""
        registered: list[SharedState] = []
        for state in ack.shared:
            try:
                registered.append(self._registry.register(state, ack.checkpoint_id))
            except SharedStateError:
                return replace(ack, shared=ack.shared[len(registered) + 1 :]), True
        return ack.registered(tuple(registered)), False

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
        """Delete the checkpoints that the last addition subsumed, and shared state that no retained one uses."""
        lowest_id = self._store.lowest_id
        assert lowest_id is not None, self._store.latest_id
        unused = self._registry.unregister_unused(lowest_id)
        self._delete(self._store.take_deletable(unused.in_use), unused, out)

    def close(self, policy: RetentionPolicy, status: JobStatus, out: Out) -> None:
        """The job is over, and nothing is being made durable any more: apply the retention policy."""
        self._registry.close()
        deletable = self._store.shut_down(policy, status)
        if status is JobStatus.SUSPENDED and not deletable:
            # The job goes on elsewhere, from all checkpoints kept here.
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
        self._store.validate()
        self._registry.validate()
        assert self._registry.is_open is not is_closed, is_closed

    def fingerprint(self) -> tuple[object, ...]:
        return (tuple(self._durable), self._store.fingerprint(), self._registry.fingerprint())
