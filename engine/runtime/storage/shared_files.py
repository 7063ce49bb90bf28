"""Files that several checkpoints share, between the state handles of tasks and the coordinator's registry of them.

A file is known by its path, which is never used twice. A task names every shared file of its keyed state: files that
its snapshot has uploaded with their handle, all others as placeholders. The metadata of a checkpoint names all of them,
so files that an earlier process has left are registered from there.

Paths are relative to the job's directory. A snapshot of another directory, from which the job was started, has files
that later checkpoints of this job may refer to (CLAIM, LEGACY): those are known by their absolute paths from then on.
If this job's storage cannot reach them, or must not (NO_CLAIM), they count as that snapshot's own, and the first
checkpoint uploads everything. The directories that these paths lead to are noted in the job's own
(:mod:`state_backends.snapshots.file_places`): a path gives no right to read or delete in any other directory.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from engine.checkpoint.coordinator import SharedState
from engine.elements.errors import JobChangedError
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    CheckpointStream,
    FileStateHandle,
    FsStreamFactory,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    StateScope,
    StreamStateHandle,
    shared_directory_of,
)


class StateFormError(JobChangedError):
    """Keyed state was written in a form that the job's state backend does not read."""


class SharedStreams:
    """Streams into the shared scope for the files that one backend uploads between checkpoints."""

    __slots__ = ("_factory", "_storage", "_unique")

    def __init__(self, storage: CheckpointStorage, unique: str) -> None:
        self._storage = storage
        self._unique = unique
        self._factory: FsStreamFactory | None = None

    def create_stream(self, scope: StateScope = StateScope.SHARED) -> CheckpointStream:
        """A new stream, under a name never used before. Raises :class:`OSError` when the directory cannot be made."""
        if self._factory is None:
            self._factory = self._storage.shared_stream_factory(self._unique)
        return self._factory.create_stream(scope)

    def take_written(self) -> tuple[int, int]:
        """How many files were begun since the last call, and how many bytes were written to any."""
        return (0, 0) if self._factory is None else self._factory.written.take()


def recovered_shared_state(metadata: CheckpointMetadata) -> tuple[SharedState, ...]:
    """All shared state of a checkpoint that an earlier process has completed, once each."""
    found: dict[str, SharedState] = {}
    for operator in metadata.operators:
        for subtask, snapshot in sorted(operator.subtasks.items()):
            if snapshot.keyed is not None:
                marker = SharedState.marker(operator.uid, subtask, metadata.checkpoint_id)
                found[marker.key] = marker
                found.update((file.path, SharedState(file.path, file)) for file, _ in snapshot.keyed.shared())
    return tuple(found.values())


def with_files_of_another_job(
    metadata: CheckpointMetadata, location: CheckpointLocation, storage: CheckpointStorage, *, may_be_referred_to: bool
) -> CheckpointMetadata:
    """The metadata a job is to be started from, with paths that mean the same in its own storage.

    :param location: where it lies
    :param storage: the job's own
    :param may_be_referred_to: whether later checkpoints may use its shared files
    """

    def moved(stream: StreamStateHandle) -> StreamStateHandle:
        if not isinstance(stream, FileStateHandle) or stream.scope is not StateScope.SHARED:
            return stream
        path = location.full_path(stream)
        if shared_directory_of(path) is None:
            # The user may have named the snapshot by a relative path, or by one with "..".
            path = storage.file_system.real_path(path)
        is_shared = may_be_referred_to and shared_directory_of(path) is not None and storage.reaches(path, stream)
        return replace(stream, path=path, scope=StateScope.SHARED if is_shared else StateScope.EXCLUSIVE)

    if posixpath.dirname(location.directory) == storage.job_dir:
        return metadata
    return replace(
        metadata,
        operators=tuple(
            replace(
                operator,
                subtasks={
                    subtask: snapshot.with_streams(moved) for subtask, snapshot in sorted(operator.subtasks.items())
                },
            )
            for operator in metadata.operators
        ),
    )


def directories_referred_to(metadata: CheckpointMetadata) -> dict[str, None]:
    """The directories of other jobs whose shared files a checkpoint uses."""
    files = (one for one in metadata.streams() if isinstance(one, FileStateHandle) and one.scope is StateScope.SHARED)
    owners = (shared_directory_of(file.path) for file in files)
    return dict.fromkeys(owner for owner in owners if owner is not None)


def check_forms(metadata: CheckpointMetadata, backend: str) -> None:
    """Raise :class:`StateFormError` when keyed state is in a form that the state backend of that name cannot read.

    A backend of the user's own judges for itself.
    """
    outer, _, named = backend.partition(":")
    inner = (named or "heap") if outer == "changelog" else outer
    if inner not in ("heap", "lsm", "rocksdb"):
        return
    for operator in metadata.operators:
        for _, snapshot in sorted(operator.subtasks.items()):
            for needed in () if snapshot.keyed is None else _needed(snapshot.keyed):
                if needed not in (outer, inner):
                    raise StateFormError(
                        f"keyed state of {operator.name!r} (uid {operator.uid!r}) was written by state backend"
                        f" {_written_by(snapshot.keyed)}, in a form that {backend} does not read\n"
                        f"  go on with {_written_by(snapshot.keyed)}, or take a savepoint in canonical format with it:"
                        " every state backend starts from that; state_backends.offline.writer makes one of a checkpoint"
                    )


def _needed(handle: KeyedStateHandle) -> Iterator[str]:
    """The kinds of backend and store that must be installed to read it."""
    if isinstance(handle, ChangelogKeyedStateHandle):
        yield "changelog"
        for materialized in handle.materialized:
            yield from _needed(materialized)
    elif isinstance(handle, IncrementalKeyedStateHandle):
        yield handle.store


def _written_by(handle: KeyedStateHandle | None) -> str:
    needed = [] if handle is None else list(dict.fromkeys(_needed(handle)))
    return ":".join(needed) or "heap"
