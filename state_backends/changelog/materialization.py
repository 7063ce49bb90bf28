"""Materialisation in the background: an ordinary snapshot of the backend below, under a number of its own."""

from __future__ import annotations

from collections.abc import Callable

from state_backends.base import BackgroundWork, StateBackendError
from state_backends.changelog.log import SharedUploads
from state_backends.snapshots import KeyedStateHandle, SnapshotTask

Finished = Callable[[KeyedStateHandle | None, SharedUploads], None]
"""Told the handle, ``None`` without entries, and what can delete it as long as no snapshot refers to it."""
Failed = Callable[[Exception | None], None]
"""Told why, ``None`` = cancelled. May raise it again, when it has happened too often."""


class Materialization(BackgroundWork):
    """The asynchronous part of one materialisation."""

    def __init__(
        self,
        number: int,
        task: SnapshotTask[KeyedStateHandle],
        uploads: SharedUploads,
        finished: Finished,
        failed: Failed,
    ) -> None:
        """Nothing is written yet.

        :param task: writes it
        :param uploads: where to
        """
        self.name = f"materialisation {number}"
        self._task: SnapshotTask[KeyedStateHandle] | None = task
        self._uploads = uploads
        self._finished = finished
        self._failed = failed

    def step(self) -> int | None:
        task = self._task
        if task is None:
            return None
        before = self._uploads.written_bytes
        try:
            result = task.step()
        except (OSError, StateBackendError) as problem:
            self._task = None
            self._failed(problem)
            return None
        written = self._uploads.written_bytes - before
        if result is not None:
            self._task = None
            self._finished(result.job_manager_state, self._uploads)
        return written

    def cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            self._failed(None)
