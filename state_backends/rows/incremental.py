"""Incremental and native snapshots: they consist of the files of a store, and a checkpoint uploads only new files.

Pure bookkeeping finds the new files (:class:`UploadHistory`); a task of bounded steps copies them
(:class:`IncrementalSnapshotStrategy`). Rules (RocksIncrementalSnapshotStrategy, RocksDBStateUploader in Flink):

* I1 The synchronous part flushes the store, makes a directory of hard links, and captures the *base*: the files of the
  newest checkpoint that was confirmed.
* I2 CHECKPOINT refers to the data files of the base, and uploads all others into the shared scope. FULL_CHECKPOINT has
  no base, but later checkpoints may build on it. NATIVE_SAVEPOINT has no base, all its files are exclusive, and no
  checkpoint builds on it.
* I3 All other files are uploaded each time and belong to that snapshot alone. Here they are exclusive; Flink writes
  them with the scope of the data files, so that private files lie among the shared ones and outlive a lost checkpoint.
* I4 Uploaded files that are not confirmed are no base: they are uploaded again, under new physical names.
* I5 ``complete(c)``, if c is newer than the last and known: everything older is forgotten, c is the base.
  ``abort(c)``: c is forgotten. Native savepoints are not known, so their notifications change nothing.
* I6 A lost or late confirmation leaves the base older, which costs only uploads: a data file that is in the base and in
  the store was in every checkpoint between, because names are never reused.
* I7 A failed or cancelled snapshot deletes all files that it has uploaded, and no file of the base.
* I8 A backend restored from one handle of the same key groups keeps its identity; the restored files are the first
  base (:mod:`state_backends.store.native_restore`).

I6 has one gap, which is closed here: a snapshot without entries has no files (S6), but the store may still have files
with only deleted entries. So such a snapshot begins a new chain (:meth:`UploadHistory.restart`).

One hazard of the protocol remains (H1): a file uploaded by two unconfirmed checkpoints has two copies. When the newer
checkpoint completes, the older copy may be deleted, but a task notified only of the older may still refer to it. The
registry refuses that reference, the checkpoint fails, and the next notification brings the task up to date.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from state_backends.base import KeyGroupRange
from state_backends.files import FileSystem
from state_backends.rows.ordered_store import OrderedStore, StoreKind
from state_backends.rows.upload_history import NO_FILES, RestoredBase, UploadHistory
from state_backends.snapshots import (
    ByteStreamStateHandle,
    CheckpointStream,
    FileStateHandle,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    SnapshotType,
    StateScope,
    StoreFile,
    StreamFactory,
    StreamStateHandle,
    discard_all,
)

UPLOAD_CHUNK_BYTES = 1 << 20
"""A step copies at most this much of one file."""

KeepLocal = Callable[[int, str, IncrementalKeyedStateHandle], KeyedStateHandle | None]
"""Local recovery: called with the checkpoint, the directory with the store's files under their names, and the remote
handle. It returns the handle of a local copy and then owns the directory, or ``None`` when it keeps no copy.

An :class:`OSError` counts as ``None``: a local copy never makes a checkpoint fail."""


@dataclass(eq=False)
class NativeSnapshotResources(SnapshotResources):
    """A directory with the files of the store at one moment, and the base as it was then.

    :ivar directory: the directory
    :ivar names: the names of the files, sorted
    :ivar base: data files that checkpoint storage has, by name
    :ivar meta: the meaning of the rows, as the backend gives it
    :ivar is_empty: whether the store had no entries
    :ivar is_kept: whether the directory has another owner now
    """

    checkpoint_id: int
    file_system: FileSystem
    directory: str
    names: tuple[str, ...]
    base: Mapping[str, FileStateHandle]
    meta: bytes
    is_empty: bool
    is_kept: bool = False

    def _release(self) -> None:
        if self.is_kept:
            return
        try:
            self.file_system.delete_tree(self.directory)
        except OSError:
            # A leftover takes space until the backend is disposed of. It must not fail a finished snapshot.
            return


class IncrementalSnapshotStrategy:
    """Snapshots of one backend in the format of its store.

    :ivar backend_id: names the backend in handles; a restore of the same key groups keeps it
    :ivar history: the uploaded files
    :ivar file_system: the file system of the store
    :ivar keep_local: takes the local files of a finished checkpoint; ``None``: they are deleted
    """

    def __init__(
        self,
        store: OrderedStore,
        kind: StoreKind,
        file_system: FileSystem,
        snapshot_dir: str,
        key_group_range: KeyGroupRange,
        backend_id: str,
        meta: Callable[[], bytes],
        restored: RestoredBase | None = None,
    ) -> None:
        """Create no file yet.

        :param file_system: the file system of the store
        :param snapshot_dir: a directory for directories of hard links, made when missing
        :param backend_id: never given to another backend; the id in ``restored`` takes precedence
        :param meta: gives the meaning of the rows, to be written with each snapshot
        """
        self.backend_id = backend_id if restored is None else restored.backend_id
        self.history = UploadHistory(restored)
        self.keep_local: KeepLocal | None = None
        self._store = store
        self.kind = kind
        self.file_system = file_system
        self._snapshot_dir = snapshot_dir
        self._key_group_range = key_group_range
        self._meta = meta
        self._count = 0

    def sync_prepare_resources(self, checkpoint_id: int) -> NativeSnapshotResources:
        """Flush the store and pin its files.

        :raises OSError: when a file cannot be written; then no file is left
        """
        # The number alone may repeat: materialisations and savepoints have their own counters.
        directory = posixpath.join(self._snapshot_dir, f"{self._count:06}-chk-{checkpoint_id}")
        self._count += 1
        self.file_system.make_dirs(self._snapshot_dir)
        try:
            names = self._store.checkpoint(directory)
            is_empty = next(self._store.scan(b"", None), None) is None
            meta = self._meta()
        except Exception as problem:
            try:
                self.file_system.delete_tree(directory)
            except OSError as another:
                problem.add_note(f"{directory} could not be deleted either: {another}")
            raise
        base = self.history.base()
        if is_empty:
            self.history.restart(checkpoint_id)
        return NativeSnapshotResources(checkpoint_id, self.file_system, directory, names, base, meta, is_empty)

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> NativeSnapshotTask:
        assert isinstance(resources, NativeSnapshotResources)
        return NativeSnapshotTask(self, resources, stream_factory, options.type)

    def handle(
        self, checkpoint_id: int, data: list[StoreFile], private: list[StoreFile], meta: StreamStateHandle
    ) -> IncrementalKeyedStateHandle:
        return IncrementalKeyedStateHandle(
            self.kind.name,
            self.backend_id,
            self._key_group_range,
            checkpoint_id,
            tuple(sorted(data, key=attrgetter("name"))),
            tuple(sorted(private, key=attrgetter("name"))),
            meta,
        )


class NativeSnapshotTask(SnapshotTask[KeyedStateHandle]):
    """Uploads the files of one snapshot: one file, or a bounded piece of it, per step."""

    def __init__(
        self,
        strategy: IncrementalSnapshotStrategy,
        resources: NativeSnapshotResources,
        stream_factory: StreamFactory,
        snapshot_type: SnapshotType,
    ) -> None:
        super().__init__(resources)
        assert snapshot_type is not SnapshotType.CANONICAL_SAVEPOINT, "the full strategy writes canonical savepoints"
        self._strategy = strategy
        self._pinned = resources
        self._checkpoint_id = resources.checkpoint_id
        self._stream_factory = stream_factory
        self._is_savepoint = snapshot_type.is_savepoint
        base = resources.base if snapshot_type is SnapshotType.CHECKPOINT else NO_FILES
        self._data = [StoreFile(name, base[name], uploaded=False) for name in resources.names if name in base]
        self._private: list[StoreFile] = []
        self._to_upload = [name for name in resources.names if name not in base]
        self._done = 0
        self._offset = 0
        self._stream: CheckpointStream | None = None
        self._finished: list[CheckpointStream] = []

    def _advance(self) -> SnapshotResult[KeyedStateHandle] | None:
        if self._pinned.is_empty:
            self._remember([])
            return SnapshotResult(None)
        if self._done == 0 and self._offset == 0:
            self._check_base()
        if self._done < len(self._to_upload):
            self._upload_some(self._to_upload[self._done])
            return None
        return self._finish_snapshot()

    def _check_base(self) -> None:
        for file in self._data:
            size = self._pinned.file_system.size(self._path(file.name))
            assert size == file.stream.size_bytes, f"{file.name} is not the file that was uploaded under this name"

    def _upload_some(self, name: str) -> None:
        """Copy the next piece of a file; its streams end with it."""
        is_data = self._strategy.kind.is_data_file(name)
        if self._stream is None:
            is_shared = is_data and not self._is_savepoint
            self._stream = self._stream_factory.create_stream(StateScope.SHARED if is_shared else StateScope.EXCLUSIVE)
        path = self._path(name)
        size = self._pinned.file_system.size(path)
        if self._offset < size:
            # Opened again for each piece, so that no file is open between steps.
            with self._pinned.file_system.open_read(path) as file:
                file.seek(self._offset)
                piece = file.read(UPLOAD_CHUNK_BYTES)
            assert piece, f"{path} shrank while it was uploaded"
            self._stream.write(piece)
            self._offset += len(piece)
        if self._offset == size:
            files = self._data if is_data else self._private
            files.append(StoreFile(name, self._finish_stream(), uploaded=True))
            self._done += 1
            self._offset = 0

    def _finish_stream(self) -> StreamStateHandle:
        stream = self._stream
        assert stream is not None
        handle = stream.close_and_get_handle()
        self._finished.append(stream)
        self._stream = None
        return ByteStreamStateHandle(b"") if handle is None else handle

    def _finish_snapshot(self) -> SnapshotResult[KeyedStateHandle]:
        self._stream = self._stream_factory.create_stream(StateScope.EXCLUSIVE)
        self._stream.write(self._pinned.meta)
        handle = self._strategy.handle(self._checkpoint_id, self._data, self._private, self._finish_stream())
        result: SnapshotResult[KeyedStateHandle] = SnapshotResult(handle, self._local_copy(handle))
        # This comes last: uploads of a failed snapshot are deleted, so the history must not know them.
        self._remember(self._data)
        return result

    def _remember(self, data: list[StoreFile]) -> None:
        if not self._is_savepoint:
            self._strategy.history.uploaded(self._checkpoint_id, shared_files_of(data))

    def _local_copy(self, handle: IncrementalKeyedStateHandle) -> KeyedStateHandle | None:
        keep = self._strategy.keep_local
        if keep is None or self._is_savepoint:
            return None
        try:
            kept = keep(self._checkpoint_id, self._pinned.directory, handle)
        except OSError:
            return None
        self._pinned.is_kept = kept is not None
        return kept

    def _discard(self) -> None:
        discard_all(self._finished if self._stream is None else [*self._finished, self._stream])

    def _path(self, name: str) -> str:
        return posixpath.join(self._pinned.directory, name)


def shared_files_of(files: list[StoreFile] | tuple[StoreFile, ...]) -> dict[str, FileStateHandle]:
    """The files that later snapshots may refer to, by name: not those that are deleted with one checkpoint."""
    return {
        file.name: file.stream
        for file in files
        if isinstance(file.stream, FileStateHandle) and file.stream.scope is StateScope.SHARED
    }
