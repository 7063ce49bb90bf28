"""Checkpoint streams that are written twice: into checkpoint storage, and beside the task.

Rules (CheckpointStreamWithResultProvider, DuplicatingCheckpointOutputStream in Flink):

* The *primary* decides: its position and handle are the stream's own. When it fails, the snapshot fails and both are
  deleted.
* When the *secondary* fails, the failure is reported, and the stream continues without it.
* Bytes that the primary inlines in its handle need no copy.
"""

from __future__ import annotations

from collections.abc import Callable

from state_backends.base import StateBackendError
from state_backends.snapshots import CheckpointStream, FileStateHandle, StateScope, StreamFactory, StreamStateHandle

ReportProblem = Callable[[Exception], None]
"""Called with the reason why there is no copy, or why a copy could not be deleted."""

SECONDARY_FAILURES = (OSError, StateBackendError)
"""The errors with which a secondary may fail. Any other is a bug, or the end of the process."""


class DuplicatingStream(CheckpointStream):
    """A stream into checkpoint storage that also writes a copy (PrimaryAndSecondaryStream)."""

    def __init__(
        self,
        primary: CheckpointStream,
        secondary: CheckpointStream | None,
        copies: dict[StreamStateHandle, StreamStateHandle],
        failed: ReportProblem,
    ) -> None:
        """
        :param secondary: ``None`` when it could not even be opened
        :param copies: gets the secondary handle under the primary one
        """
        self._primary = primary
        self._secondary = secondary
        self._copies = copies
        self._failed = failed
        self._handle: StreamStateHandle | None = None

    def write(self, data: bytes) -> None:
        self._primary.write(data)
        if self._secondary is not None:
            try:
                self._secondary.write(data)
            except SECONDARY_FAILURES as problem:
                self._give_up(problem)

    def tell(self) -> int:
        return self._primary.tell()

    def close_and_get_handle(self) -> StreamStateHandle | None:
        try:
            handle = self._primary.close_and_get_handle()
        except BaseException:
            # The primary has deleted its bytes; without them a copy is of no use.
            self._drop_copy()
            raise
        if not isinstance(handle, FileStateHandle):
            self._drop_copy()
        elif self._secondary is not None:
            try:
                copy = self._secondary.close_and_get_handle()
                assert copy is not None, "what the primary has written was written to the secondary, too"
                self._copies[handle] = copy
                self._handle = handle
            except SECONDARY_FAILURES as problem:
                self._give_up(problem)
        return handle

    def close(self) -> None:
        try:
            self._primary.close()
        finally:
            if self._handle is None:
                self._drop_copy()

    def discard(self) -> None:
        try:
            self._primary.discard()
        finally:
            if self._handle is not None:
                self._copies.pop(self._handle, None)
            self._drop_copy()

    def _give_up(self, problem: Exception) -> None:
        self._failed(problem)
        self._drop_copy()

    def _drop_copy(self) -> None:
        secondary, self._secondary = self._secondary, None
        if secondary is not None:
            try:
                secondary.discard()
            except SECONDARY_FAILURES as problem:
                self._failed(problem)


class DuplicatingStreamFactory:
    """Primary and secondary streams of one snapshot. ``copies``: primary handle -> secondary handle, for bytes that are
    in both."""

    def __init__(
        self,
        primary: StreamFactory,
        secondary: StreamFactory,
        failed: ReportProblem,
        copies: dict[StreamStateHandle, StreamStateHandle] | None = None,
    ) -> None:
        self._primary = primary
        self._secondary = secondary
        self._failed = failed
        self.copies = {} if copies is None else copies

    def create_stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> DuplicatingStream:
        """A new stream in a scope; its copy has none, because it belongs to one local snapshot."""
        primary = self._primary.create_stream(scope)
        secondary: CheckpointStream | None = None
        try:
            secondary = self._secondary.create_stream(StateScope.EXCLUSIVE)
        except SECONDARY_FAILURES as problem:
            self._failed(problem)
        return DuplicatingStream(primary, secondary, self.copies, self._failed)
