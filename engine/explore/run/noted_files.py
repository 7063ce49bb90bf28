"""A file system that tells when something has changed that readers may see: between two renames of one commit, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from state_backends.files import FileSystem, WrappedFileSystem

_CHANGES = frozenset(["open_write", "truncate", "rename", "link", "delete", "delete_tree"])
"""Not writes: what readers see is never written to."""


class NotedFileSystem(WrappedFileSystem):
    """Passes every call on to the disk of a world, and says afterwards which path is, or is no more, what it was."""

    def __init__(self, inner: FileSystem, changed: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._changed = changed

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        answer = super()._call(operation, *arguments, **options)
        if operation in _CHANGES:
            # A link leaves the file that it is made to as it was.
            for path in arguments[operation == "link" :]:
                if type(path) is str:
                    self._changed(path)
        return answer
