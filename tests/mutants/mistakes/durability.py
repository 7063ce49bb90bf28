"""Mistakes about files: which bytes are on the disk when a reader relies on them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.checkpoint.coordinator.shared_state_registry import SharedStateRegistry, Unused
from state_backends.files import TEMPORARY_SUFFIX
from state_backends.snapshots import checkpoint_location, checkpoint_streams
from tests.mutants.mutant import replaced


@contextmanager
def rename_without_fsync() -> Iterator[None]:
    """``_metadata`` gets its name before its bytes are durable."""

    def write_atomically(fs: Any, path: str, data: bytes) -> None:
        temporary = path + TEMPORARY_SUFFIX
        with fs.open_write(temporary) as file:
            file.write(data)
        fs.rename(temporary, path)
        fs.fsync_dir(posixpath.dirname(path) or ".")

    with replaced(checkpoint_location, write_atomically=write_atomically):
        yield


@contextmanager
def manifest_before_data() -> Iterator[None]:
    """``_metadata`` is durable while the files that it names are not."""
    stream: Any = checkpoint_streams.FsCheckpointStream
    close = stream.close_and_get_handle

    def unsynced(self: Any) -> Any:
        if self._file is not None:
            self._file = _WithoutFsync(self._file)
        return close(self)

    with replaced(stream, close_and_get_handle=unsynced):
        yield


class _WithoutFsync:
    def __init__(self, file: Any) -> None:
        self._file = file

    def fsync(self) -> None:
        """Claim to make the file durable, without doing it."""

    def close(self) -> None:
        self._file.close()


@contextmanager
def deleted_while_referenced() -> Iterator[None]:
    """A shared file is deleted with the checkpoint that brought it, though other checkpoints use it."""

    def unregister(registry: Any, lowest_id: int | None) -> Unused:
        unused = []
        for key, entry in list(registry._entries.items()):
            if lowest_id is None or entry.created_by < lowest_id:
                del registry._entries[key]
                if entry.handle is not None:
                    unused.append(entry.handle)
        return Unused(tuple(unused), ())

    with replaced(SharedStateRegistry, unregister_unused=unregister):
        yield
