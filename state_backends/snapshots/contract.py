"""The contract of a snapshot: two phases, a task made of bounded steps, resources released exactly once.

Rules (SnapshotStrategy, SnapshotStrategyRunner, AsyncSnapshotCallable in Flink):

* S1 ``sync_prepare_resources`` runs between records and pins an immutable view; ``async_snapshot`` turns
  it into a task whose steps are interleaved with processing.
* S2 The steps see exactly the state at the sync point, even while processing continues.
* S3 The resources are released exactly once on every path: success, failure, cancel while running,
  cancel before start. The task releases them; if ``async_snapshot`` is never reached, the caller must.
* S5 A failed or cancelled snapshot deletes the files that it has written.
* S6 A keyed backend without entries gives an empty result and no file.
* S7 A local copy without a remote one is illegal.
"""

from __future__ import annotations

import enum
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Generic, Protocol, TypeVar

from state_backends.base import CorruptStateError, SnapshotCancelledError, StateArgumentError, value_class
from state_backends.snapshots.handles import (
    ChannelStateHandle,
    FileStateHandle,
    OperatorStateHandle,
    StateScope,
    StreamStateHandle,
)
from state_backends.snapshots.keyed_handles import KeyedStateHandle

HandleT = TypeVar("HandleT", KeyedStateHandle, OperatorStateHandle, ChannelStateHandle)

_CHUNK_BYTES = 1 << 20

COMPRESSIONS = ("none", "zlib")
"""The possible compressions of the frames of a snapshot file."""


class SnapshotType(enum.Enum):
    """The purpose of a snapshot (SnapshotType, CheckpointType, SavepointType). It decides the format, whether the
    snapshot may refer to files of earlier ones, and whether later ones may refer to its own."""

    CHECKPOINT = "checkpoint"
    """May use files of earlier checkpoints; later ones may use its own."""
    FULL_CHECKPOINT = "full checkpoint"
    """Uses no older file; later checkpoints may use its own."""
    CANONICAL_SAVEPOINT = "canonical savepoint"
    """In the full format, which every backend reads; shares nothing."""
    NATIVE_SAVEPOINT = "native savepoint"
    """In the backend's own format; shares nothing."""

    @property
    def is_savepoint(self) -> bool:
        """Whether it belongs to the user: it shares no file, and no later checkpoint builds on it."""
        return self in (SnapshotType.CANONICAL_SAVEPOINT, SnapshotType.NATIVE_SAVEPOINT)


@value_class
class SnapshotOptions:
    """How a snapshot is written.

    :ivar type: its purpose
    :ivar compression: ``none`` or ``zlib``; zlib's bytes may differ between versions of that library
    :ivar entries_per_step: a step ends after the key group in which it passed this many entries
    :raises StateArgumentError: on an unknown compression or a step of no entries
    """

    type: SnapshotType = SnapshotType.CHECKPOINT
    compression: str = "none"
    entries_per_step: int = 8192

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise StateArgumentError(f"compression {self.compression!r} is none of {', '.join(COMPRESSIONS)}.")
        if self.entries_per_step < 1:
            raise StateArgumentError(f"entries_per_step must be at least 1, not {self.entries_per_step}.")


class CheckpointStream(ABC):
    """One piece of state on its way into checkpoint storage."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append bytes."""

    @abstractmethod
    def tell(self) -> int:
        """The number of bytes written so far."""

    @abstractmethod
    def close_and_get_handle(self) -> StreamStateHandle | None:
        """Finish: make the bytes durable and return their handle; ``None`` when nothing was written.

        :raises SnapshotCancelledError: when the stream was closed before
        :raises OSError: when finishing fails; the partial file is deleted
        """

    @abstractmethod
    def close(self) -> None:
        """Give up: delete the bytes written. After the stream is finished, or a second time, it does nothing."""

    @abstractmethod
    def discard(self) -> None:
        """Delete the bytes written, finished or not: do not use the handle any more. A second call does nothing.

        :raises OSError: when it cannot be deleted
        """


def discard_all(streams: Iterable[CheckpointStream]) -> None:
    """Discard all streams given, even if discarding one of them fails.

    :raises OSError: the first problem
    """
    first_problem: OSError | None = None
    for stream in streams:
        try:
            stream.discard()
        except OSError as problem:
            first_problem = first_problem or problem
    if first_problem is not None:
        raise first_problem


class StreamFactory(Protocol):
    """Creates the streams of one subtask's snapshot."""

    def create_stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> CheckpointStream:
        """A new stream in a scope, under a name never used before."""


class StateReader(Protocol):
    """Gives access to the bytes of a handle."""

    def open(self, handle: StreamStateHandle) -> BinaryIO:
        """The bytes, at their start.

        :raises MissingStateError: when the file is not there
        :raises CorruptStateError: when its size is not the size written
        """


def checked_chunks(file: BinaryIO, stream: StreamStateHandle, path: str | None = None) -> Iterator[bytes]:
    """The bytes of an open stream, in chunks; at the end they are checked against the checksum in the handle.

    :param path: its name in errors; ``None`` = the name in its handle
    :raises CorruptStateError: when any byte is not as written
    """
    checksum = 0
    while chunk := file.read(_CHUNK_BYTES):
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    # Inlined bytes were checked with the file that inlines them.
    if isinstance(stream, FileStateHandle) and checksum != stream.checksum:
        raise CorruptStateError(path or stream.path, "its bytes do not match the checksum in the checkpoint's metadata")


class SnapshotResources(ABC):
    """The immutable view that a snapshot pins, until released."""

    released = False

    def release(self) -> None:
        """Release the view. The task of the snapshot calls it, exactly once."""
        assert not self.released, "the resources of a snapshot were released twice"
        self.released = True
        self._release()

    @abstractmethod
    def _release(self) -> None:
        """Undo the pinning."""


@value_class
class SnapshotResult(Generic[HandleT]):
    """The result of a snapshot: a handle for the job manager, perhaps a copy for local recovery.

    :ivar job_manager_state: the handle of the state, or ``None`` without state
    :ivar task_local_state: the handle of a local copy, if one was made
    """

    job_manager_state: HandleT | None
    task_local_state: HandleT | None = None

    def __post_init__(self) -> None:
        assert self.task_local_state is None or self.job_manager_state is not None, "local state without remote"

    @property
    def size_bytes(self) -> int:
        """The number of bytes that the job manager's handle refers to."""
        return 0 if self.job_manager_state is None else self.job_manager_state.size_bytes

    @property
    def persisted_bytes(self) -> int:
        """The number of bytes written for it."""
        return 0 if self.job_manager_state is None else self.job_manager_state.persisted_bytes


class SnapshotStatus(enum.Enum):
    """The state of a snapshot task; the last three are final."""

    CREATED = "created"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


# An attribute of an enum is looked up in Python's slow way, and every step of every snapshot asks for these.
_CREATED, _RUNNING, _COMPLETED = SnapshotStatus.CREATED, SnapshotStatus.RUNNING, SnapshotStatus.COMPLETED


class SnapshotTask(ABC, Generic[HandleT]):
    """The asynchronous part: call :meth:`step` until it gives a result, or :meth:`cancel`.

    :ivar status: its state
    """

    def __init__(self, resources: SnapshotResources) -> None:
        self.status = _CREATED
        self._resources = resources

    def step(self) -> SnapshotResult[HandleT] | None:
        """Do one bounded piece of work; returns the result after the last piece, otherwise ``None``.

        :raises SnapshotCancelledError: when it was cancelled before
        :raises Exception: when the snapshot fails; partial output is deleted and the resources are released
        """
        if self.status is not _RUNNING:
            if self.status is SnapshotStatus.CANCELLED:
                raise SnapshotCancelledError("this snapshot was cancelled: its result must not be used.")
            assert self.status is _CREATED, f"step of a {self.status.value} snapshot"
            self.status = _RUNNING
        try:
            result = self._advance()
        except BaseException as problem:
            self._finish(SnapshotStatus.FAILED, problem)
            raise
        if result is not None:
            self.status = _COMPLETED
            self._resources.release()
        return result

    def cancel(self) -> None:
        """Stop for good: delete partial output, release the resources. After the end it does nothing."""
        if self.status in (SnapshotStatus.CREATED, SnapshotStatus.RUNNING):
            self._finish(SnapshotStatus.CANCELLED, None)

    def _finish(self, status: SnapshotStatus, cause: BaseException | None) -> None:
        self.status = status
        try:
            self._discard()
        except OSError as problem:
            # If a file cannot be deleted, the view is released all the same, and the snapshot's own error is raised.
            if cause is not None:
                cause.add_note(f"its partial output could not be deleted either: {problem}")
        finally:
            self._resources.release()

    @abstractmethod
    def _advance(self) -> SnapshotResult[HandleT] | None:
        """One step of the actual work."""

    @abstractmethod
    def _discard(self) -> None:
        """Delete partial output."""


class KeyedSnapshotStrategy(Protocol):
    """Takes snapshots of keyed state in one way."""

    def sync_prepare_resources(self, checkpoint_id: int) -> SnapshotResources:
        """The synchronous part: pin the present state."""

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> SnapshotTask[KeyedStateHandle]:
        """The asynchronous part, as a task that has not started. The task owns the resources from here on."""


def run_to_completion(task: SnapshotTask[HandleT]) -> SnapshotResult[HandleT]:
    """Step a task until its end and return the result."""
    while (result := task.step()) is None:
        pass
    return result
