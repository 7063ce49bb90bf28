"""Storage directories as the command line uses them: one job each, held by one process at a time.

The lock on the directory itself covers the descriptor; the runtime's own lock, one level below, covers the
checkpoints. Both end with the process, however it ends.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from engine.cli.settings import RESERVED_NAMES, has_descriptor, place, read_descriptor
from engine.elements.errors import ConfigurationError, StorageError
from engine.runtime.storage import SavepointRestore, unusable_storage
from state_backends.base import StorageInUseError, StorageNotWritableError
from state_backends.files import FileSystem
from state_backends.snapshots import CheckpointStorage, checkpoint_id_of


@contextmanager
def hold_directory(file_system: FileSystem, directory: str) -> Iterator[None]:
    """Hold a storage directory while the block runs; it is created when missing. Raises :class:`StorageError` when
    another run holds it or it cannot be written."""
    try:
        lock = file_system.lock_directory(directory)
    except (StorageInUseError, StorageNotWritableError) as error:
        raise StorageError(str(error)) from error
    except OSError as error:
        raise unusable_storage(directory, error) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def hold_claimed(start: SavepointRestore | None) -> Iterator[None]:
    """When a run claims a checkpoint, which it will delete in the end, hold that checkpoint's storage directory.
    Nothing is held for a savepoint, which no run needs, or for a checkpoint that has been deleted since.

    Raises :class:`StorageError` when a run is using that directory: it would lose a checkpoint it may need to restore.
    """
    from engine.checkpoint.coordinator import RestoreMode

    with ExitStack() as stack:
        if start is not None and start.mode is RestoreMode.CLAIM and checkpoint_id_of(start.path) is not None:
            file_system, path = place(start.path)
            directory = posixpath.dirname(posixpath.dirname(path))
            if file_system.exists(path) and has_descriptor(file_system, directory):
                try:
                    stack.enter_context(hold_directory(file_system, directory))
                except StorageError as error:
                    error.add_note("fix: a checkpoint that a run may need is not claimed; use --claim-mode no-claim")
                    raise
        yield


def refuse_taken(file_system: FileSystem, directory: str, job_name: str) -> None:
    """Raise unless a new run of a job may begin in a storage directory, which the caller holds.

    :class:`StorageError` when it holds a run already: beginning again over its checkpoints would commit output a
    second time. :class:`ConfigurationError` when the directory needs the job's name for its own files.
    """
    if job_name in RESERVED_NAMES:
        raise ConfigurationError(
            f"job {job_name!r}: a storage directory keeps something of its own under that name\n"
            "  fix: give the job another name"
        )
    if has_descriptor(file_system, directory):
        other = read_descriptor(file_system, directory)
        raise StorageError(
            f"{directory}: holds job {other.job_name!r} of {other.job_file}\n"
            f"  fix: go on with it (weir resume {directory}), or choose a new directory for a new run"
        )
    if CheckpointStorage(file_system, directory, job_name).highest_checkpoint_id():
        raise StorageError(
            f"{directory}: holds checkpoints of a job {job_name!r} that weir run did not start\n"
            "  fix: choose a new directory"
        )


def newest_usable(storage: CheckpointStorage, directory: str) -> tuple[int | None, list[str]]:
    """The checkpoint to resume from, and why newer ones are skipped; ``None`` when none ever completed.

    Raises :class:`StorageError` when there are checkpoints and none is usable: beginning again would repeat their
    commits.
    """
    usable = storage.latest_usable()
    if usable.metadata is not None:
        return usable.metadata.checkpoint_id, usable.problems
    if usable.problems:
        listed = "\n".join(f"  {problem}" for problem in usable.problems)
        raise StorageError(
            f"{directory}: holds checkpoints, but none can be restored\n{listed}\n"
            "  beginning again here would commit rows twice, so this is not done\n"
            "  fix: put the files back from a copy, or run the job anew with another --storage and --out"
        )
    return None, []
