"""The committables of a file sink's writer, and how the committer handles them (Flink: ``FileSinkCommittable``,
``FileCommitter``).

Rules:

* A committable is a plain tuple of one of three kinds: a *pending* file to be made visible, the *clean-up* of an
  outdated resume handle, and the *deletion* of a hidden file whose records are in another file, because it was
  compacted or a restore has set it aside.
* Pending files are always committed leniently, so the same file may be committed again. A file that is neither pending
  nor committed is lost, and reported (:mod:`operators.files.writing.lost_files`).
* A file that cannot be deleted is left; it is hidden. Every other problem is reported.
* Names are durable before the committer reports success, because the next checkpoint forgets finished commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from engine.elements.errors import StorageError
from operators.files.writing import PendingFile, RecoverableWriter, ResumeHandle
from operators.transactions import CommitRequest
from state_backends.base import path_below, row, such_that, tagged, whole

PENDING, CLEAN_UP, DELETE = "pending", "clean-up", "delete"
"""The first field of a committable."""

FileCommittable = tuple[Any, ...]
"""``(PENDING | CLEAN_UP, bucket, temporary, target, size_bytes)`` or ``(DELETE, bucket, path)``; paths are relative to
the sink's directory."""


COMMITTABLE_SHAPE = such_that(
    "a committable of files",
    tagged(
        {
            PENDING: row(path_below, path_below, path_below, whole),
            CLEAN_UP: row(path_below, path_below, path_below, whole),
            DELETE: row(path_below, path_below),
        }
    ),
    lambda value: value[0] in (PENDING, CLEAN_UP, DELETE),
)


def committable_of(bucket_id: str, file: PendingFile | ResumeHandle) -> FileCommittable:
    """``file`` must become visible; or it is a resume handle, outdated once the checkpoint of this committable is
    complete."""
    return (PENDING if isinstance(file, PendingFile) else CLEAN_UP, bucket_id, *file)


def delete(bucket_id: str, path: str) -> FileCommittable:
    """Delete the hidden file ``path``, because its records are in another file."""
    return (DELETE, bucket_id, path)


class FileCommitter:
    """Commits files below one directory. ``count``: gets names and amounts for metrics; ``lost``: gets the final names
    of lost files, relative to it; ``refusals``: turns errors of the file system into one of the sink's."""

    def __init__(
        self,
        files: RecoverableWriter,
        count: Callable[[str, int], None] | None = None,
        lost: Callable[[list[str]], None] | None = None,
        refusals: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._files = files
        self._count = count
        self._lost = lost
        self._refusals = refusals

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit all of them; none is postponed. Raises ``StorageError``."""
        with self._refusals():
            self._commit(requests)

    def _commit(self, requests: Sequence[CommitRequest]) -> None:
        files = self._files
        late: list[str] = []
        gone: list[str] = []
        for request in requests:
            kind, _, *rest = request.committable
            if kind == PENDING:
                pending = PendingFile(*rest)
                if not files.commit_after_recovery(pending):
                    gone.append(pending.target)
            elif kind == CLEAN_UP:
                files.clean_up(ResumeHandle(*rest))
            else:
                assert kind == DELETE, request.committable
                late += rest
        files.sync_directories()
        if gone and self._lost is not None:
            self._lost(gone)
        # Only after the names of their compacted files are durable: a crash must not lose both.
        for path in late:
            self._delete(path)
        if late:
            # The next checkpoint does not repeat deletions, so a later power cut must not bring the files back.
            files.sync_directories()

    def _delete(self, path: str) -> None:
        try:
            self._files.delete(path)
        except FileNotFoundError:
            # Deleted before the failure.
            pass
        except (OSError, StorageError):
            self._add("numCompactedFilesLeft")

    def _add(self, name: str) -> None:
        if self._count is not None:
            self._count(name, 1)
