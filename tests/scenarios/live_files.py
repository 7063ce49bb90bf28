"""Which files of a storage directory are alive: those that a retained checkpoint refers to, and no others."""

from __future__ import annotations

import posixpath

from state_backends.files import FileSystem
from state_backends.snapshots import (
    CHECKPOINT_IDS_FILE_NAME,
    INCARNATION_FILE_NAME,
    SHARED_DIRECTORIES_FILE_NAME,
    CheckpointStorage,
    FileStateHandle,
)

OF_THE_DIRECTORY = (INCARNATION_FILE_NAME, CHECKPOINT_IDS_FILE_NAME, SHARED_DIRECTORIES_FILE_NAME, "lock")


def check_live_files(files: FileSystem, storage: CheckpointStorage, *, is_over: bool = True) -> dict[int, list[str]]:
    """Assert that every retained checkpoint is whole to the last byte and, once the run ``is_over``, that no other file
    is left. Returns the shared files that each refers to, by its number."""
    live = {posixpath.join(storage.job_dir, name) for name in OF_THE_DIRECTORY}
    shared: dict[int, list[str]] = {}
    for checkpoint_id in storage.list_checkpoints():
        location = storage.location(checkpoint_id)
        metadata = location.verify()
        used = [one for one in metadata.streams() if isinstance(one, FileStateHandle)]
        live |= {location.metadata_path, *map(location.full_path, used)}
        shared[checkpoint_id] = sorted({one.path for one in used if one.scope.value == "shared"})
    if is_over:
        left = [path for path in files.walk_files(storage.job_dir) if path not in live]
        assert left == [], left
    return shared
