"""Files that become visible all at once, and not before they are told to (Flink: ``RecoverableWriter``).

A file is written under a hidden name, closed and fsynced, and renamed when it is committed. What is needed
to commit it is a plain value that state can hold. Everything goes through the file-system port, and the
order of calls is the protocol:

    open hidden name -> write -> fsync file -> fsync directory -> the snapshot holds the file
    the checkpoint is complete -> rename -> fsync directory

The first directory fsync belongs to the snapshot: a checkpoint must not refer to a name that a crash can
lose.
"""

from __future__ import annotations

import posixpath
from typing import NamedTuple

from engine.elements.errors import StorageError
from state_backends.filesystem import FileSystem, WritableFile


class PendingFile(NamedTuple):
    """A closed file waiting to be committed; paths are relative to the sink's directory."""

    temporary: str
    target: str
    size_bytes: int


class InProgressFile:
    """A file being written under its hidden name."""

    __slots__ = ("_file", "_pending", "opened_at_ms", "size_bytes")

    def __init__(self, file: WritableFile, temporary: str, target: str, opened_at_ms: int) -> None:
        self._file = file
        self._pending = PendingFile(temporary, target, 0)
        self.size_bytes = 0
        self.opened_at_ms = opened_at_ms

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self._file.write(data)
        self.size_bytes += len(data)

    def close_for_commit(self) -> PendingFile:
        """Make the content durable and close; nothing can be written any more."""
        self._file.fsync()
        self._file.close()
        return self._pending._replace(size_bytes=self.size_bytes)

    def dispose(self) -> None:
        """Close without any promise; the hidden file stays where it is."""
        self._file.close()


class RecoverableWriter:
    """Opens and commits files below one directory."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._directory = directory
        self._changed: dict[str, None] = {}

    def path(self, relative: str) -> str:
        """The path of a file or bucket of the sink."""
        return posixpath.join(self._directory, relative) if relative else self._directory

    def exists(self, relative: str) -> bool:
        """Whether there is such a file."""
        return self._fs.exists(self.path(relative))

    def open(self, target: str, attempt: str, opened_at_ms: int) -> InProgressFile:
        """Begin the file that will be ``target``. ``attempt`` keeps hidden names of different attempts apart."""
        bucket, name = posixpath.split(target)
        temporary = posixpath.join(bucket, f".{name}.inprogress.{attempt}")
        self._fs.make_dirs(self.path(bucket))
        file = self._fs.open_write(self.path(temporary))
        self._changed[bucket] = None
        return InProgressFile(file, temporary, target, opened_at_ms)

    def commit(self, pending: PendingFile, *, replace: bool = False) -> None:
        """Make ``pending`` visible. Strict: its hidden file must be there, whole, and its name free.

        Raises ``StorageError``; with ``replace`` a file of that name is replaced.
        """
        temporary, target, size_bytes = pending
        if not self.exists(temporary):
            raise StorageError(
                f"{self.path(temporary)} was to be committed as {target!r} but is gone\n"
                "  something else deletes files in the sink's directory"
            )
        found_bytes = self._fs.size(self.path(temporary))
        if found_bytes != size_bytes:
            raise StorageError(
                f"{self.path(temporary)} was to be committed as {target!r} with {size_bytes} bytes but has "
                f"{found_bytes}\n  something else writes to files in the sink's directory"
            )
        if not replace and self.exists(target):
            raise name_taken(self.path(target))
        self._rename(temporary, target)

    def commit_after_recovery(self, pending: PendingFile) -> bool:
        """Make ``pending`` visible unless that was done before the failure. Lenient: false when neither
        file is there (it was committed, and somebody has taken it away since).

        Raises ``StorageError`` when the hidden file is too short or its name is taken.
        """
        temporary, target, size_bytes = pending
        if not self.exists(temporary):
            return self.exists(target)
        if self._fs.size(self.path(temporary)) > size_bytes:
            self._fs.truncate(self.path(temporary), size_bytes)
        self.commit(pending)
        return True

    def hide(self, relative: str, attempt: str) -> None:
        """Take a visible file out of the readers' sight, under a name that says so."""
        bucket, name = posixpath.split(relative)
        self._rename(relative, posixpath.join(bucket, f".{name}.retracted.{attempt}"))

    def delete(self, relative: str) -> None:
        """Delete a hidden file that nobody refers to."""
        self._fs.delete(self.path(relative))

    def _rename(self, source: str, target: str) -> None:
        self._fs.rename(self.path(source), self.path(target))
        self._changed[posixpath.dirname(target)] = None

    def sync_directories(self) -> None:
        """Make all new and changed names durable."""
        for bucket in sorted(self._changed):
            self._fs.fsync_dir(self.path(bucket))
        self._changed.clear()

    def files(self) -> list[str]:
        """All files below the directory, sorted by path, relative to it."""
        prefix = self._directory.rstrip("/") + "/"
        return sorted(path.removeprefix(prefix) for path in self._fs.walk_files(self._directory))


def name_taken(path: str) -> StorageError:
    """The error for a final name that another run has used."""
    return StorageError(
        f"{path} exists already: this directory holds the output of another run\n"
        "  choose an empty directory, or move the old output away; committed files are never overwritten"
    )
