"""A file system that tells when something has changed that readers may see: between two renames of one commit, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from state_backends.files import DirectoryLock, FileSystem, RandomAccessFile, WritableFile


class NotedFileSystem(FileSystem):
    """Passes every call on to the disk of a world, and says afterwards which path is, or is no more, what it was.
    Writes are not told of: what readers see is never written to."""

    def __init__(self, inner: FileSystem, changed: Callable[[str], None]) -> None:
        self.inner = inner
        self._changed = changed

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        file = self.inner.open_write(path, exclusive=exclusive)
        self._changed(path)
        return file

    def open_append(self, path: str) -> WritableFile:
        return self.inner.open_append(path)

    def open_read(self, path: str) -> BinaryIO:
        return self.inner.open_read(path)

    def open_random(self, path: str) -> RandomAccessFile:
        return self.inner.open_random(path)

    def truncate(self, path: str, size_bytes: int) -> None:
        self.inner.truncate(path, size_bytes)
        self._changed(path)

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)
        self._changed(source)
        self._changed(target)

    def fsync_dir(self, path: str) -> None:
        self.inner.fsync_dir(path)

    def link(self, source: str, target: str) -> None:
        self.inner.link(source, target)
        self._changed(target)

    def list_dir(self, path: str) -> list[str]:
        return self.inner.list_dir(path)

    def delete(self, path: str) -> None:
        self.inner.delete(path)
        self._changed(path)

    def delete_tree(self, path: str) -> None:
        self.inner.delete_tree(path)
        self._changed(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def is_dir(self, path: str) -> bool:
        return self.inner.is_dir(path)

    def real_path(self, path: str) -> str:
        return self.inner.real_path(path)

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def make_dirs(self, path: str) -> None:
        self.inner.make_dirs(path)

    def lock_directory(self, path: str) -> DirectoryLock:
        return self.inner.lock_directory(path)
