"""Savepoints: snapshots that belong to the user. Each has all its files in one directory.

``<target>/savepoint-<first 6 of the job's id>-<suffix>/`` (Flink: ``FsCheckpointStorageAccess``). The job's id is a
digest of its name. The suffix is a digest of job name, incarnation, number and attempt, so the same run gives the same
names. If an earlier run into the same target has taken a name, further attempts are made.

A checkpoint becomes a savepoint by copying: first every file it refers to, shared ones too, into the new directory,
then its metadata with the new places. The metadata comes last, so an interrupted copy is not a savepoint.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from state_backends.base import StateArgumentError
from state_backends.files import FileSystem
from state_backends.snapshots.checkpoint_location import (
    DEFAULT_INLINE_THRESHOLD_BYTES,
    METADATA_FILE_NAME,
    CheckpointLocation,
)
from state_backends.snapshots.contract import checked_chunks
from state_backends.snapshots.handles import FileStateHandle, StateScope, StreamStateHandle
from state_backends.snapshots.metadata import CheckpointMetadata, SubtaskSnapshot
from state_backends.snapshots.storage import CHECKPOINT_PREFIX, CheckpointStorage

SAVEPOINT_PREFIX = "savepoint-"
NAMING_ATTEMPTS = 10
_JOB_ID_CHARS = 6


def job_id(job_name: str) -> str:
    """The id of a job, in the names of its savepoints."""
    return hashlib.blake2b(job_name.encode(), digest_size=16).hexdigest()


def new_savepoint(
    fs: FileSystem,
    target: str,
    job_name: str,
    checkpoint_id: int,
    incarnation: int,
    inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES,
) -> CheckpointLocation:
    """Make the directory of a new savepoint below ``target``.

    :raises StateArgumentError: when all names are taken
    :raises StorageNotWritableError: when it cannot be created
    """
    storage = CheckpointStorage(fs, target, job_name, inline_threshold_bytes=inline_threshold_bytes)
    for attempt in range(NAMING_ATTEMPTS):
        unique = f"{job_name}\0{incarnation}\0{checkpoint_id}\0{attempt}"
        suffix = hashlib.blake2b(unique.encode(), digest_size=6).hexdigest()
        directory = posixpath.join(target, f"{SAVEPOINT_PREFIX}{job_id(job_name)[:_JOB_ID_CHARS]}-{suffix}")
        if not fs.exists(directory):
            return storage.initialize_savepoint_location(directory, checkpoint_id)
    raise StateArgumentError(
        f"{target}: holds {NAMING_ATTEMPTS} savepoints of job {job_name!r} with number {checkpoint_id}, and all names "
        "for another are taken. Choose another directory, or move some of them away."
    )


def locate_snapshot(fs: FileSystem, path: str) -> tuple[CheckpointLocation, CheckpointMetadata]:
    """The checkpoint or savepoint whose directory, or ``_metadata``, is at ``path``, and its metadata. Errors as of
    :meth:`CheckpointLocation.read_metadata`."""
    directory = path.rstrip("/") or "/"
    if posixpath.basename(directory) == METADATA_FILE_NAME and not fs.is_dir(directory):
        directory = posixpath.dirname(directory)
    checkpoint_id = checkpoint_id_of(directory)
    if checkpoint_id is None:
        location = CheckpointStorage(fs, directory, "savepoint").savepoint_location(directory)
    else:
        # The parent directory may have its shared files.
        location = CheckpointLocation(fs, checkpoint_id, directory, posixpath.dirname(directory))
    return location, location.read_metadata()


def checkpoint_id_of(directory: str) -> int | None:
    """``N`` of a directory called ``chk-N``; ``None`` for any other, such as a savepoint."""
    name = posixpath.basename(directory)
    number = name.removeprefix(CHECKPOINT_PREFIX)
    return int(number) if name != number and number.isdecimal() else None


def copy_as_savepoint(
    fs: FileSystem,
    source: CheckpointLocation,
    metadata: CheckpointMetadata,
    target: CheckpointLocation,
    properties: Mapping[str, Any],
) -> CheckpointMetadata:
    """Copy a checkpoint with everything it refers to into the empty directory of a savepoint. When the copy fails, the
    directory is deleted.

    :param metadata: the metadata of ``source``
    :param properties: added to the properties of the checkpoint
    :returns: the metadata of the savepoint
    :raises MissingStateError: when a file is not there
    :raises CorruptStateError: when any byte of it is not as written
    :raises OSError: when something cannot be written
    """
    copier = StreamCopier(fs, source, target)
    try:
        operators = tuple(
            replace(
                operator, subtasks={index: copier.copy_subtask(one) for index, one in sorted(operator.subtasks.items())}
            )
            for operator in metadata.operators
        )
        copied = replace(metadata, operators=operators, properties={**metadata.properties, **properties})
        target.write_metadata(copied)
    except Exception as problem:
        try:
            target.discard()
        except OSError as another:
            problem.add_note(f"{target.directory} could not be deleted either: {another}")
        raise
    return copied


class StreamCopier:
    """Copies each file once, however many handles refer to it."""

    def __init__(self, fs: FileSystem, source: CheckpointLocation, target: CheckpointLocation) -> None:
        self._fs = fs
        self._source = source
        self._target = target
        self._copied: dict[tuple[str, StateScope], str] = {}
        self._taken: dict[str, None] = {}

    def copy_subtask(self, snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
        """The state of a subtask with everything it refers to."""
        copied = snapshot.with_streams(self.copy)
        return replace(copied, keyed=copied.keyed and copied.keyed.as_copied())

    def copy(self, stream: StreamStateHandle) -> StreamStateHandle:
        if not isinstance(stream, FileStateHandle):
            return stream
        name = self._copied.get((stream.path, stream.scope))
        if name is None:
            name = self._copied[stream.path, stream.scope] = self._free_name(posixpath.basename(stream.path))
            self._copy_file(stream, posixpath.join(self._target.directory, name))
        return replace(stream, path=name, scope=StateScope.EXCLUSIVE)

    def _free_name(self, name: str) -> str:
        # Files of different scopes may have the same name; here they are in one directory.
        number, free = 1, name
        while free in self._taken:
            number += 1
            free = f"{name}-{number}"
        self._taken[free] = None
        return free

    def _copy_file(self, stream: FileStateHandle, path: str) -> None:
        with self._source.reader().open(stream) as original, self._fs.open_write(path, exclusive=True) as copy:
            for chunk in checked_chunks(original, stream, self._source.full_path(stream)):
                copy.write(chunk)
            copy.fsync()
