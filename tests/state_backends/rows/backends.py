"""Keyed backends over real stores, filled, snapshotted and restored in one call each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from state_backends.api import BackendEnvironment, KeyedStateBackend, StateBackend
from state_backends.base import (
    STRING,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    key_group_function,
)
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.rocksdb import RocksDBStateBackend
from state_backends.snapshots import (
    CheckpointStorage,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    run_to_completion,
)
from state_backends.store import StoreKeyedStateBackend

MAX_PARALLELISM = 12
ALL = KeyGroupRange(0, MAX_PARALLELISM - 1)

STORES = ["lsm", "rocksdb"]
over_each_store = pytest.mark.parametrize("store", STORES)

VALUE = ValueStateDescriptor("value")
LIST = ListStateDescriptor("list")
MAP = MapStateDescriptor("map")
SUM = ReducingStateDescriptor("sum", lambda total, value: total + value)


def small(store: str, *, incremental: bool = True) -> StateBackend:
    """The setting of a backend with so little memory that everything happens soon."""
    if store == "lsm":
        return LsmStateBackend(incremental=incremental, memtable_bytes=1 << 12)
    pytest.importorskip("rocksdict")
    return RocksDBStateBackend(incremental=incremental, memtable_bytes=1 << 16)


@dataclass
class World:
    """Checkpoint storage, and all backends made for it, to be disposed of in the end."""

    store: str
    incremental: bool = True
    file_system: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    backends: list[StoreKeyedStateBackend] = field(default_factory=list)
    attempt: int = 0

    @property
    def storage(self) -> CheckpointStorage:
        return CheckpointStorage(self.file_system, "/storage", "job", inline_threshold_bytes=0)

    def backend(self, groups: KeyGroupRange = ALL) -> StoreKeyedStateBackend:
        """An empty backend, as of a new attempt."""
        self.attempt += 1
        environment = BackendEnvironment(
            STRING, MAX_PARALLELISM, groups, self.file_system, f"/local/{self.attempt}", f"u{self.attempt}"
        )
        backend = small(self.store, incremental=self.incremental).create_keyed_backend(environment)
        assert isinstance(backend, StoreKeyedStateBackend)
        self.backends.append(backend)
        return backend

    def snapshot(
        self, backend: StoreKeyedStateBackend, number: int, snapshot_type: SnapshotType = SnapshotType.CHECKPOINT
    ) -> KeyedStateHandle | None:
        """A snapshot from beginning to end, without notifications."""
        options = SnapshotOptions(snapshot_type)
        strategy = backend.snapshot_strategy(options)
        unique = f"{backend._environment.unique}-{number}"
        streams = self.storage.initialize_location(number).stream_factory(unique)
        resources = strategy.sync_prepare_resources(number)
        return run_to_completion(strategy.async_snapshot(resources, streams, options)).job_manager_state

    def native(
        self, backend: StoreKeyedStateBackend, number: int, snapshot_type: SnapshotType = SnapshotType.CHECKPOINT
    ) -> IncrementalKeyedStateHandle:
        """The same, of which it is known that it consists of files."""
        handle = self.snapshot(backend, number, snapshot_type)
        assert isinstance(handle, IncrementalKeyedStateHandle)
        return handle

    def restored(
        self, handles: Iterable[KeyedStateHandle], number: int, groups: KeyGroupRange = ALL
    ) -> StoreKeyedStateBackend:
        backend = self.backend(groups)
        backend.restore(handles, self.storage.reader(number))
        return backend

    def dispose(self) -> None:
        for backend in self.backends:
            backend.dispose()


@pytest.fixture
def world(store: str) -> Iterable[World]:
    one = World(store)
    yield one
    one.dispose()


def keys_of(groups: KeyGroupRange, number: int) -> list[str]:
    """That many keys that belong to some key groups."""
    group_of = key_group_function(STRING, MAX_PARALLELISM)
    found: list[str] = []
    candidate = 0
    while len(found) < number:
        key = f"key-{candidate}"
        if group_of(key) in groups:
            found.append(key)
        candidate += 1
    return found


def fill(backend: KeyedStateBackend, keys: Sequence[str], value: Any = "x" * 40, *, reverse: bool = False) -> None:
    """State of all kinds, with and without namespaces, and timers, for each key.

    :param reverse: declare the states in the opposite order
    """
    makers = [
        lambda: backend.value_state(VALUE),
        lambda: backend.list_state(LIST),
        lambda: backend.map_state(MAP),
        lambda: backend.reducing_state(SUM),
    ]
    made = [maker() for maker in (reversed(makers) if reverse else makers)]
    values, lists, maps, sums = reversed(made) if reverse else made
    timers = backend.timer_service("timers")
    for number, key in enumerate(keys):
        backend.set_current_key(key)
        values.update(f"{key} {value}")
        lists.add_all([number, value])
        lists.set_namespace(f"window-{number % 3}")
        lists.add(number)
        lists.set_namespace(None)
        maps.put_all({f"m{i}": value for i in range(3)})
        sums.add(number)
        timers.event_time.add(key, number, number * 10)


def heap_like(groups: KeyGroupRange = ALL) -> HeapKeyedStateBackend:
    """An empty backend of another kind, to compare with."""
    return HeapKeyedStateBackend(STRING, MAX_PARALLELISM, groups)


def clipped(backend: StoreKeyedStateBackend, groups: KeyGroupRange, world: World, number: int) -> bytes:
    """The digest of a backend's state in some key groups, by way of the full format and the heap."""
    handle = world.snapshot(backend, number, SnapshotType.CANONICAL_SAVEPOINT)
    heap = heap_like(groups)
    heap.restore([] if handle is None else [handle], world.storage.reader(number))
    return heap.fingerprint()
