"""A small world for the changelog backend: storage, the registry of shared files, and a checkpoint in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.checkpoint.coordinator import SharedState
from engine.checkpoint.coordinator.shared_state_registry import SharedStateRegistry
from state_backends.api import BackendEnvironment, StateBackend
from state_backends.base import LONG, KeyGroupRange, KeyType, key_group_for
from state_backends.changelog import ChangelogStateBackend
from state_backends.changelog.keyed_backend import ChangelogKeyedStateBackend
from state_backends.codec import StateCodec
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapStateBackend
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    CheckpointStorage,
    FileStateHandle,
    FsStreamFactory,
    KeyedStateHandle,
    ScopeDirectories,
    SnapshotOptions,
    SnapshotTask,
    SnapshotType,
    run_to_completion,
)
from state_backends.snapshots.keyed_handles import keyed_handle_from_state
from tests.state_backends.support import COLLECT, LIST, MAP, SUM, VALUE, told

MAX_PARALLELISM = 5
ALL = KeyGroupRange(0, MAX_PARALLELISM - 1)
FULL = SnapshotOptions(type=SnapshotType.FULL_CHECKPOINT)


class World:
    """The storage of one job, and its job manager's handling of shared files."""

    def __init__(self, file_system: Any = None) -> None:
        self.file_system = MemoryFileSystem() if file_system is None else file_system
        self.storage = CheckpointStorage(self.file_system, "/storage", "job", inline_threshold_bytes=0)
        self.file_system.make_dirs(f"{self.storage.job_dir}/shared")
        self.registry = SharedStateRegistry()
        self.names = 0
        self.clock_ms = 0

    def environment(
        self, groups: KeyGroupRange = ALL, *, key_type: KeyType | None = LONG, shared: bool = True, **fields: Any
    ) -> BackendEnvironment:
        """The environment of one backend; names differ from call to call."""
        self.names += 1
        directories = ScopeDirectories(self.storage.job_dir, self.storage.job_dir)
        streams = FsStreamFactory(self.file_system, directories, f"log-{self.names}", 0)
        return BackendEnvironment(
            key_type,
            MAX_PARALLELISM,
            groups,
            self.file_system,
            f"{self.storage.job_dir}/work/{self.names}",
            f"u{self.names}",
            now_ms=lambda: self.clock_ms,
            shared_streams=streams if shared else None,
            **{name: value for name, value in fields.items() if value is not None},
        )

    def backend(
        self,
        groups: KeyGroupRange = ALL,
        *,
        inner: StateBackend | None = None,
        key_type: KeyType | None = LONG,
        executor: Any = None,
        codec: StateCodec | None = None,
        shared: bool = True,
        **settings: Any,
    ) -> ChangelogKeyedStateBackend:
        """An empty changelog backend, over the heap unless said otherwise."""
        state_backend = ChangelogStateBackend(HeapStateBackend() if inner is None else inner, **settings)
        environment = self.environment(groups, key_type=key_type, executor=executor, codec=codec, shared=shared)
        return state_backend.create_keyed_backend(environment)

    def begin(
        self, backend: Any, checkpoint_id: int, options: SnapshotOptions | None = None
    ) -> SnapshotTask[KeyedStateHandle]:
        options = options or SnapshotOptions()
        strategy = backend.snapshot_strategy(options)
        resources = strategy.sync_prepare_resources(checkpoint_id)
        self.names += 1
        streams = self.storage.initialize_location(checkpoint_id).stream_factory(f"c{self.names}")
        task: SnapshotTask[KeyedStateHandle] = strategy.async_snapshot(resources, streams, options)
        return task

    def checkpoint(
        self, backend: Any, checkpoint_id: int, options: SnapshotOptions | None = None
    ) -> ChangelogKeyedStateHandle:
        handle = run_to_completion(self.begin(backend, checkpoint_id, options)).job_manager_state
        assert isinstance(handle, ChangelogKeyedStateHandle)
        return handle

    def register(self, handles: Sequence[KeyedStateHandle], checkpoint_id: int) -> None:
        """The acknowledgement arrives: shared files are registered."""
        for handle in handles:
            for file, is_new in handle.shared():
                self.registry.register(SharedState(file.path, file if is_new else None), checkpoint_id)

    def subsume(self, lowest_id: int) -> None:
        """Delete the files that no checkpoint from ``lowest_id`` on uses."""
        for file in self.registry.unregister_unused(lowest_id).handles:
            assert isinstance(file, FileStateHandle)
            self.file_system.delete(f"{self.storage.job_dir}/{file.path}")

    def reader(self) -> Any:
        return self.storage.location(1).reader()

    def restored(
        self, handles: Sequence[KeyedStateHandle], backend: Any, reader: Any = None
    ) -> ChangelogKeyedStateBackend:
        """A backend after a restore from handles, which go through their plain form."""
        backend.restore([keyed_handle_from_state(one.to_state()) for one in handles], reader or self.reader())
        back: ChangelogKeyedStateBackend = backend
        return back

    def shared_files(self) -> list[str]:
        root = f"{self.storage.job_dir}/shared/"
        return sorted(path for path in self.file_system.walk_files(self.storage.job_dir) if path.startswith(root))


def complete(world: World, backend: Any, checkpoint_id: int, handle: KeyedStateHandle) -> None:
    """Acknowledge a checkpoint and let it complete; it is the only one retained."""
    world.register([handle], checkpoint_id)
    world.subsume(checkpoint_id)
    told(backend).complete(checkpoint_id)
    told(backend).subsumed(checkpoint_id - 1)


def again(world: World, backend: ChangelogKeyedStateBackend, checkpoint_id: int = 99) -> ChangelogKeyedStateBackend:
    return world.restored([world.checkpoint(backend, checkpoint_id)], world.backend(backend.key_group_range))


def filled(world: World, **options: Any) -> ChangelogKeyedStateBackend:
    """A backend with something in every kind of state."""
    backend = world.backend(**options)
    backend.value_state(VALUE).update_many([1, 2, 3], [[1], "b", {"x": 1}])
    backend.reducing_state(SUM).add_many([1, 2, 1], [10, 20, 30], [])
    backend.aggregating_state(COLLECT).add_many([1, 2, 1], ["a", "b", "a"], [1, 2, 3])
    backend.list_state(LIST).add_many([1, 2, 1], [1, 2, 3])
    backend.set_current_key(1)
    backend.map_state(MAP).put("a", 1)
    backend.timer_service("t").event_time.register([1, 2], [None, None], [5, 6])
    return backend


def own_keys(groups: KeyGroupRange, count: int) -> list[int]:
    return [key for key in range(1000) if key_group_for(key, MAX_PARALLELISM) in groups][:count]
