"""V6 and V12: the content of a completed checkpoint, and the checkpoint that an attempt resumes from.

Files are read without the run noticing, and without the faults of its reads and writes: as they are on disk, and as a
crash at this very instant would leave them.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from zlib import crc32

from engine.explore.invariants.base import DAMAGE, ReadMetadata, Shared, Watcher, faults_possible, shown
from engine.explore.run import CaseView, FinishedCase, hears
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    SnapshotAcknowledged,
    TaskState,
)
from state_backends.base import CorruptStateError, StateBackendError
from state_backends.codec import default_codec
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.offline import write_in_full
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    OperatorSnapshot,
)

_MAY_EXIST = "FINALIZE_CHECKPOINT_FAILURE"
"""The reason of an aborted checkpoint that may exist all the same, until it is deleted."""

_MOST_BYTES_WRITTEN_AGAIN = 64 * 1024
"""Larger states are not written a second time."""

_ONE_CASE_IN = 4
"""This check costs more than everything else here together."""


def storage_of(view: CaseView, files: FileSystem) -> CheckpointStorage:
    """The checkpoint storage of a case, on its files or on others."""
    return CheckpointStorage(files, view.storage_dir, view.plan.job_name)


def after_a_crash(files: FileSystem) -> FileSystem:
    """The files as a crash would leave them, where that is known."""
    return files.survivors() if isinstance(files, MemoryFileSystem) else files


class SnapshotFile(NamedTuple):
    """One snapshot, and the file system that it is on."""

    files: FileSystem
    location: CheckpointLocation

    def content(self) -> bytes:
        """Its metadata, as written. Raises :class:`OSError` when there is none."""
        return self.files.read_bytes(self.location.metadata_path)


def snapshot_of(view: CaseView, checkpoint_id: int, *, durable: bool) -> SnapshotFile:
    """A snapshot in checkpoint storage; a savepoint may be elsewhere on the same disk."""
    manager_files = view.execution.manager.files
    said, job_dir = manager_files.location(checkpoint_id).directory, manager_files.storage.job_dir
    is_checkpoint = posixpath.dirname(said) == job_dir
    files = after_a_crash(view.world.checkpoints) if durable else view.world.checkpoints
    return SnapshotFile(files, CheckpointLocation(files, checkpoint_id, said, job_dir if is_checkpoint else None))


def read_metadata(shared: Shared, snapshot: SnapshotFile) -> CheckpointMetadata:
    """The parsed metadata of a snapshot.

    :raises CorruptStateError: when it is damaged, or belongs to another checkpoint
    :raises OSError: when there is none
    """
    return read_whole(shared, snapshot).metadata


def read_whole(shared: Shared, snapshot: SnapshotFile) -> ReadMetadata:
    """The same, with its files."""
    content, path = snapshot.content(), snapshot.location.metadata_path
    found = shared.metadata_of(content, partial(_read, content, path))
    if found.metadata.checkpoint_id != snapshot.location.checkpoint_id:
        raise CorruptStateError(path, f"is the metadata of checkpoint {found.metadata.checkpoint_id}")
    return found


def _read(content: bytes, path: str) -> ReadMetadata:
    metadata = CheckpointMetadata.from_file(io.BytesIO(content), path)
    files = tuple(stream for stream in metadata.streams() if isinstance(stream, FileStateHandle))
    return ReadMetadata(content, metadata, files)


def _is_intact(snapshot: SnapshotFile, stream: FileStateHandle) -> bool:
    """Whether a file is as its handle says, byte by byte; if not, the state reader says what is wrong."""
    try:
        content = snapshot.files.read_bytes(snapshot.location.full_path(stream))
    except OSError:
        return False
    return len(content) == stream.size_bytes and crc32(content) == stream.checksum


def readable_metadata(shared: Shared, snapshot: SnapshotFile) -> CheckpointMetadata | None:
    """The same; ``None`` when it is damaged or gone, which V6 and V12 report."""
    try:
        return read_metadata(shared, snapshot)
    except (StateBackendError, OSError):
        return None


class CompleteMeansWhole(Watcher):
    name = "V6"
    title = "A completed checkpoint has every part, survives a crash, and is restored from; an aborted one never is."
    reason = "Output that was committed because of it must not depend on state that is not there any more."
    source = "Flink CheckpointCoordinator; sled's fail points (rename without fsync); FLINK-34518 (an empty checkpoint)"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._acknowledged: dict[int, set[str]] = {}
        self._finished: dict[str, int] = {}
        """By task: the attempt in which it has finished."""
        self._running: dict[str, int] = {}
        self._triggered: set[int] = set()
        self._aborted: dict[int, str] = {}
        self._newest = 0
        """The newest completed checkpoint; no attempt may go back to an older one."""

    def process_started(self, view: CaseView) -> None:
        """Attempts count from 1 again."""
        super().process_started(view)
        self._finished.clear()
        self._running.clear()

    def job_started(self, view: CaseView) -> None:
        """Numbers are used again."""
        self._acknowledged.clear()
        self._triggered.clear()
        self._aborted.clear()
        self._newest = 0

    @property
    def _damage(self) -> frozenset[str]:
        return faults_possible(self.view) & DAMAGE

    @hears(SnapshotAcknowledged)
    def _on_acknowledged(self, event: SnapshotAcknowledged) -> None:
        self._acknowledged.setdefault(event.checkpoint_id, set()).add(event.task)

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        if event.state == "finished":
            self._finished[event.task] = event.attempt
        elif event.state == "running":
            self._running[event.task] = max(event.attempt, self._running.get(event.task, 0))

    @hears(CheckpointTriggered)
    def _on_triggered(self, event: CheckpointTriggered) -> None:
        self._triggered.add(event.checkpoint_id)

    @hears(CheckpointAborted)
    def _on_aborted(self, event: CheckpointAborted) -> None:
        # A checkpoint that was never triggered is unknown to all tasks: the next job manager may take its number.
        if event.checkpoint_id in self._triggered:
            self._aborted[event.checkpoint_id] = event.reason

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        number, now_ns = event.checkpoint_id, event.time_ns
        acknowledged = self._acknowledged.pop(number, set())
        missing = [task for task in self.topology.tasks if task not in acknowledged and not self._is_finished(task)]
        if missing:
            text = f"checkpoint {number} is complete, but these have not acknowledged it: {shown(missing)}"
            self.violated(text, now_ns, checkpoint_id=number)
        if number in self._aborted:
            self.violated(f"checkpoint {number} is complete, but was aborted before", now_ns, checkpoint_id=number)
        snapshot = snapshot_of(self.view, number, durable=True)
        if "delete-referenced" not in self._damage:
            has_files = self._verify(snapshot, now_ns, "is complete, but would not survive a crash now")
            if has_files:
                # Older ones may refer to the same files; inlined state cannot be taken away.
                self._verify_retained(self.view.world.checkpoints, now_ns)
        if posixpath.dirname(snapshot.location.directory) == self.view.execution.manager.files.storage.job_dir:
            self._newest = max(self._newest, number)

    def _verify_retained(self, files: FileSystem, now_ns: int | None) -> None:
        storage = storage_of(self.view, files)
        for number in storage.list_checkpoints():
            self._verify(SnapshotFile(files, storage.location(number)), now_ns, "is retained, but cannot be restored")

    def _is_finished(self, task: str) -> bool:
        return task in self._finished and self._finished[task] >= self._running.get(task, 0)

    def _verify(self, snapshot: SnapshotFile, now_ns: int | None, what: str) -> bool:
        """Whether it refers to any files, as far as that is known."""
        number = snapshot.location.checkpoint_id
        try:
            whole = read_whole(self.shared, snapshot)
            for stream in whole.files:
                if not _is_intact(snapshot, stream):
                    snapshot.location.reader().verify(stream)
        except (StateBackendError, OSError) as error:
            self.violated(f"checkpoint {number} {what}: {error}", now_ns, checkpoint_id=number)
            return True
        for operator in whole.metadata.operators:
            if len(operator.subtasks) < operator.parallelism:
                parts = range(operator.parallelism)
                absent = [f"{operator.name}[{one}]" for one in parts if one not in operator.subtasks]
                text = f"checkpoint {number} is complete, but holds no part of {shown(absent)}"
                self.violated(text, now_ns, checkpoint_id=number)
        return bool(whole.files)

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        restored = event.restored_checkpoint
        reason = self._aborted.get(restored or 0)
        if restored is not None and reason is not None and reason != _MAY_EXIST:
            text = f"attempt {event.attempt} goes on from checkpoint {restored}, which was aborted ({reason})"
            self.violated(text, event.time_ns, checkpoint_id=restored)
        if (restored or 0) < self._newest:
            if not self._damage:
                begins = "from nothing" if restored is None else f"from checkpoint {restored}"
                text = f"attempt {event.attempt} begins {begins}, but checkpoint {self._newest} is complete"
                self.violated(text, event.time_ns, checkpoint_id=self._newest)
            self._newest = restored or 0

    def finished(self, case: FinishedCase) -> None:
        if self._damage:
            return
        self._verify_retained(self.view.world.checkpoints, None)


class CanonicalBytes(Watcher):
    name = "V12"
    title = "A snapshot is read as it was written, and written again gives the same bytes."
    reason = "Equal states in unequal bytes cannot be compared; what is not read as it was written is lost slowly."
    source = "TigerBeetle's storage checker; Flink: canonical savepoints restore into every state backend"

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        if not faults_possible(self.view).isdisjoint(DAMAGE):
            self.skipped = "files may be damaged"
            return
        self._guarded(self._check_metadata, snapshot_of(self.view, event.checkpoint_id, durable=False), event.time_ns)

    def finished(self, case: FinishedCase) -> None:
        """In one of four cases, write the state of one subtask in the newest checkpoint again."""
        chosen = crc32(self.view.case.seed.encode())
        # Compressed bytes depend on the compressor.
        if chosen % _ONE_CASE_IN or self.skipped is not None or self.view.config.snapshot_compression != "none":
            return
        files = self.view.world.checkpoints
        storage = storage_of(self.view, files)
        for number in storage.list_checkpoints()[-1:]:
            check = partial(self._check_state, chosen // _ONE_CASE_IN)
            self._guarded(check, SnapshotFile(files, storage.location(number)), None)

    def _guarded(
        self, check: Callable[[SnapshotFile, int | None], None], snapshot: SnapshotFile, now_ns: int | None
    ) -> None:
        try:
            check(snapshot, now_ns)
        except (StateBackendError, OSError) as error:
            number = snapshot.location.checkpoint_id
            self.violated(f"checkpoint {number} cannot be read: {error}", now_ns, checkpoint_id=number)

    def _check_metadata(self, snapshot: SnapshotFile, now_ns: int | None) -> None:
        whole = read_whole(self.shared, snapshot)
        if whole.is_canonical is None:
            whole.is_canonical = whole.metadata.to_bytes() == whole.content
        if not whole.is_canonical:
            number = snapshot.location.checkpoint_id
            text = f"the metadata of checkpoint {number} is not what is written for what was read from it"
            self.violated(text, now_ns, checkpoint_id=number)

    def _check_state(self, chosen: int, snapshot: SnapshotFile, now_ns: int | None) -> None:
        number, whole = snapshot.location.checkpoint_id, read_whole(self.shared, snapshot)
        found = _one_state(whole.metadata, chosen)
        if found is None:
            return
        operator, subtask, handle = found
        if (operator.uid, subtask) in whole.canonical_states:
            return
        reader = snapshot.location.reader()
        with reader.open(handle.stream) as file:
            written = file.read()
        again = CheckpointStorage(MemoryFileSystem(), "/", "again").initialize_location(1)
        copied = write_in_full(handle, reader, operator.max_parallelism, default_codec(), again.stream_factory("again"))
        with again.reader().open(copied.stream) if copied is not None else reader.open(handle.stream) as file:
            if copied is None or file.read() != written:
                text = f"the state of {operator.name}[{subtask}] in checkpoint {number}, read and written again, is"
                self.violated(f"{text} other bytes", now_ns, checkpoint_id=number)
            elif not whole.files:
                # Files may have other bytes in the next case.
                whole.canonical_states.add((operator.uid, subtask))


def _one_state(metadata: CheckpointMetadata, number: int) -> tuple[OperatorSnapshot, int, FullKeyedStateHandle] | None:
    """The keyed state of one subtask; which one depends on ``number``."""
    found = [
        (operator, subtask, snapshot.keyed)
        for operator in metadata.operators
        for subtask, snapshot in sorted(operator.subtasks.items())
        if isinstance(snapshot.keyed, FullKeyedStateHandle)
        and snapshot.keyed.stream.size_bytes <= _MOST_BYTES_WRITTEN_AGAIN
    ]
    return found[number % len(found)] if found else None
