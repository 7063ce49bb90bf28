"""A storage directory on a real disk: held by one run at a time, with an incarnation that grows with every start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from engine.elements.errors import StorageError
from engine.runtime.storage.checkpoint_files import unusable_storage
from state_backends.base import CorruptStateError, StorageInUseError, StorageNotWritableError
from state_backends.files import FileSystem, LocalFileSystem
from state_backends.snapshots import DEFAULT_INLINE_THRESHOLD_BYTES, CheckpointStorage


@dataclass(frozen=True, slots=True)
class OpenedStorage:
    """Checkpoint storage that this process holds, and the incarnation it has just begun."""

    storage: CheckpointStorage
    incarnation: int
    leftovers: tuple[str, ...]
    """Files that a crash had left, deleted at the start."""


@contextmanager
def open_storage(
    directory: str,
    job_name: str,
    *,
    inline_state_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES,
    file_system: FileSystem | None = None,
    behind: int = 0,
) -> Iterator[OpenedStorage]:
    """Lock the job's storage below ``directory`` and begin the next incarnation there, greater than ``behind``.

    Raises :class:`StorageError` when the directory is in use by another run, or cannot be written.
    """
    storage = CheckpointStorage(
        LocalFileSystem() if file_system is None else file_system,
        directory,
        job_name,
        inline_threshold_bytes=inline_state_bytes,
    )
    try:
        lock = storage.lock()
    except (StorageInUseError, StorageNotWritableError) as error:
        raise StorageError(str(error)) from error
    except OSError as error:
        raise unusable_storage(storage.job_dir, error) from error
    try:
        try:
            # First of all, and durably: every name that this run gives carries the number.
            incarnation = storage.next_incarnation(behind)
            leftovers = tuple(storage.discard_leftovers())
        except (StorageNotWritableError, CorruptStateError) as error:
            raise StorageError(str(error)) from error
        except OSError as error:
            raise unusable_storage(storage.job_dir, error) from error
        yield OpenedStorage(storage, incarnation, leftovers)
    finally:
        lock.release()
