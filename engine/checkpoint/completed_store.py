"""Completed checkpoints: which are retained, which may be deleted (Flink: ``CheckpointSubsumeHelper`` and friends).

Rules
-----
* After an add, while more than ``num_retained`` are there, walk from the oldest to the newest: never the entry just
  added; a savepoint always goes; if the new entry is a synchronous savepoint anything goes; otherwise anything but
  the newest real checkpoint. So the size may stay above ``num_retained``, and one real checkpoint always remains.
* *lowest* is the id of the oldest real checkpoint. Subsumed entries below it that nobody uses are deleted, unless
  they are not ours to delete: savepoints, and entries restored without a claim on them.
* What happens at the end of the job is the retention policy's business.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.checkpoint.messages import NONE_COMPLETED
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


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """One durable snapshot.

    ``is_unclaimed``      restored without taking ownership: never deleted, never referenced by later ones;
    ``external_pointer``  whatever the driver needs to find or read it again.
    """

    checkpoint_id: int
    kind: SnapshotKind = SnapshotKind.CHECKPOINT
    timestamp_ns: int = 0
    is_synchronous: bool = False
    is_unclaimed: bool = False
    external_pointer: object = None

    @property
    def is_savepoint(self) -> bool:
        """Whether the user owns it."""
        return self.kind is SnapshotKind.SAVEPOINT

    @property
    def may_be_deleted(self) -> bool:
        """Whether it is deleted once subsumed."""
        return not self.is_savepoint and not self.is_unclaimed


class CompletedCheckpointStore:
    """Retained checkpoints in id order, and subsumed ones that wait for their deletion."""

    def __init__(self, num_retained: int = 1) -> None:
        assert num_retained >= 1, num_retained
        self._num_retained = num_retained
        self._entries: list[CompletedCheckpoint] = []
        self._subsumed: list[CompletedCheckpoint] = []

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

    def recover(self, entries: Sequence[CompletedCheckpoint]) -> None:
        """Take over what an earlier process left behind; nothing is subsumed by that."""
        assert not self._entries, "a store is recovered before anything else is added"
        self._entries = sorted(entries, key=lambda entry: entry.checkpoint_id)

    def add(self, added: CompletedCheckpoint) -> tuple[CompletedCheckpoint, ...]:
        """Add a durable checkpoint; the entries it subsumes, in the order of subsumption."""
        assert added.checkpoint_id > self.latest_id, (added.checkpoint_id, self.latest_id)
        self._entries.append(added)
        surplus = len(self._entries) - self._num_retained
        newest_real = next((entry for entry in reversed(self._entries) if not entry.is_savepoint), None)
        subsumed: list[CompletedCheckpoint] = []
        for entry in self._entries[:-1]:
            if len(subsumed) >= surplus:
                break
            if entry.is_savepoint or added.is_synchronous or entry is not newest_real:
                subsumed.append(entry)
        gone = [entry.checkpoint_id for entry in subsumed]
        self._entries = [entry for entry in self._entries if entry.checkpoint_id not in gone]
        self._subsumed += subsumed
        return tuple(subsumed)

    def take_deletable(self, in_use: Container[int] = ()) -> tuple[int, ...]:
        """Subsumed ids that are to be deleted now. ``in_use``: ids whose files others still reference."""
        lowest = next((entry.checkpoint_id for entry in self._entries if not entry.is_savepoint), None)
        if lowest is None:
            return ()
        deletable: list[int] = []
        kept: list[CompletedCheckpoint] = []
        for entry in self._subsumed:
            if entry.checkpoint_id >= lowest or entry.checkpoint_id in in_use:
                kept.append(entry)
            elif entry.may_be_deleted:
                deletable.append(entry.checkpoint_id)
        self._subsumed = kept
        return tuple(deletable)

    def rewind_to(self, checkpoint_id: int | None) -> None:
        """The job was restored from this one (``None``: from nothing). Newer entries could not be restored from;
        they are forgotten, and their files are left for inspection."""
        restored = NONE_COMPLETED if checkpoint_id is None else checkpoint_id
        self._entries = [entry for entry in self._entries if entry.checkpoint_id <= restored]
        if self.latest_id != restored:
            # Subsumed already, but still there when it was needed.
            self._subsumed = [entry for entry in self._subsumed if entry.checkpoint_id != restored]
            self._entries.append(CompletedCheckpoint(restored))

    def shut_down(self, policy: RetentionPolicy, status: JobStatus) -> tuple[int, ...]:
        """The job is over: ids to delete."""
        if not policy.discards(status):
            return ()
        deletable = tuple(entry.checkpoint_id for entry in self._entries if entry.may_be_deleted)
        self._entries = [entry for entry in self._entries if not entry.may_be_deleted]
        return deletable

    def validate(self) -> None:
        """Assert the invariants."""
        ids = [entry.checkpoint_id for entry in self._entries]
        assert ids == sorted(set(ids)), ids
        gone = [entry.checkpoint_id for entry in self._subsumed]
        assert not any(checkpoint_id in ids for checkpoint_id in gone), (ids, gone)

    def fingerprint(self) -> tuple[object, ...]:
        """All state that decides what happens next."""
        return tuple(
            tuple((entry.checkpoint_id, entry.kind.value, entry.is_unclaimed) for entry in entries)
            for entries in (self._entries, self._subsumed)
        )
