"""The file-system port: everything below the faces uses files only through it.

Storage, logs and sinks use :class:`FileSystem`. There are a real, an in-memory and a
fault-injecting implementation, so tests can check every crash point with the same code that
runs in production. Paths are ``str`` with ``/`` between the parts.

Durability is that of POSIX, and callers must act accordingly:

* bytes written to a file survive a crash only after ``fsync`` of that file;
* a new name, a rename, a link or a deletion survives only after ``fsync_dir`` of its directory;
* ``rename`` replaces an existing file atomically: a reader sees the old or the new file, whole.

Failures are the operating system's own :class:`OSError` subclasses, such as ``FileNotFoundError``.
"""

from __future__ import annotations

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO, Protocol, runtime_checkable

TEMPORARY_SUFFIX = ".inprogress"
"""The suffix that :func:`write_atomically` uses until the file is whole."""


class WritableFile(ABC):
    """A file open for writing at its end."""

    @abstractmethod
    def write(self, data: bytes) -> int:
        """Append all the bytes; returns their number."""

    @abstractmethod
    def tell(self) -> int:
        """The file's size in bytes, including buffered bytes."""

    @abstractmethod
    def flush(self) -> None:
        """Make the bytes written visible to readers. A crash may still lose them."""

    @abstractmethod
    def fsync(self) -> None:
        """Make the bytes written survive a crash (not the file's name: see ``fsync_dir``)."""

    @abstractmethod
    def close(self) -> None:
        """Flush and close; a second call does nothing."""

    def __enter__(self) -> WritableFile:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class RandomAccessFile(ABC):
    """A file open for reading at any offset. It stays readable while open, even after its name is deleted."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The file's size in bytes when it was opened."""

    @abstractmethod
    def read_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on; fewer only where the file ends."""

    @abstractmethod
    def close(self) -> None:
        """Close; a second call does nothing."""


class _SeekingFile(RandomAccessFile):
    """Random access through the position of an ordinary reader."""

    __slots__ = ("_file", "_size")

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, 2)

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()


@runtime_checkable
class DirectoryLock(Protocol):
    """The exclusive hold of one directory, until released or the process ends."""

    @property
    def path(self) -> str:
        """The locked directory."""

    def release(self) -> None:
        """Release the directory; a second call does nothing."""


class FileSystem(ABC):
    """Open, write, fsync, rename, directory fsync, link, list, delete: nothing else."""

    @abstractmethod
    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        """Create a file, or empty an existing one, and open it for writing.

        :param exclusive: refuse an existing file with ``FileExistsError`` instead
        """

    @abstractmethod
    def open_append(self, path: str) -> WritableFile:
        """Open a file for writing at its present end, creating it when missing."""

    @abstractmethod
    def open_read(self, path: str) -> BinaryIO:
        """Open a file for buffered reading (``read``, ``readline``, ``seek``, ``tell``, ``close``)."""

    @abstractmethod
    def truncate(self, path: str, size_bytes: int) -> None:
        """Cut a file to ``size_bytes``, durably: it is fsynced when this returns."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file or directory another name, atomically replacing a file of that name."""

    @abstractmethod
    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory survive a crash."""

    @abstractmethod
    def link(self, source: str, target: str) -> None:
        """Give a file a second name (hard link)."""

    @abstractmethod
    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file."""

    @abstractmethod
    def delete_tree(self, path: str) -> None:
        """Delete a directory with everything in it; a missing one is no error."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory has this name."""

    @abstractmethod
    def is_dir(self, path: str) -> bool:
        """Whether a directory has this name."""

    @abstractmethod
    def size(self, path: str) -> int:
        """A file's size in bytes."""

    @abstractmethod
    def make_dirs(self, path: str) -> None:
        """Create a directory and its parents; an existing one is no error.

        New directories are durable when this returns: each parent that gained a name is fsynced.
        """

    @abstractmethod
    def lock_directory(self, path: str) -> DirectoryLock:
        """Hold a directory exclusively, creating it when missing.

        :raises StorageInUseError: when another holder has it; names the directory and the process
        :raises StorageNotWritableError: when the lock cannot be written there
        """

    def real_path(self, path: str) -> str:
        """The path without links on the way, absolute; the path itself where there are no links."""
        return path

    def open_random(self, path: str) -> RandomAccessFile:
        """Open a file for reading at any offset."""
        return _SeekingFile(self.open_read(path))

    def read_bytes(self, path: str) -> bytes:
        """The whole content of a file."""
        with self.open_read(path) as file:
            return file.read()

    def walk_files(self, path: str) -> Iterator[str]:
        """The paths of all files under a directory, sorted within each directory; a missing one has none."""
        if not self.is_dir(path):
            return
        for name in self.list_dir(path):
            child = posixpath.join(path, name)
            if self.is_dir(child):
                yield from self.walk_files(child)
            else:
                yield child


def write_atomically(fs: FileSystem, path: str, data: bytes) -> None:
    """Make a file hold exactly ``data``, or leave it as it was, also after a crash.

    Temporary name, write, fsync, rename, fsync of the directory, in this order. A rename before the
    fsync could leave an empty file under the final name after a crash. Without the last step a crash
    may lose the name itself.

    :raises OSError: when a step fails; the temporary file stays only if it cannot be deleted either
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        with fs.open_write(temporary) as file:
            file.write(data)
            # Before the rename; otherwise the name may be durable and the bytes not (mutant "rename without fsync").
            file.fsync()
        fs.rename(temporary, path)
    except OSError:
        # The job may continue and finish; then no later start deletes the temporary file.
        with suppress(OSError):
            if fs.exists(temporary):
                fs.delete(temporary)
        raise
    fs.fsync_dir(posixpath.dirname(path) or ".")
