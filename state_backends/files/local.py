"""The real file system as an implementation of the port, and directory locks by ``flock``."""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
import shutil
from typing import BinaryIO

from state_backends.base import StorageInUseError, StorageNotWritableError
from state_backends.files.port import DirectoryLock, FileSystem, RandomAccessFile, WritableFile

LOCK_FILE_NAME = "lock"
"""The file in a locked directory that carries the ``flock`` and the holder's process id."""

_READ_BUFFER_BYTES = 1 << 16


class LocalFileSystem(FileSystem):
    """Files of this machine. Relative paths are relative to the working directory."""

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        return _LocalWritableFile(open(path, "xb" if exclusive else "wb"))

    def open_append(self, path: str) -> WritableFile:
        return _LocalWritableFile(open(path, "ab"))

    def open_read(self, path: str) -> BinaryIO:
        return open(path, "rb", buffering=_READ_BUFFER_BYTES)

    def open_random(self, path: str) -> RandomAccessFile:
        return _LocalRandomAccessFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def truncate(self, path: str, size_bytes: int) -> None:
        with open(path, "r+b") as file:
            file.truncate(size_bytes)
            os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def fsync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def delete(self, path: str) -> None:
        os.unlink(path)

    def delete_tree(self, path: str) -> None:
        if os.path.islink(path):
            os.unlink(path)  # the link only: its target may belong to others
        elif os.path.isdir(path):
            shutil.rmtree(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def make_dirs(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = posixpath.dirname(path.rstrip("/")) or "."
        self.make_dirs(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        self.fsync_dir(parent)

    def lock_directory(self, path: str) -> DirectoryLock:
        return LocalDirectoryLock(self, path)

    def wait_for_directory(self, path: str) -> DirectoryLock:
        """The same, after all other holders: waits for them, however long that takes. A process that holds the
        directory already must not call this."""
        return LocalDirectoryLock(self, path, waits=True)


class _LocalWritableFile(WritableFile):
    """A buffered binary file opened for writing."""

    __slots__ = ("_file",)

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            raise self._named(error) from None

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise self._named(error) from None

    def tell(self) -> int:
        return self._file.tell()

    def fsync(self) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise self._named(error) from None

    def _named(self, error: OSError) -> OSError:
        """The error of a write, with the path added: Python's own error does not name the file."""
        error.filename = self._file.name
        return error


class _LocalRandomAccessFile(RandomAccessFile):
    """Positional reads of a descriptor: it has no position and no buffer."""

    __slots__ = ("_descriptor", "_size")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, offset)
        if len(data) < size:
            # A signal or a network file system may cut a read short before the end of the file.
            while more := os.pread(self._descriptor, size - len(data), offset + len(data)):
                data += more
        return data

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        # As with Python's own files, a file that is not closed does not keep its descriptor for ever.
        self.close()


class LocalDirectoryLock:
    """An exclusive ``flock`` on the file ``lock`` in a directory.

    The kernel releases the lock when the holder ends in any way, so a killed run never blocks the next
    one. The file stays: deleting it would let two processes lock two different files.
    """

    def __init__(self, fs: LocalFileSystem, path: str, *, waits: bool = False) -> None:
        """Take the lock now; ``waits``: or when it is free.

        :raises StorageInUseError: when another holder has it
        :raises StorageNotWritableError: when the directory or the lock file cannot be written
        """
        self.path = path
        self._descriptor: int | None = None
        try:
            fs.make_dirs(path)
            descriptor = os.open(posixpath.join(path, LOCK_FILE_NAME), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as problem:
            raise StorageNotWritableError(path, _reason(problem)) from problem
        try:
            self._take(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _take(self, descriptor: int, operation: int) -> None:
        try:
            fcntl.flock(descriptor, operation)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EACCES):
                raise StorageNotWritableError(self.path, _reason(problem)) from problem
            raise StorageInUseError(self.path, _read_holder(descriptor)) from problem
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError as problem:
            raise StorageNotWritableError(self.path, _reason(problem)) from problem

    def release(self) -> None:
        if self._descriptor is None:
            return
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None


def _reason(problem: OSError) -> str:
    return problem.strerror or str(problem)


def _read_holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
