"""A store made of scripted files, and a job in miniature: checkpoint storage, registry of shared files, retention."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from engine.checkpoint.coordinator import SharedState
from engine.checkpoint.coordinator.shared_state_registry import SharedStateRegistry
from state_backends.base import KeyGroupRange
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.rows import IncrementalSnapshotStrategy, RestoredBase
from state_backends.rows.incremental import NativeSnapshotTask
from state_backends.snapshots import (
    CheckpointStorage,
    FileStateHandle,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateScope,
    run_to_completion,
)

ALL_GROUPS = KeyGroupRange(0, 127)
CHECKPOINT, FULL, SAVEPOINT = SnapshotType.CHECKPOINT, SnapshotType.FULL_CHECKPOINT, SnapshotType.NATIVE_SAVEPOINT


class ScriptedStore:
    """A store whose files the test names; the name of a data file determines its content."""

    name = "scripted"

    def __init__(self, file_system: FileSystem, *names: str, bytes_per_file: int = 10) -> None:
        self.names = names
        self.is_empty = False
        self._file_system = file_system
        self._bytes_per_file = bytes_per_file

    def is_data_file(self, name: str) -> bool:
        return name.endswith(".sst")

    def checkpoint(self, directory: str) -> tuple[str, ...]:
        self._file_system.make_dirs(directory)
        for name in self.names:
            with self._file_system.open_write(posixpath.join(directory, name)) as file:
                file.write(content_of(name, self._bytes_per_file))
        return tuple(sorted(self.names))

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return iter([] if self.is_empty else [(b"some", b"entry")])


def content_of(name: str, size: int = 10) -> bytes:
    return (name.encode() * (size // len(name) + 1))[:size]


def strategy_over(
    store: ScriptedStore, file_system: FileSystem, restored: RestoredBase | None = None
) -> IncrementalSnapshotStrategy:
    return IncrementalSnapshotStrategy(
        store,  # type: ignore[arg-type]
        store,  # type: ignore[arg-type]
        file_system,
        "/local/snapshots",
        ALL_GROUPS,
        "backend",
        lambda: b"meta",
        restored,
    )


def files_below(file_system: FileSystem, directory: str) -> list[str]:
    return [posixpath.relpath(path, directory) for path in file_system.walk_files(directory)]


@dataclass
class Checkpoint:
    """One checkpoint of the job in miniature."""

    number: int
    task: NativeSnapshotTask
    handle: KeyedStateHandle | None = None


@dataclass
class Job:
    """One subtask and what the job manager does for it, by the rules of the coordinator: register at the
    acknowledgement, complete, subsume, then delete unused files.

    :ivar notices: for the subtask: (what, checkpoint), not delivered yet
    """

    strategy: IncrementalSnapshotStrategy
    storage: CheckpointStorage
    file_system: FileSystem
    retain: int = 1
    registry: SharedStateRegistry = field(default_factory=SharedStateRegistry)
    pending: dict[int, Checkpoint] = field(default_factory=dict)
    retained: dict[int, KeyedStateHandle | None] = field(default_factory=dict)
    notices: list[tuple[str, int]] = field(default_factory=list)
    attempt: int = 0

    def start(self, number: int, snapshot_type: SnapshotType = CHECKPOINT) -> Checkpoint:
        location = self.storage.initialize_location(number)
        task = self.strategy.async_snapshot(
            self.strategy.sync_prepare_resources(number),
            location.stream_factory(f"subtask-{self.attempt}-{number}"),
            SnapshotOptions(snapshot_type),
        )
        checkpoint = self.pending[number] = Checkpoint(number, task)
        return checkpoint

    def upload(self, number: int) -> None:
        checkpoint = self.pending[number]
        checkpoint.handle = run_to_completion(checkpoint.task).job_manager_state

    def acknowledge(self, number: int) -> None:
        """The acknowledgement arrives: shared files are registered."""
        checkpoint = self.pending[number]
        for file, is_new in () if checkpoint.handle is None else checkpoint.handle.shared():
            self.registry.register(SharedState(file.path, file if is_new else None), number)

    def complete(self, number: int) -> None:
        """All subtasks have acknowledged: it is retained, older ones are subsumed, and unused files are deleted."""
        self.retained[number] = self.pending.pop(number).handle
        for older in [one for one in self.pending if one < number]:
            self.abort(older)
        subsumed = sorted(self.retained)[: -self.retain]
        for older in subsumed:
            del self.retained[older]
            self.storage.discard(older)
        self._delete_unused()
        self.notices.append(("complete", number))
        self.notices.extend(("subsumed", older) for older in subsumed[-1:])

    def abort(self, number: int) -> None:
        """It will never complete: what is registered is deleted later."""
        checkpoint = self.pending.pop(number)
        checkpoint.task.cancel()
        for file, is_new in () if checkpoint.handle is None else checkpoint.handle.shared():
            # No other actor will delete files that were never registered.
            if is_new and file.path not in self.registry.keys:
                self.file_system.delete(self.storage.location(number).full_path(file))
        self.storage.discard(number)
        latest = max(self.retained, default=0)
        if latest:
            self.notices.append(("complete", latest))
        self.notices.append(("aborted", number))

    def deliver(self, *, lost: bool = False) -> None:
        """The next notice arrives at the subtask, or gets lost."""
        what, number = self.notices.pop(0)
        if lost:
            return
        match what:
            case "complete":
                self.strategy.history.complete(number)
            case "aborted":
                self.strategy.history.abort(number)
            case "subsumed":
                self.strategy.history.subsumed(number)

    def deliver_all(self, *, lost: bool = False) -> None:
        while self.notices:
            self.deliver(lost=lost)

    def rest_of(self, number: int) -> None:
        """From the upload to the completion; its notices are under way."""
        self.upload(number)
        self.acknowledge(number)
        self.complete(number)

    def checkpoint(self, number: int, snapshot_type: SnapshotType = CHECKPOINT) -> IncrementalKeyedStateHandle:
        """A checkpoint from beginning to end, nothing in between."""
        self.start(number, snapshot_type)
        self.rest_of(number)
        self.deliver_all()
        handle = self.retained[number]
        assert isinstance(handle, IncrementalKeyedStateHandle)
        return handle

    def verify(self) -> None:
        """Every file of every retained checkpoint is there, byte by byte."""
        for number, handle in self.retained.items():
            reader = self.storage.reader(number)
            for stream in () if handle is None else handle.streams():
                reader.verify(stream)

    def shared_files(self) -> list[str]:
        return files_below(self.file_system, posixpath.join(self.storage.job_dir, "shared"))

    def _delete_unused(self) -> None:
        unused = self.registry.unregister_unused(min(self.retained))
        for handle in unused.handles:
            assert isinstance(handle, FileStateHandle)
            self.file_system.delete(posixpath.join(self.storage.job_dir, handle.path))


def job_over(*names: str, retain: int = 1, bytes_per_file: int = 10) -> tuple[Job, ScriptedStore]:
    """A job whose subtask has a scripted store with some files, all in memory."""
    file_system = MemoryFileSystem()
    store = ScriptedStore(file_system, *names, bytes_per_file=bytes_per_file)
    storage = CheckpointStorage(file_system, "/storage", "job", inline_threshold_bytes=0)
    return Job(strategy_over(store, file_system), storage, file_system, retain), store


def restored_base(checkpoint_id: int, *names: str) -> RestoredBase:
    """The base of a backend restored from a checkpoint with these files."""
    files = {
        name: FileStateHandle(f"shared/restored-{name}", StateScope.SHARED, len(content_of(name)), 0) for name in names
    }
    return RestoredBase("restored", checkpoint_id, files)


def names(handle: IncrementalKeyedStateHandle, *, uploaded: bool) -> list[str]:
    """The data files that a snapshot has uploaded, or has referred to."""
    return [file.name for file in handle.shared_files if file.uploaded is uploaded]


def bytes_behind(job: Job, number: int, handle: IncrementalKeyedStateHandle) -> dict[str, bytes]:
    """The content of all files of a snapshot, by name, as a restore would read it."""
    reader = job.storage.reader(number)
    found = {}
    for file in (*handle.shared_files, *handle.private_files):
        with reader.open(file.stream) as opened:
            found[file.name] = opened.read()
    return found
