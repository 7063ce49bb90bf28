"""The contract of a snapshot: two phases, a task made of bounded steps, resources released exactly once.

Rules (SnapshotStrategy, SnapshotStrategyRunner, AsyncSnapshotCallable in Flink):

* S1 ``sync_prepare_resources`` runs between records and pins an immutable view; ``async_snapshot`` turns
  it into a task whose steps are interleaved with processing.
* S2 The steps see exactly the state at the sync point, whatever is processed meanwhile.
* S3 The resources are released exactly once on every path: success, failure, cancel while running,
  cancel before start. The task does it. Only when ``async_snapshot`` is never reached must the caller.
* S5 What a failed or cancelled snapshot has written is deleted.
* S6 A keyed backend without entries gives an empty result and no file.
* S7 A local copy without a remote one is illegal.
"""

from __future__ import annotations

import enum
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Generic, Protocol, TypeVar

from state_backends.base import CorruptStateError, SnapshotCancelledError, StateArgumentError
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
"""How the frames of a snapshot file may be compressed."""


class SnapshotType(enum.Enum):
    """What a snapshot is for (SnapshotType, CheckpointType, SavepointType): whether it may refer to files of earlier
    ones, whether later ones may refer to its own, and in which format it is."""

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
        """Whether it belongs to the user: nothing is shared, and it is no base of a later checkpoint."""
        return self in (SnapshotType.CANONICAL_SAVEPOINT, SnapshotType.NATIVE_SAVEPOINT)


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """How a snapshot is written.

    :ivar type: what it is for
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
        """How many bytes were written so far."""

    @abstractmethod
    def close_and_get_handle(self) -> StreamStateHandle | None:
        """Finish: make the bytes durable and say where they are; ``None`` when nothing was written.

        :raises SnapshotCancelledError: when the stream was closed before
        :raises OSError: when finishing fails; the partial file is deleted
        """

    @abstractmethod
    def close(self) -> None:
        """Give up: delete what was written. After finishing, or a second time, it does nothing."""

    @abstractmethod
    def discard(self) -> None:
        """Delete what was written, finished or not: its handle must not be used any more. A second call does nothing.

        :raises OSError: when it cannot be deleted
        """


def discard_all(streams: Iterable[CheckpointStream]) -> None:
    """Discard each of some streams, also when another one cannot be.

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
    """Where the streams of one subtask's snapshot come from."""

    def create_stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> CheckpointStream:
        """A new stream in a scope, under a name never used before."""


class StateReader(Protocol):
    """Gives access to the bytes of a handle."""

    def open(self, handle: StreamStateHandle) -> BinaryIO:
        """The bytes, at their start.

        :raises MissingStateError: when the file is not there
        :raises CorruptStateError: when it has not the size it was written with
        """


def checked_chunks(file: BinaryIO, stream: StreamStateHandle, path: str | None = None) -> Iterator[bytes]:
    """The bytes of a stream that is open; the end comes only when they are those that were written.

    :param path: how errors name it; ``None`` = as its handle does
    :raises CorruptStateError: when any byte is not as written
    """
    checksum = 0
    while chunk := file.read(_CHUNK_BYTES):
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    # Inlined bytes were checked with what inlines them.
    if isinstance(stream, FileStateHandle) and checksum != stream.checksum:
        raise CorruptStateError(path or stream.path, "its bytes do not match the checksum in the checkpoint's metadata")


class SnapshotResources(ABC):
    """The immutable view that a snapshot pins, until released."""

    released = False

    def release(self) -> None:
        """Release the view. Called exactly once; the task of a snapshot does so."""
        assert not self.released, "the resources of a snapshot were released twice"
        self.released = True
        self._release()

    @abstractmethod
    def _release(self) -> None:
        """Undo the pinning."""


@dataclass(frozen=True, slots=True)
class SnapshotResult(Generic[HandleT]):
    """What a snapshot gives: a handle for the job manager, maybe a copy for local recovery.

    :ivar job_manager_state: where the state is, or ``None`` when there is none
    :ivar task_local_state: a local copy of the same, if one was made
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
        """The bytes that were written for it."""
        return 0 if self.job_manager_state is None else self.job_manager_state.persisted_bytes


class SnapshotStatus(enum.Enum):
    """The state of a snapshot task; the last three are final."""

    CREATED = "created"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class SnapshotTask(ABC, Generic[HandleT]):
    """The asynchronous part: call :meth:`step` until it gives a result, or :meth:`cancel`.

    :ivar status: its state
    """

    def __init__(self, resources: SnapshotResources) -> None:
        self.status = SnapshotStatus.CREATED
        self._resources = resources

    def step(self) -> SnapshotResult[HandleT] | None:
        """Do one bounded piece of work; the result when it was the last, else ``None``.

        :raises SnapshotCancelledError: when it was cancelled before
        :raises Exception: its cause of failure; partial output is deleted and the resources are released
        """
        if self.status is SnapshotStatus.CANCELLED:
            raise SnapshotCancelledError("this snapshot was cancelled: its result must not be used.")
        unfinished = (SnapshotStatus.CREATED, SnapshotStatus.RUNNING)
        assert self.status in unfinished, f"step of a {self.status.value} snapshot"
        self.status = SnapshotStatus.RUNNING
        try:
            result = self._advance()
        except BaseException as problem:
            self._finish(SnapshotStatus.FAILED, problem)
            raise
        if result is not None:
            self.status = SnapshotStatus.COMPLETED
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
            # A file that cannot be deleted must not hide why the snapshot failed, nor keep the view pinned.
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
    """How keyed state is snapshotted."""

    def sync_prepare_resources(self, checkpoint_id: int) -> SnapshotResources:
        """The synchronous part: pin the present state."""

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> SnapshotTask[KeyedStateHandle]:
        """The asynchronous part, as a task that has not started; it owns the resources from here on."""


def run_to_completion(task: SnapshotTask[HandleT]) -> SnapshotResult[HandleT]:
    """Step a task until its end and return the result."""
    while (result := task.step()) is None:
        pass
    return result
