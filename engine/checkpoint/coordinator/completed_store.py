"""Completed checkpoints: which are retained, which may be deleted (Flink: ``CheckpointSubsumeHelper`` and friends).

Rules
-----
* After an add, while more than ``num_retained`` are there, walk from the oldest to the newest: never the entry just
  added; a savepoint always goes; if the new entry is a synchronous savepoint anything goes; otherwise anything but
  the newest real checkpoint. So the size may stay above ``num_retained``, and one real checkpoint always remains.
* *lowest* is the id of the oldest real checkpoint. Shared files that nothing from there on uses are released by the
  registry of shared state. Then the cleaner looks at the subsumed entries below *lowest*. One whose files a restored or
  newer snapshot still uses stays, and is looked at again at the next completion. The others leave, and of these only
  ours are deleted: never a savepoint, never an entry that was restored without a claim.
* What happens at the end of the job is the retention policy's business.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from engine.checkpoint.coordinator.coordinator_messages import NONE_COMPLETED
from engine.checkpoint.coordinator.shared_state_registry import RestoreMode, SharedState, SharingFilesStrategy
from engine.elements.events import SnapshotKind


class JobStatus(Enum):
    """How a job ended, or that it only paused (Flink: ``JobStatus``)."""

    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"
    SUSPENDED = "suspended"


class RetentionPolicy(Enum):
    """Whether completed checkpoints outlive the job (Flink: ``CheckpointRetentionPolicy``).

    ``RETAIN_ALWAYS`` is ours and the default: a finished run can be inspected.
    """

    NEVER_RETAIN_AFTER_TERMINATION = "never_retain_after_termination"
    RETAIN_ON_FAILURE = "retain_on_failure"
    RETAIN_ON_CANCELLATION = "retain_on_cancellation"
    RETAIN_ALWAYS = "retain_always"

    def discards(self, status: JobStatus) -> bool:
        """Whether a checkpoint is deleted when the job reaches ``status``."""
        if self is RetentionPolicy.RETAIN_ALWAYS:
            return False
        if self is RetentionPolicy.RETAIN_ON_FAILURE:
            return status is not JobStatus.FAILED
        if self is RetentionPolicy.RETAIN_ON_CANCELLATION:
            return status is JobStatus.FINISHED
        return True


_SHARING = {
    SnapshotKind.CHECKPOINT: SharingFilesStrategy.FORWARD_BACKWARD,
    SnapshotKind.FULL_CHECKPOINT: SharingFilesStrategy.FORWARD,
    SnapshotKind.SAVEPOINT: SharingFilesStrategy.NO_SHARING,
}


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """One durable snapshot.

    ``is_unclaimed``      restored without taking ownership (NO_CLAIM): never deleted, never referenced by later ones;
    ``external_pointer``  whatever the driver needs to find or read it again;
    ``shared``            the shared state it uses, every placeholder resolved;
    ``restored_sharing``  for a snapshot of another kind that was claimed and counts as a checkpoint of this job from
                          then on (CLAIM): the rule of what it was.

    A savepoint among the entries was restored in mode LEGACY: others may refer to its files, nobody deletes them.
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
        return self.kind is SnapshotKind.SAVEPOINT

    @property
    def may_be_deleted(self) -> bool:
        """Whether it is deleted once subsumed."""
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


class Subsumable(Protocol):
    """What the cleaner needs to know of a snapshot."""

    @property
    def checkpoint_id(self) -> int:
        """Its id."""

    @property
    def may_be_deleted(self) -> bool:
        """Whether it is ours."""


Entry = TypeVar("Entry", bound=Subsumable)


class CheckpointsCleaner(Generic[Entry]):
    """Holds subsumed snapshots until they may go (Flink: ``CheckpointsCleaner``)."""

    def __init__(self) -> None:
        self._subsumed: list[Entry] = []

    @property
    def waiting_ids(self) -> tuple[int, ...]:
        """Subsumed and still there, in the order of subsumption."""
        return tuple(entry.checkpoint_id for entry in self._subsumed)

    def add(self, subsumed: Iterable[Entry]) -> None:
        """Take over what has been subsumed."""
        self._subsumed += subsumed

    def take_back(self, checkpoint_id: int) -> Entry | None:
        """A subsumed snapshot is needed after all; ``None`` when it is not here (any more)."""
        for position, entry in enumerate(self._subsumed):
            if entry.checkpoint_id == checkpoint_id:
                return self._subsumed.pop(position)
        return None

    def clean(self, up_to: int | None, in_use: Container[int] = ()) -> tuple[int, ...]:
        """Ids to delete now: subsumed ones below ``up_to`` (``None``: all) that nobody uses and that are ours."""
        kept: list[Entry] = []
        leaving: list[Entry] = []
        for entry in self._subsumed:
            stays = (up_to is not None and entry.checkpoint_id >= up_to) or entry.checkpoint_id in in_use
            (kept if stays else leaving).append(entry)
        self._subsumed = kept
        return tuple(entry.checkpoint_id for entry in leaving if entry.may_be_deleted)

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(set(self.waiting_ids)) == len(self.waiting_ids), self.waiting_ids

    def fingerprint(self) -> tuple[int, ...]:
        """All state that decides what happens next; what an id may do is told by who added it."""
        return self.waiting_ids


# --- retained ones ------------------------------------------------------------------------------------------------


class CompletedCheckpointStore:
    """Retained checkpoints in id order, and subsumed ones that wait for their deletion in the cleaner."""

    def __init__(self, num_retained: int = 1) -> None:
        assert num_retained >= 1, num_retained
        self._num_retained = num_retained
        self._entries: list[CompletedCheckpoint] = []
        self._cleaner: CheckpointsCleaner[CompletedCheckpoint] = CheckpointsCleaner()

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
        return next((entry.checkpoint_id for entry in self._entries if entry.kind is not SnapshotKind.SAVEPOINT), None)

    @property
    def oldest_registered_id(self) -> int | None:
        """Id of the oldest entry whose files the registry looks after, ``None`` while there is none."""
        return next((entry.checkpoint_id for entry in self._entries if not entry.is_unclaimed), None)

    def recover(self, entries: Sequence[CompletedCheckpoint]) -> None:
        """Take over what an earlier process left behind; nothing is subsumed by that."""
        assert not self._entries, "a store is recovered before anything else is added"
        self._entries = sorted(entries, key=lambda entry: entry.checkpoint_id)

    def add(self, added: CompletedCheckpoint) -> tuple[CompletedCheckpoint, ...]:
        """Add a durable checkpoint; the entries it subsumes, in the order of subsumption."""
        latest = self.latest
        assert latest is None or added.checkpoint_id > latest.checkpoint_id, (added.checkpoint_id, self.latest_id)
        self._entries.append(added)
        surplus = len(self._entries) - self._num_retained
        newest_real = next((one for one in reversed(self._entries) if one.kind is not SnapshotKind.SAVEPOINT), None)
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
            # Subsumed already, but still there when it was needed.
            known = self._cleaner.take_back(restored)
            self._entries.append(CompletedCheckpoint(restored) if known is None else known)

    def shut_down(self, policy: RetentionPolicy, status: JobStatus) -> tuple[int, ...]:
        """The job is over: ids to delete. Those that wait in the cleaner are :meth:`take_rest`'s business."""
        if not policy.discards(status):
            return ()
        deletable = tuple(entry.checkpoint_id for entry in self._entries if entry.may_be_deleted)
        self._entries = [entry for entry in self._entries if not entry.may_be_deleted]
        return deletable

    def take_rest(self, in_use: Container[int]) -> tuple[int, ...]:
        """After the end of the job: subsumed ids to delete, those included that waited for a newer checkpoint."""
        return self._cleaner.clean(None, in_use)

    def validate(self) -> None:
        """Assert the invariants."""
        ids = [entry.checkpoint_id for entry in self._entries]
        assert ids == sorted(set(ids)), ids
        self._cleaner.validate()
        gone = self._cleaner.waiting_ids
        assert not any(checkpoint_id in ids for checkpoint_id in gone), (ids, gone)

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next."""
        entries = tuple((entry.checkpoint_id, entry.kind.value, entry.is_unclaimed) for entry in self._entries)
        return (entries, self._cleaner.fingerprint())
