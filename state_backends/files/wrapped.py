"""A file system that wraps another one: every call goes through one method, which a subclass overrides."""

from __future__ import annotations

from typing import Any

from state_backends.files.port import FileSystem


def _passed_on(operation: str) -> Any:
    """The call of the port of that name, by way of :meth:`WrappedFileSystem._call`."""

    def call(self: WrappedFileSystem, *arguments: Any, **options: Any) -> Any:
        return self._call(operation, *arguments, **options)

    return call


class WrappedFileSystem(FileSystem):
    """Passes every call on to ``inner``. Subclasses override :meth:`_call`, or single calls."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        """Carry out one call of the port, given its name and arguments. Arguments that are text are paths."""
        return getattr(self.inner, operation)(*arguments, **options)

    open_write = _passed_on("open_write")
    open_append = _passed_on("open_append")
    open_read = _passed_on("open_read")
    open_random = _passed_on("open_random")
    truncate = _passed_on("truncate")
    rename = _passed_on("rename")
    fsync_dir = _passed_on("fsync_dir")
    link = _passed_on("link")
    list_dir = _passed_on("list_dir")
    delete = _passed_on("delete")
    delete_tree = _passed_on("delete_tree")
    exists = _passed_on("exists")
    is_dir = _passed_on("is_dir")
    size = _passed_on("size")
    make_dirs = _passed_on("make_dirs")
    lock_directory = _passed_on("lock_directory")

    def real_path(self, path: str) -> str:
        return self.inner.real_path(path)
