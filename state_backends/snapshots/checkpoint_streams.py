"""Streams into checkpoint storage, and readers of their files.

Small state stays in memory and travels inside its handle. State above a threshold becomes a file, which is fsynced
before there is a handle. State that several checkpoints share is always a file: they know it by its path, and a copy
in the metadata of each would defeat the sharing (Flink inlines it all the same). A stream that is closed before it is
finished, or fails while it finishes, leaves no file (FsCheckpointStreamFactory).
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import zlib
from dataclasses import replace
from functools import lru_cache
from typing import BinaryIO

from state_backends.base import CorruptStateError, MissingStateError, SnapshotCancelledError
from state_backends.codec import LARGE_BYTES
from state_backends.files import FileSystem, WritableFile
from state_backends.snapshots.contract import CheckpointStream, checked_chunks
from state_backends.snapshots.handles import ByteStreamStateHandle, FileStateHandle, StateScope, StreamStateHandle

_NEVER_INLINE = 0
"""A threshold that every byte exceeds."""
_EXCLUSIVE, _SHARED = StateScope.EXCLUSIVE, StateScope.SHARED


@lru_cache(4096)  # A run asks for the few paths of its checkpoints again and again.
def path_below(directory: str, path: str) -> str:
    """The path of a handle, resolved from a directory: below it, unless the path is absolute or a URL."""
    return path if "://" in path else posixpath.join(directory, path)


class ScopeDirectories:
    """The directories of the files of each scope, for one checkpoint or savepoint.

    :ivar checkpoint_dir: the directory of the checkpoint
    :ivar job_dir: the job's directory, or ``None`` for a savepoint, which has all its files itself
    """

    __slots__ = ("checkpoint_dir", "job_dir")

    def __init__(self, checkpoint_dir: str, job_dir: str | None) -> None:
        self.checkpoint_dir = checkpoint_dir
        self.job_dir = job_dir

    def effective_scope(self, scope: StateScope) -> StateScope:
        """The scope a file really gets."""
        return scope if self.job_dir is not None else _EXCLUSIVE

    def relative_path(self, name: str, scope: StateScope) -> str:
        """The path to store in the handle of a file with this name."""
        return name if scope is _EXCLUSIVE else posixpath.join(scope.value, name)

    def path_of(self, name: str, scope: StateScope) -> str:
        """The path of a file with this name."""
        root = self.checkpoint_dir if scope is _EXCLUSIVE else self.job_dir
        assert root is not None
        return path_below(root, self.relative_path(name, scope))

    def full_path(self, handle: FileStateHandle) -> str:
        """The path of a handle's file.

        :raises MissingStateError: when a savepoint refers to shared files, which is not possible
        """
        if handle.scope is _EXCLUSIVE:
            return path_below(self.checkpoint_dir, handle.path)
        if self.job_dir is None:
            raise MissingStateError(handle.path, f"is {handle.scope.value} state outside {self.checkpoint_dir}")
        return path_below(self.job_dir, handle.path)


class WrittenFiles:
    """Counts the files that streams have written. State small enough to stay in its handle has no file."""

    __slots__ = ("files", "size_bytes")

    def __init__(self) -> None:
        self.files = 0
        self.size_bytes = 0

    def take(self) -> tuple[int, int]:
        """The number of files begun, and of bytes written to files, since the last call."""
        taken = self.files, self.size_bytes
        self.files = self.size_bytes = 0
        return taken


class FsStreamFactory:
    """Streams of one subtask's snapshot, under names of its own.

    :param attempt: not empty when several attempts may write the same snapshot at the same time. A file then has a name
        of this attempt while it is written, and one of its content afterwards
    :ivar written: counts the files of all of them
    """

    def __init__(
        self, fs: FileSystem, directories: ScopeDirectories, unique: str, inline_threshold_bytes: int, attempt: str = ""
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._unique = unique
        self._threshold = inline_threshold_bytes
        self._attempt = attempt
        self._count = 0
        self.written = WrittenFiles()

    def create_stream(self, scope: StateScope = _EXCLUSIVE) -> FsCheckpointStream:
        name = f"{self._unique}-{self._count}"
        self._count += 1
        scope = self._directories.effective_scope(scope)
        if self._attempt:
            return SharedNameStream(
                self._fs, self._directories, name, scope, self._threshold, self.written, self._attempt
            )
        return FsCheckpointStream(self._fs, self._directories, name, scope, self._threshold, self.written)


class FsCheckpointStream(CheckpointStream):
    """One piece of state on its way into a handle or a file."""

    def __init__(
        self,
        fs: FileSystem,
        directories: ScopeDirectories,
        name: str,
        scope: StateScope,
        threshold: int,
        written: WrittenFiles,
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._name = name
        self._scope = scope
        self._written = written
        self._threshold = _NEVER_INLINE if scope is _SHARED else threshold
        self._buffer: list[bytes] = []
        self._file: WritableFile | None = None
        self._size = 0
        self._checksum = 0
        self._may_exist = False
        self._open = True
        self._failed_or_closed = False

    @property
    def _path(self) -> str:
        """The file of the stream, if it has one. Most state stays in its handle."""
        return self._directories.path_of(self._name, self._scope)

    def write(self, data: bytes) -> None:
        if not self._open:
            self._refuse()
        self._size += len(data)
        if self._file is None:
            if self._size <= self._threshold:
                self._buffer.append(data)
                return
            self._file = self._create_file()
            self._written.files += 1
            before, self._buffer = b"".join(self._buffer), []
            if len(data) < LARGE_BYTES:
                data = before + data
            elif before:
                self._write_to_file(before)
        self._write_to_file(data)

    def _write_to_file(self, data: bytes) -> None:
        assert self._file is not None
        self._checksum = zlib.crc32(data, self._checksum)
        self._file.write(data)
        self._written.size_bytes += len(data)

    def tell(self) -> int:
        return self._size

    def close_and_get_handle(self) -> StreamStateHandle | None:
        if not self._open:
            self._refuse()
        if self._file is None:
            self._open = False
            return ByteStreamStateHandle(b"".join(self._buffer)) if self._size else None
        try:
            # Here, because the metadata that names the file may be written next (mutant "manifest before data").
            self._file.fsync()
            self._file.close()
        except BaseException as problem:
            try:
                self.close()
            except OSError as another:
                problem.add_note(f"{self._path} could not be deleted either: {another}")
            raise
        self._open = False
        relative_path = self._directories.relative_path(self._name, self._scope)
        return FileStateHandle(relative_path, self._scope, self._size, self._checksum)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._failed_or_closed = True
        self._buffer = []
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._delete()

    def discard(self) -> None:
        if self._open:
            self.close()
            return
        self._failed_or_closed = True
        self._delete()

    def _delete(self) -> None:
        if self._may_exist and self._fs.exists(self._path):
            self._fs.delete(self._path)
        self._may_exist = False

    def _create_file(self) -> WritableFile:
        # A failing call may have created the file all the same, so from here on this stream must delete it.
        # The exception is a name that is taken: that file belongs to another writer.
        self._may_exist = True
        try:
            return self._fs.open_write(self._path, exclusive=True)
        except FileExistsError:
            self._may_exist = False
            raise

    def _refuse(self) -> None:
        """The stream is not open, and is used all the same."""
        assert self._failed_or_closed, "a finished checkpoint stream was used again"
        raise SnapshotCancelledError(f"{self._path}: its snapshot was cancelled or failed, the stream is closed.")


class SharedNameStream(FsCheckpointStream):
    """One piece of state that other attempts may write, too: two attempts never write into one file, and none deletes
    or replaces what another has finished. Files that no metadata names are garbage."""

    def __init__(
        self,
        fs: FileSystem,
        directories: ScopeDirectories,
        name: str,
        scope: StateScope,
        threshold: int,
        written: WrittenFiles,
        attempt: str,
    ) -> None:
        super().__init__(fs, directories, name, scope, threshold, written)
        self._attempt = attempt
        self._content = hashlib.blake2b(digest_size=8)

    @property
    def _path(self) -> str:
        return f"{super()._path}.{self._attempt}"

    def write(self, data: bytes) -> None:
        self._content.update(data)
        super().write(data)

    def close_and_get_handle(self) -> StreamStateHandle | None:
        handle = super().close_and_get_handle()
        if not isinstance(handle, FileStateHandle):
            return handle
        name = f"{self._name}-{self._content.hexdigest()}"
        # A file of this name has this content.
        self._fs.rename(self._path, self._directories.path_of(name, self._scope))
        self._may_exist = False
        return replace(handle, path=self._directories.relative_path(name, self._scope))


class FsStateReader:
    """Opens the files and bytes that the handles of one checkpoint refer to."""

    def __init__(self, fs: FileSystem, directories: ScopeDirectories) -> None:
        self._fs = fs
        self._directories = directories

    def open(self, handle: StreamStateHandle) -> BinaryIO:
        if isinstance(handle, ByteStreamStateHandle):
            return io.BytesIO(handle.data)
        path = self._directories.full_path(handle)
        try:
            size = self._fs.size(path)
            if size != handle.size_bytes:
                raise CorruptStateError(path, f"has {size} bytes, was written with {handle.size_bytes}")
            return self._fs.open_read(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as problem:
            raise MissingStateError(path) from problem

    def verify(self, handle: StreamStateHandle) -> None:
        """Check a whole file against its checksum. Inlined bytes were checked with the file that inlines them.

        :raises MissingStateError: when the file is not there
        :raises CorruptStateError: when any byte is not as written
        """
        if isinstance(handle, FileStateHandle):
            with self.open(handle) as file:
                for _ in checked_chunks(file, handle, self._directories.full_path(handle)):
                    pass
