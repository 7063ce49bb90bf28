"""Heap backends with incremental snapshots, and a job in miniature over one."""

from __future__ import annotations

from typing import Any

from state_backends.api import BackendEnvironment
from state_backends.base import LONG, KeyGroupRange, ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend, HeapStateBackend
from state_backends.heap.incremental_groups import IncrementalHeapStrategy
from state_backends.snapshots import (
    CheckpointStorage,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateReader,
)
from tests.state_backends.rows.support import CHECKPOINT, Job, names

GROUPS = 8
CANONICAL = SnapshotType.CANONICAL_SAVEPOINT
VALUE, LIST, MAP = ValueStateDescriptor("value"), ListStateDescriptor("list"), MapStateDescriptor("map")


def environment(first: int = 0, last: int = GROUPS - 1, unique: str = "u", **more: Any) -> BackendEnvironment:
    return BackendEnvironment(LONG, GROUPS, KeyGroupRange(first, last), MemoryFileSystem(), "/work", unique, **more)


def heap(
    first: int = 0, last: int = GROUPS - 1, unique: str = "u", *, incremental: bool = True, **more: Any
) -> HeapKeyedStateBackend:
    setting = HeapStateBackend(incremental=incremental)
    return setting.create_keyed_backend(environment(first, last, unique, **more))


def strategy_of(backend: HeapKeyedStateBackend) -> Any:
    strategy = backend.snapshot_strategy(SnapshotOptions(CHECKPOINT))
    assert isinstance(strategy, IncrementalHeapStrategy)
    return strategy


def job_over(backend: HeapKeyedStateBackend, retain: int = 1, file_system: MemoryFileSystem | None = None) -> Job:
    """A job in miniature whose subtask has this backend."""
    file_system = MemoryFileSystem() if file_system is None else file_system
    storage = CheckpointStorage(file_system, "/storage", "job", inline_threshold_bytes=0)
    return Job(strategy_of(backend), storage, file_system, retain)


def put(backend: HeapKeyedStateBackend, key: int, value: Any) -> None:
    backend.set_current_key(key)
    backend.value_state(VALUE).update(value)


def fill(backend: HeapKeyedStateBackend, count: int = 60) -> None:
    """State of several kinds in all key groups, with and without namespaces, and timers."""
    for key in range(count):
        put(backend, key, [key])
        for namespace in (None, "n"):
            state = backend.list_state(LIST)
            state.set_namespace(namespace)
            state.add(key)
        backend.map_state(MAP).put("m", key)
        backend.timer_service("t").event_time.add(key, None, key)


def restored(
    handles: list[KeyedStateHandle], reader: StateReader, first: int = 0, last: int = GROUPS - 1, **more: Any
) -> HeapKeyedStateBackend:
    backend = heap(first, last, "restored", **more)
    backend.restore(handles, reader)
    return backend


def groups_of(handle: KeyedStateHandle, *, uploaded: bool) -> list[int]:
    """The key groups that a checkpoint has uploaded, or has referred to."""
    assert isinstance(handle, IncrementalKeyedStateHandle)
    return [int(name.partition("-")[0]) for name in names(handle, uploaded=uploaded)]
