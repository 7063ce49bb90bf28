"""The local copy of one checkpoint of one task, while the checkpoint is taken.

Streams of a snapshot are written twice; the files of a store are kept as they are. A shared file that the checkpoint
only refers to is linked from the local snapshot that has it. A handle has a local copy only when all of its files do.
No failure in this module makes a checkpoint fail.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from state_backends.files import FileSystem
from state_backends.local.duplicating_streams import SECONDARY_FAILURES, DuplicatingStreamFactory, ReportProblem
from state_backends.local.state_store import LocalStateStore, LocalTaskState, ReportFailure
from state_backends.rows import KeepLocal
from state_backends.snapshots import (
    DEFAULT_INLINE_THRESHOLD_BYTES,
    ByteStreamStateHandle,
    CheckpointStream,
    FileStateHandle,
    FsStreamFactory,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    OperatorStateHandle,
    ScopeDirectories,
    SnapshotResult,
    StateReader,
    StateScope,
    StreamFactory,
    StreamStateHandle,
    SubtaskSnapshot,
    checked_chunks,
    safe_file_name,
)

HandleT = TypeVar("HandleT", KeyedStateHandle, OperatorStateHandle)

STATE_KINDS = {"keyed": "keyed state", "operator": "operator state"}
"""What may have a local copy, and what it is called."""

_CHUNK_BYTES = 1 << 20


@runtime_checkable
class KeepsFiles(Protocol):
    """A snapshot strategy with local files on a file system. After their upload it calls ``keep_local``, which may keep
    them."""

    file_system: FileSystem
    keep_local: KeepLocal | None


class _LocalStreams:
    """Streams into the directory of one local snapshot; the first stream makes the directory."""

    def __init__(self, file_system: FileSystem, directory: str, unique: str) -> None:
        self._file_system = file_system
        self._directory = directory
        directories = ScopeDirectories(directory, None)
        self._factory = FsStreamFactory(file_system, directories, unique, DEFAULT_INLINE_THRESHOLD_BYTES)
        self._is_made = False

    def create_stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> CheckpointStream:
        if not self._is_made:
            self._file_system.make_dirs(self._directory)
            self._is_made = True
        return self._factory.create_stream(scope)


class LocalSnapshot:
    """The local copy of one checkpoint of one task, from its beginning to :meth:`store` or :meth:`discard`."""

    def __init__(
        self,
        store: LocalStateStore,
        checkpoint_id: int,
        unique: str,
        primary: StateReader,
        keep_files: Callable[[FileSystem], KeepLocal],
        failed: ReportFailure,
        ended: Callable[[int], None],
    ) -> None:
        """
        :param unique: part of the names of files; never repeats for this checkpoint
        :param primary: opens the checkpoint's files in checkpoint storage
        :param keep_files: gives ``keep_local`` for strategies with files on a file system, for any checkpoint
        :param failed: called with every failure
        :param ended: called once, when no more state will be added
        """
        self._keep_files = keep_files
        self._failed = failed
        self._ended = ended
        self._store = store
        self._fs = store.file_system
        self._checkpoint_id = checkpoint_id
        self._directory = store.snapshot_directory(checkpoint_id)
        # Files are linked into later local snapshots under their names.
        self._unique = safe_file_name(f"{checkpoint_id}-{unique}")
        self._primary = primary
        self._streams = _LocalStreams(self._fs, self._directory, self._unique)
        self._copies: dict[StreamStateHandle, StreamStateHandle] = {}
        self._operators: dict[str, dict[str, Any]] = {}
        """By uid, and kind of state: its local handle."""
        self._kept_directories = 0
        self._has_state = False
        self._is_open = True

    def streams(self, uid: str, kind: str, primary: StreamFactory, strategy: object = None) -> StreamFactory:
        """The stream factory for the snapshot of one state.

        :param kind: ``keyed`` or ``operator``
        :param primary: streams into checkpoint storage
        :param strategy: the strategy of the snapshot; if it has files to keep, those are kept instead
        """
        if hasattr(strategy, "keep_local"):
            # By this name first: to compare with the whole protocol is slow, and most strategies keep no files.
            assert isinstance(strategy, KeepsFiles)
            strategy.keep_local = self._keep_files(strategy.file_system)
            return primary
        return DuplicatingStreamFactory(primary, self._streams, self._failure(described(uid, kind)), self._copies)

    def keep(
        self, directory: str, remote: IncrementalKeyedStateHandle, file_system: FileSystem
    ) -> IncrementalKeyedStateHandle | None:
        """Take over a directory with the files of a store.

        :param directory: has them under the names in ``remote``; it is gone when a handle is returned
        :param file_system: the file system of the directory
        :returns: a handle of the files in their new place, or ``None`` when they are not kept
        """
        name = f"{self._unique}-store-{self._kept_directories}"
        self._kept_directories += 1
        target = posixpath.join(self._directory, name)
        copies: dict[StreamStateHandle, StreamStateHandle] = dict(_files_below(name, remote))
        try:
            self._fs.make_dirs(self._directory)
            if file_system is self._fs:
                self._fs.rename(directory, target)
            else:
                self._copy_directory(directory, file_system, target, remote)
            copies.update(self._copy_meta(remote))
        except SECONDARY_FAILURES as problem:
            self._failure("the files of a store could not be kept")(problem)
            self._delete_quietly(target)
            return None
        self._copies.update(copies)
        return remote.with_streams(lambda stream: copies.get(stream, stream))

    def finished(self, uid: str, kind: str, result: SnapshotResult[HandleT]) -> SnapshotResult[HandleT]:
        """The snapshot of a state is done; returns its result, with the handle of its local copy if there is one."""
        if not self._is_open or result.job_manager_state is None:
            return result
        self._has_state = True
        if result.task_local_state is None:
            remote = SubtaskSnapshot(**{kind: result.job_manager_state})  # type: ignore[arg-type]
            if not self._has_all(remote):
                return result
            local = remote.with_streams(lambda stream: self._copies.get(stream, stream))
            result = SnapshotResult(result.job_manager_state, getattr(local, kind))
        self._operators.setdefault(uid, {})[kind] = result.task_local_state
        return result

    def store(self) -> None:
        """Keep the copy, because everything is in checkpoint storage."""
        if self._is_open:
            self._end()
            operators = {uid: SubtaskSnapshot(**parts) for uid, parts in self._operators.items()}
            state = LocalTaskState(operators, self._copies) if self._has_state else None
            self._store.store(self._checkpoint_id, state)

    def discard(self) -> None:
        """The snapshot failed, or is not wanted any more. After :meth:`store`, or a second time, it does nothing."""
        if self._is_open:
            self._end()
            self._store.discard(self._checkpoint_id)

    def _end(self) -> None:
        self._is_open = False
        self._ended(self._checkpoint_id)

    def _failure(self, what: str) -> ReportProblem:
        return lambda problem: self._failed(f"no local copy in checkpoint {self._checkpoint_id}: {what}", problem)

    def _has_all(self, remote: SubtaskSnapshot) -> bool:
        """Whether every file has a copy, after files were linked from older local snapshots."""
        files = [stream for stream in remote.streams() if isinstance(stream, FileStateHandle)]
        older: dict[FileStateHandle, tuple[int, StreamStateHandle]] = {}
        for file in files:
            if file not in self._copies:
                found = self._store.copy_of_shared(file)
                if found is None:
                    return False
                older[file] = found
        try:
            for file, (checkpoint_id, copy) in older.items():
                self._copies[file] = self._linked(checkpoint_id, copy)
        except OSError as problem:
            self._failure("a file of an older one could not be linked")(problem)
            return False
        return True

    def _linked(self, checkpoint_id: int, copy: StreamStateHandle) -> StreamStateHandle:
        """A copy in an older local snapshot, under the same name in this one."""
        if isinstance(copy, FileStateHandle):
            target = posixpath.join(self._directory, copy.path)
            self._fs.make_dirs(posixpath.dirname(target))
            self._fs.link(posixpath.join(self._store.snapshot_directory(checkpoint_id), copy.path), target)
        return copy

    def _copy_directory(
        self, directory: str, file_system: FileSystem, target: str, remote: IncrementalKeyedStateHandle
    ) -> None:
        self._fs.make_dirs(target)
        for file in (*remote.shared_files, *remote.private_files):
            source = file_system.open_read(posixpath.join(directory, file.name))
            with source, self._fs.open_write(posixpath.join(target, file.name)) as copy:
                while chunk := source.read(_CHUNK_BYTES):
                    copy.write(chunk)
        file_system.delete_tree(directory)

    def _copy_meta(self, remote: IncrementalKeyedStateHandle) -> dict[StreamStateHandle, StreamStateHandle]:
        """Copies the one stream that is not a file of the store; it is small, so it is read back."""
        meta = remote.meta
        if not isinstance(meta, FileStateHandle):
            return {}
        with self._primary.open(meta) as file:
            return {meta: ByteStreamStateHandle(b"".join(checked_chunks(file, meta)))}

    def _delete_quietly(self, directory: str) -> None:
        try:
            self._fs.delete_tree(directory)
        except OSError as problem:
            self._failed(f"{directory} could not be deleted", problem)


def _files_below(
    directory: str, remote: IncrementalKeyedStateHandle
) -> Iterable[tuple[StreamStateHandle, FileStateHandle]]:
    for file in (*remote.shared_files, *remote.private_files):
        stream = file.stream
        if isinstance(stream, FileStateHandle):
            path = posixpath.join(directory, file.name)
            yield stream, replace(stream, path=path, scope=StateScope.EXCLUSIVE)


def described(uid: str, kind: str) -> str:
    """The name of a state in messages."""
    return f"{STATE_KINDS[kind]} of {uid}"
