"""A file system of one's own: a directory that stands for the root of everything."""

from __future__ import annotations

from typing import BinaryIO, TypeVar

from state_backends.files import DirectoryLock, FileSystem, RandomAccessFile, WritableFile

OpenFileT = TypeVar("OpenFileT", WritableFile, RandomAccessFile, BinaryIO)


class RootedFileSystem(FileSystem):
    """All paths of another file system below one directory. What a case calls ``/out`` lies there, so that cases on
    real files neither meet each other nor know where they are.

    Who dies closes nothing, and here it is only said to be dead: :meth:`release` closes what has been left open.
    """

    def __init__(self, inner: FileSystem, root: str) -> None:
        self._inner = inner
        self._root = root.rstrip("/")
        self._opened: list[WritableFile | RandomAccessFile | BinaryIO] = []
        inner.make_dirs(self._root)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path.lstrip('/')}"

    def _kept(self, file: OpenFileT) -> OpenFileT:
        self._opened.append(file)
        return file

    def release(self) -> None:
        """Close every file that was opened here and perhaps left open."""
        for file in self._opened:
            file.close()
        self._opened.clear()

    def open_write(self, path: str, *, exclusive: bool = False) -> WritableFile:
        """See the port."""
        return self._kept(self._inner.open_write(self._at(path), exclusive=exclusive))

    def open_append(self, path: str) -> WritableFile:
        """See the port."""
        return self._kept(self._inner.open_append(self._at(path)))

    def open_read(self, path: str) -> BinaryIO:
        """See the port."""
        return self._kept(self._inner.open_read(self._at(path)))

    def open_random(self, path: str) -> RandomAccessFile:
        """See the port."""
        return self._kept(self._inner.open_random(self._at(path)))

    def truncate(self, path: str, size_bytes: int) -> None:
        """See the port."""
        self._inner.truncate(self._at(path), size_bytes)

    def rename(self, source: str, target: str) -> None:
        """See the port."""
        self._inner.rename(self._at(source), self._at(target))

    def fsync_dir(self, path: str) -> None:
        """See the port."""
        self._inner.fsync_dir(self._at(path))

    def link(self, source: str, target: str) -> None:
        """See the port."""
        self._inner.link(self._at(source), self._at(target))

    def list_dir(self, path: str) -> list[str]:
        """See the port."""
        return self._inner.list_dir(self._at(path))

    def delete(self, path: str) -> None:
        """See the port."""
        self._inner.delete(self._at(path))

    def delete_tree(self, path: str) -> None:
        """See the port."""
        self._inner.delete_tree(self._at(path))

    def exists(self, path: str) -> bool:
        """See the port."""
        return self._inner.exists(self._at(path))

    def is_dir(self, path: str) -> bool:
        """See the port."""
        return self._inner.is_dir(self._at(path))

    def size(self, path: str) -> int:
        """See the port."""
        return self._inner.size(self._at(path))

    def make_dirs(self, path: str) -> None:
        """See the port."""
        self._inner.make_dirs(self._at(path))

    def lock_directory(self, path: str) -> DirectoryLock:
        """See the port."""
        return self._inner.lock_directory(self._at(path))
