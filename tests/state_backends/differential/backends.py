"""The state backends that are held against each other, and how one is made, snapshotted and restored.

A new backend joins the whole suite by a row in :data:`BACKENDS` and one in :data:`SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from state_backends.api import BackendEnvironment, KeyedStateBackend, StateBackend
from state_backends.base import LONG, InlineExecutor, KeyGroupRange, KeyType
from state_backends.changelog import ChangelogStateBackend
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.heap import HeapStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.rocksdb import RocksDBStateBackend
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointStorage,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotResources,
    SnapshotTask,
    SnapshotType,
    StateReader,
    run_to_completion,
)
from state_backends.store import StoreKeyedStateBackend
from tests.state_backends.store.memory_store import MemoryStoreKind
from tests.state_backends.support import DeferredExecutor


@dataclass(frozen=True, slots=True)
class MemoryStateBackend:
    """Keyed state over the simplest of stores."""

    incremental: bool = False
    name: str = "memory"

    def create_keyed_backend(self, environment: BackendEnvironment) -> StoreKeyedStateBackend:
        return StoreKeyedStateBackend(environment, MemoryStoreKind(), incremental=self.incremental)


_TINY: dict[str, Any] = {"memtable_bytes": 300, "block_bytes": 64, "cache_bytes": 2_000, "level0_trigger": 2}
"""So that a handful of entries is flushed, compacted and evicted."""

BACKENDS: dict[str, StateBackend] = {
    "heap": HeapStateBackend(),
    "heap, incremental": HeapStateBackend(incremental=True),
    "memory": MemoryStateBackend(),
    "memory, incremental": MemoryStateBackend(incremental=True),
    "lsm": LsmStateBackend(**_TINY),
    "lsm, incremental": LsmStateBackend(incremental=True, **_TINY),
    "lsm, universal": LsmStateBackend(incremental=True, compaction="universal", compression="zlib", **_TINY),
    "rocksdb": RocksDBStateBackend(incremental=True, memtable_bytes=1 << 16, auto_compaction=False),
    "changelog": ChangelogStateBackend(HeapStateBackend(), segment_bytes=200),
    "changelog over lsm": ChangelogStateBackend(LsmStateBackend(incremental=True, **_TINY), segment_bytes=200),
}

CANONICAL = SnapshotType.CANONICAL_SAVEPOINT
NATIVE = SnapshotType.NATIVE_SAVEPOINT
CHECKPOINT = SnapshotType.CHECKPOINT
FULL_CHECKPOINT = SnapshotType.FULL_CHECKPOINT

SCENARIOS: list[tuple[SnapshotType, tuple[str, ...]]] = [
    # By which snapshots state goes from the first backend to the second, and so on, and back to the first.
    (CHECKPOINT, ("heap",)),
    (CHECKPOINT, ("heap, incremental",)),
    (CHECKPOINT, ("heap", "memory", "lsm")),
    (CHECKPOINT, ("memory, incremental",)),
    (CHECKPOINT, ("lsm",)),
    (CHECKPOINT, ("lsm, incremental",)),
    (CHECKPOINT, ("lsm, universal", "lsm, incremental")),
    (CHECKPOINT, ("rocksdb",)),
    (CHECKPOINT, ("changelog",)),
    (CHECKPOINT, ("changelog over lsm",)),
    (FULL_CHECKPOINT, ("lsm, incremental",)),
    (FULL_CHECKPOINT, ("heap, incremental",)),
    (FULL_CHECKPOINT, ("changelog",)),
    (FULL_CHECKPOINT, ("changelog over lsm",)),
    (NATIVE, ("lsm", "lsm, incremental")),
    (CANONICAL, ("heap", "lsm, incremental", "memory, incremental", "lsm")),
    (CANONICAL, ("changelog", "lsm", "rocksdb", "heap, incremental", "changelog over lsm")),
]


class World:
    """A file system with checkpoint storage and local directories, and the backends made in it."""

    def __init__(self, file_system: FileSystem | None = None, inline_threshold_bytes: int = 0) -> None:
        self.file_system = MemoryFileSystem() if file_system is None else file_system
        self.storage = CheckpointStorage(
            self.file_system, "/storage", "job", inline_threshold_bytes=inline_threshold_bytes
        )
        self._made = 0
        self._checkpoint_id = 0

    def backend(
        self,
        name: str,
        max_parallelism: int = 8,
        groups: KeyGroupRange | None = None,
        key_type: KeyType | None = LONG,
        executor: DeferredExecutor | None = None,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> KeyedStateBackend:
        self._made += 1
        environment = BackendEnvironment(
            key_type,
            max_parallelism,
            groups or KeyGroupRange(0, max_parallelism - 1),
            self.file_system,
            f"/local/{self._made}",
            f"u{self._made}",
            executor or InlineExecutor(),
            now_ms,
        )
        return BACKENDS[name].create_keyed_backend(environment)

    def next_location(self) -> CheckpointLocation:
        self._checkpoint_id += 1
        return self.storage.initialize_location(self._checkpoint_id)

    def snapshot(self, backend: KeyedStateBackend, options: SnapshotOptions | None = None) -> Taken:
        pinned = Pinned(backend, self.next_location(), options or SnapshotOptions())
        handle = run_to_completion(pinned.task).job_manager_state
        return Taken([] if handle is None else [handle], pinned.location.reader(), pinned.location.checkpoint_id)

    def restored(self, name: str, taken: Taken, like: KeyedStateBackend, **options: Any) -> KeyedStateBackend:
        """A new backend with the key groups of another and the state of a snapshot."""
        backend = self.backend(name, like.max_parallelism, like.key_group_range, **options)
        backend.restore(taken.handles, taken.reader)
        return backend

    def local_files(self) -> list[str]:
        return list(self.file_system.walk_files("/local"))


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished snapshot, maybe of several subtasks."""

    handles: list[KeyedStateHandle]
    reader: StateReader
    checkpoint_id: int

    def data(self) -> bytes:
        """The bytes of a full snapshot of one subtask."""
        if not self.handles:
            return b""
        (handle,) = self.handles
        (stream,) = handle.streams()
        with self.reader.open(stream) as file:
            return file.read()


class Pinned:
    def __init__(
        self, backend: KeyedStateBackend, location: CheckpointLocation, options: SnapshotOptions, unique: str = "s"
    ) -> None:
        self.location = location
        self.checkpoint_id = location.checkpoint_id
        strategy = backend.snapshot_strategy(options)
        self.resources: SnapshotResources = strategy.sync_prepare_resources(self.checkpoint_id)
        # Shared files of two checkpoints must not have one name, so the checkpoint is in it.
        streams = location.stream_factory(f"{unique}-{self.checkpoint_id}")
        self.task: SnapshotTask[KeyedStateHandle] = strategy.async_snapshot(self.resources, streams, options)


def canonical_bytes(world: World, backend: KeyedStateBackend) -> bytes:
    return world.snapshot(backend, SnapshotOptions(CANONICAL)).data()


class Maker:
    """Makes backends of one kind of :data:`BACKENDS`, in a world of their own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.world = World()

    def __call__(
        self, key_type: KeyType | None = LONG, max_parallelism: int = 8, first: int = 0, last: int | None = None
    ) -> KeyedStateBackend:
        groups = KeyGroupRange(first, max_parallelism - 1 if last is None else last)
        return self.world.backend(self.name, max_parallelism, groups, key_type)

    def restarted(self, backend: KeyedStateBackend) -> KeyedStateBackend:
        return self.world.restored(self.name, self.world.snapshot(backend), like=backend)
