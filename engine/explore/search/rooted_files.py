"""A file system of one's own: a directory that stands for the root of everything."""

from __future__ import annotations

from typing import Any, BinaryIO

from state_backends.files import FileSystem, RandomAccessFile, WrappedFileSystem, WritableFile

_OPENS = frozenset(["open_write", "open_append", "open_read", "open_random"])


class RootedFileSystem(WrappedFileSystem):
    """All paths of another file system below one directory. What a case calls ``/out`` lies there, so that cases on
    real files neither meet each other nor know where they are.

    Who dies closes nothing, and here it is only said to be dead: :meth:`release` closes what has been left open.
    """

    def __init__(self, inner: FileSystem, root: str) -> None:
        super().__init__(inner)
        self._root = root.rstrip("/")
        self._opened: list[WritableFile | RandomAccessFile | BinaryIO] = []
        inner.make_dirs(self._root)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path.lstrip('/')}"

    def release(self) -> None:
        """Close every file that was opened here and perhaps left open."""
        for file in self._opened:
            file.close()
        self._opened.clear()

    def real_path(self, path: str) -> str:
        """The path itself: who asks does not know where it lies."""
        return path

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        there = [self._at(one) if type(one) is str else one for one in arguments]
        answer = super()._call(operation, *there, **options)
        if operation in _OPENS:
            self._opened.append(answer)
        return answer
