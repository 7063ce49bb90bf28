"""A file system in front of another one: every call goes through one place, where a wrapper does what it is for."""

from __future__ import annotations

from typing import Any, BinaryIO

from state_backends.files.port import DirectoryLock, FileSystem, RandomAccessFile, WritableFile


class WrappedFileSystem(FileSystem):
    """Passes every call on to ``inner``. Subclasses override :meth:`_call`, or single calls."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Carry out one call of the port: its name, and its arguments, of which those that are text are paths."""
        return getattr(self.inner, operation)(*arguments, **options)

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        file: WritableFile = self._call("open_write", path, exclusive=exclusive)
        return file

    def open_append(self, path: str) -> WritableFile:
        file: WritableFile = self._call("open_append", path)
        return file

    def open_read(self, path: str) -> BinaryIO:
        file: BinaryIO = self._call("open_read", path)
        return file

    def open_random(self, path: str) -> RandomAccessFile:
        file: RandomAccessFile = self._call("open_random", path)
        return file

    def truncate(self, path: str, size_bytes: int) -> None:
        self._call("truncate", path, size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source, target)

    def fsync_dir(self, path: str) -> None:
        self._call("fsync_dir", path)

    def link(self, source: str, target: str) -> None:
        self._call("link", source, target)

    def list_dir(self, path: str) -> list[str]:
        names: list[str] = self._call("list_dir", path)
        return names

    def delete(self, path: str) -> None:
        self._call("delete", path)

    def delete_tree(self, path: str) -> None:
        self._call("delete_tree", path)

    def exists(self, path: str) -> bool:
        return bool(self._call("exists", path))

    def is_dir(self, path: str) -> bool:
        return bool(self._call("is_dir", path))

    def size(self, path: str) -> int:
        size_bytes: int = self._call("size", path)
        return size_bytes

    def make_dirs(self, path: str) -> None:
        self._call("make_dirs", path)

    def lock_directory(self, path: str) -> DirectoryLock:
        lock: DirectoryLock = self._call("lock_directory", path)
        return lock

    def real_path(self, path: str) -> str:
        return self.inner.real_path(path)
