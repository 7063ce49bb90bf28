"""Finds the checkpoint that a path means, for people: a savepoint, or the newest one in a directory.

Reading needs no lock, because an existing checkpoint is never written again. (An active run may delete an old one
while it is read; that shows as missing.)
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.suggestions import nearest
from state_backends.files import FileSystem
from state_backends.snapshots import (
    CHECKPOINT_PREFIX,
    METADATA_FILE_NAME,
    SAVEPOINT_PREFIX,
    CheckpointLocation,
    CheckpointStorage,
    OperatorSnapshot,
    checkpoint_id_of,
)


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint's directory, and that of its job (``None``: a savepoint, which contains all its files)."""

    file_system: FileSystem
    directory: str
    job_dir: str | None

    def location(self) -> CheckpointLocation:
        """The checkpoint, ready to be read. Raises :class:`state_backends.base.StateBackendError` when damaged."""
        checkpoint_id = checkpoint_id_of(self.directory)
        if self.job_dir is None or checkpoint_id is None:
            return CheckpointStorage(self.file_system, self.directory, "savepoint").savepoint_location(self.directory)
        return CheckpointLocation(self.file_system, checkpoint_id, self.directory, self.job_dir)


def find_checkpoint(file_system: FileSystem, path: str) -> FoundCheckpoint:
    """The checkpoint at the absolute ``path``. Raises :class:`StorageError` when there is none, or when there are
    several candidates."""
    if not file_system.exists(path):
        raise StorageError(
            f"{path}: there is no such file or directory\n  fix: name a savepoint, a checkpoint or a storage directory"
        )
    if posixpath.basename(path) == METADATA_FILE_NAME and not file_system.is_dir(path):
        path = posixpath.dirname(path)
    elif not file_system.is_dir(path):
        raise StorageError(f"{path}: is a file, but no {METADATA_FILE_NAME}\n  fix: name the checkpoint's directory")
    is_checkpoint = checkpoint_id_of(path) is not None
    if file_system.exists(posixpath.join(path, METADATA_FILE_NAME)):
        # A savepoint is never named chk-N: that name says that shared files may lie beside it.
        return FoundCheckpoint(file_system, path, posixpath.dirname(path) if is_checkpoint else None)
    if is_checkpoint:
        raise StorageError(f"{path}: has no {METADATA_FILE_NAME}, so this checkpoint was never completed")
    if posixpath.basename(path).startswith(SAVEPOINT_PREFIX):
        raise StorageError(f"{path}: has no {METADATA_FILE_NAME}, so this savepoint was never completed")
    savepoint = _only_savepoint(file_system, path)
    if savepoint is not None:
        return FoundCheckpoint(file_system, savepoint, None)
    return _newest(file_system, _job_directory(file_system, path))


def _only_savepoint(file_system: FileSystem, path: str) -> str | None:
    """The savepoint in a directory of savepoints; ``None`` when it holds none. Raises :class:`StorageError` when there
    are several."""
    below = [posixpath.join(path, name) for name in file_system.list_dir(path) if name.startswith(SAVEPOINT_PREFIX)]
    found = sorted(one for one in below if file_system.exists(posixpath.join(one, METADATA_FILE_NAME)))
    if len(found) > 1:
        raise StorageError(f"{path}: holds several savepoints ({', '.join(found)})\n  fix: name one of them")
    return found[0] if found else None


def _job_directory(file_system: FileSystem, path: str) -> str:
    """The directory that contains the ``chk-N``: ``path`` itself, or the one job below it."""
    if _checkpoint_ids(file_system, path):
        return path
    below = [posixpath.join(path, name) for name in file_system.list_dir(path)]
    jobs = [one for one in below if file_system.is_dir(one) and _checkpoint_ids(file_system, one)]
    if len(jobs) > 1:
        raise StorageError(f"{path}: holds several jobs ({', '.join(jobs)})\n  fix: name one of these directories")
    if not jobs:
        raise StorageError(
            f"{path}: holds no completed checkpoint and no savepoint\n"
            "  fix: name a savepoint, a checkpoint or a storage directory in which a checkpoint has completed"
        )
    return jobs[0]


def _newest(file_system: FileSystem, job_dir: str) -> FoundCheckpoint:
    ids = _checkpoint_ids(file_system, job_dir)
    if not ids:
        raise StorageError(f"{job_dir}: holds no completed checkpoint yet")
    return FoundCheckpoint(file_system, posixpath.join(job_dir, f"{CHECKPOINT_PREFIX}{ids[-1]}"), job_dir)


def _checkpoint_ids(file_system: FileSystem, directory: str) -> list[int]:
    """The numbers of the completed checkpoints in a directory, ascending."""
    if not file_system.is_dir(directory):
        return []
    found = [
        checkpoint_id_of(name)
        for name in file_system.list_dir(directory)
        if file_system.exists(posixpath.join(directory, name, METADATA_FILE_NAME))
    ]
    return sorted(number for number in found if number is not None)


def selected_operators(operators: Sequence[OperatorSnapshot], uid: str | None, path: str) -> Sequence[OperatorSnapshot]:
    """The operator with this uid, or all. Raises :class:`ConfigurationError` when none has it; ``path``: of the
    checkpoint."""
    if uid is None:
        return operators
    chosen = [one for one in operators if one.uid == uid]
    if not chosen:
        uids = [one.uid for one in operators]
        close = nearest(uid, uids)
        hint = f"did you mean {close!r}?" if close else f"it has: {', '.join(uids)}"
        raise ConfigurationError(f"{path}: no operator has uid {uid!r}; {hint}")
    return chosen
