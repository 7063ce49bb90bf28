"""Checkpoints of a changelog backend: a materialised snapshot and the log segments after it. The materialised snapshot
is an ordinary snapshot of the backend below, under its own number, made in the background between checkpoints.

The synchronous part cuts the log. The asynchronous part uploads the segments that are not uploaded yet, one in each
step: usually only the one just cut. When the checkpoint must materialise, it takes the snapshot of the backend below
instead. Its files are in the shared scope, because later checkpoints will refer to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from state_backends.base import BackgroundWork, StateBackendError
from state_backends.changelog.history import SnapshotPlan
from state_backends.changelog.log import ChangeLog, SharedUploads
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    KeyedSnapshotStrategy,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    StreamFactory,
)


class InlineSnapshot(NamedTuple):
    """The synchronous part of a snapshot of the backend below: its strategy, the pinned resources, and the options
    for writing it."""

    strategy: KeyedSnapshotStrategy
    resources: SnapshotResources
    options: SnapshotOptions


class SnapshotOwner(Protocol):
    """The backend, as its snapshots see it."""

    def begin_snapshot(
        self, checkpoint_id: int, options: SnapshotOptions
    ) -> tuple[SnapshotPlan, InlineSnapshot | None]:
        """Cut the log and note that a snapshot is under way."""

    def snapshot_finished(
        self, checkpoint_id: int, plan: SnapshotPlan, materialized: tuple[KeyedStateHandle, ...]
    ) -> ChangelogKeyedStateHandle | None:
        """Everything is uploaded; returns the handle, ``None`` without entries."""

    def snapshot_failed(self, checkpoint_id: int) -> None:
        """The snapshot will not finish."""


class ChangelogSnapshotResources(SnapshotResources):
    """The resources of a snapshot: until they are released, its segments and its materialisation stay.

    :ivar plan: the segments and the materialisation
    :ivar inline: only for a snapshot that materialises, until the task takes it
    :ivar is_finished: whether the snapshot has finished
    """

    def __init__(self, owner: SnapshotOwner, checkpoint_id: int, options: SnapshotOptions) -> None:
        self._owner = owner
        self.checkpoint_id = checkpoint_id
        self.is_finished = False
        self.plan, self.inline = owner.begin_snapshot(checkpoint_id, options)

    def _release(self) -> None:
        try:
            if self.inline is not None:
                self.inline.resources.release()
        finally:
            if not self.is_finished:
                self._owner.snapshot_failed(self.checkpoint_id)


class ChangelogSnapshotStrategy:
    """Takes checkpoints with the given options."""

    def __init__(self, owner: SnapshotOwner, log: ChangeLog, options: SnapshotOptions) -> None:
        self._owner = owner
        self._log = log
        self._options = options

    def sync_prepare_resources(self, checkpoint_id: int) -> ChangelogSnapshotResources:
        """Cut the log. The cost grows with the number of changes since the last cut."""
        return ChangelogSnapshotResources(self._owner, checkpoint_id, self._options)

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> ChangelogSnapshotTask:
        assert isinstance(resources, ChangelogSnapshotResources)
        inner = None
        if resources.inline is not None:
            (strategy, pinned, how), resources.inline = resources.inline, None
            inner = strategy.async_snapshot(pinned, SharedUploads(stream_factory), how)
        return ChangelogSnapshotTask(resources, self._owner, self._log, stream_factory, inner)


class ChangelogSnapshotTask(SnapshotTask[KeyedStateHandle]):
    """Uploads the segments of a snapshot, or takes the snapshot of the backend below."""

    def __init__(
        self,
        resources: ChangelogSnapshotResources,
        owner: SnapshotOwner,
        log: ChangeLog,
        streams: StreamFactory,
        inner: SnapshotTask[KeyedStateHandle] | None,
    ) -> None:
        super().__init__(resources)
        self._pinned = resources
        self._checkpoint_id = resources.checkpoint_id
        self._owner = owner
        self._log = log
        self._streams = streams
        self._inner = inner

    def _advance(self) -> SnapshotResult[KeyedStateHandle] | None:
        materialized: tuple[KeyedStateHandle, ...] = ()
        if self._inner is not None:
            result = self._inner.step()
            if result is None:
                return None
            if result.job_manager_state is not None:
                materialized = (result.job_manager_state,)
        else:
            self._log.check_complete()
            for first in self._pinned.plan.segments:
                if self._log.is_waiting(first):
                    self._log.upload(first, self._streams, by=self._checkpoint_id)
                    return None
        self._pinned.is_finished = True
        return SnapshotResult(self._owner.snapshot_finished(self._checkpoint_id, self._pinned.plan, materialized))

    def _discard(self) -> None:
        if self._inner is not None:
            self._inner.cancel()


Finished = Callable[[KeyedStateHandle | None, SharedUploads], None]
"""Called with the handle, ``None`` without entries, and the uploads, which can delete its files."""
Failed = Callable[[Exception | None], None]
"""Called with the error, ``None`` = cancelled. May raise it again after too many failures."""


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
        """``uploads``: the streams that the task writes to."""
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
