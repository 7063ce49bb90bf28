"""A file system for a run that must leave no trace: it reads what there is, and what it writes stays in memory."""

from __future__ import annotations

import posixpath
from typing import Any

from state_backends.files import FileSystem, MemoryFileSystem, WrappedFileSystem

_READS = ("open_read", "open_random", "size")


class ScratchFileSystem(WrappedFileSystem):
    """Files of ``inner`` under those that were written here. A deletion leaves ``inner`` as it is."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self._written = MemoryFileSystem()

    def _call(self, operation: str, path: str, *arguments: Any, **options: Any) -> Any:
        written, inner = self._written, self.inner
        if operation in ("exists", "is_dir"):
            return getattr(written, operation)(path) or getattr(inner, operation)(path)
        if operation == "list_dir":
            found = [files.list_dir(path) for files in (written, inner) if files.is_dir(path)]
            return sorted({name for names in found for name in names}) if found else inner.list_dir(path)
        if operation in _READS:
            return getattr(written if written.exists(path) else inner, operation)(path, *arguments, **options)
        if operation in ("delete", "delete_tree", "fsync_dir") and not written.exists(path) and inner.exists(path):
            return None
        if operation in ("open_write", "lock_directory"):
            written.make_dirs(posixpath.dirname(path))
        return getattr(written, operation)(path, *arguments, **options)
