"""A snapshot from elsewhere that a job was started from: its owner, and the files that a claim of it may delete."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from engine.checkpoint.coordinator import CompletedCheckpoint, RestoreMode, SharedState, SharingFilesStrategy
from engine.elements.errors import StorageError
from engine.elements.events import SnapshotKind
from engine.runtime.storage.shared_files import directories_referred_to
from state_backends.files import FileSystem
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    StateScope,
    checkpoint_id_of,
    shared_directories,
)


@dataclass(frozen=True, slots=True)
class AdoptedSnapshot:
    """A snapshot that may be restored from, and its owner."""

    location: CheckpointLocation
    mode: RestoreMode
    is_savepoint: bool
    shared: tuple[SharedState, ...]
    own_files: tuple[str, ...]

    def discard(self) -> None:
        """Delete it. In a directory that Weir has not named, delete only the snapshot's files: others may use it."""
        if checkpoint_id_of(self.location.directory) is None:
            self.location.discard_files(self.own_files)
        else:
            self.location.discard()

    def entry(self) -> CompletedCheckpoint:
        checkpoint_id, pointer, shared = self.location.checkpoint_id, self.location.directory, self.shared
        if self.mode is RestoreMode.LEGACY:
            return CompletedCheckpoint(checkpoint_id, SnapshotKind.SAVEPOINT, external_pointer=pointer, shared=shared)
        if self.mode is RestoreMode.NO_CLAIM:
            return CompletedCheckpoint(checkpoint_id, is_unclaimed=True, external_pointer=pointer)
        sharing = SharingFilesStrategy.NO_SHARING if self.is_savepoint else None
        return CompletedCheckpoint(checkpoint_id, external_pointer=pointer, shared=shared, restored_sharing=sharing)


def own_files(metadata: CheckpointMetadata, location: CheckpointLocation) -> tuple[str, ...]:
    """The files that belong to this snapshot alone, once each."""
    files = (one for one in metadata.streams() if isinstance(one, FileStateHandle))
    return tuple(dict.fromkeys(location.full_path(one) for one in files if one.scope is StateScope.EXCLUSIVE))


def note_directories(
    storage: CheckpointStorage,
    metadata: CheckpointMetadata,
    location: CheckpointLocation,
    file_system: FileSystem,
    mode: RestoreMode,
) -> None:
    """Note in the job's own storage which directories of others the snapshot refers to. This comes before a checkpoint
    of this job refers there, and before a file there is deleted.

    :param metadata: with paths as the job will use them
    :param location: where the snapshot lies, on ``file_system``
    :raises OSError: when it cannot be written
    """
    referred_to = directories_referred_to(metadata)
    if not referred_to or location.job_dir is None:
        return
    # The right to delete in a directory of a third job comes with the snapshot only if its job has that right.
    listed = shared_directories(file_system, location.job_dir)
    own = file_system.real_path(location.job_dir)
    storage.may_refer_to(
        {
            one: mode is RestoreMode.CLAIM and (listed.get(one, False) or file_system.real_path(one) == own)
            for one in referred_to
        }
    )


def check_claimable(file_system: FileSystem, directory: str, mode: RestoreMode) -> None:
    """Raise :class:`StorageError` for a snapshot to be claimed through a link: the link's target would be deleted."""
    parent, name = posixpath.split(directory.rstrip("/"))
    if mode is RestoreMode.CLAIM and file_system.real_path(directory) != posixpath.join(
        file_system.real_path(parent), name
    ):
        raise StorageError(
            f"{directory}: is a link to {file_system.real_path(directory)}, and a claim deletes what it claims\n"
            "  fix: name the directory itself, or use --claim-mode no-claim"
        )
