"""Two programs: an old one that writes a snapshot and a new one that goes on from it."""

from __future__ import annotations

from typing import Any

from state_backends.api import BackendEnvironment, KeyedStateBackend, StateBackend
from state_backends.base import LONG, KeyGroupRange
from state_backends.codec import StateCodec, TypeRegistry
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.snapshots import KeyedStateHandle, SnapshotOptions, SnapshotType, StateReader, run_to_completion
from tests.state_backends.support import location

GROUPS = 4

CHECKPOINT, SAVEPOINT = SnapshotType.CHECKPOINT, SnapshotType.NATIVE_SAVEPOINT
PATHS = [
    # writer, snapshot, reader
    ("heap", CHECKPOINT, "heap"),
    ("heap", CHECKPOINT, "lsm"),
    ("lsm", CHECKPOINT, "lsm"),
    ("lsm", CHECKPOINT, "heap"),
    ("lsm", SAVEPOINT, "lsm"),
    ("heap", SAVEPOINT, "heap"),
]
"""Full format between backends, and the own format of each."""


def backend(name: str, registry: TypeRegistry, first: int = 0, last: int = GROUPS - 1) -> KeyedStateBackend:
    setting: StateBackend
    if name == "heap":
        setting = HeapStateBackend()
    else:
        setting = LsmStateBackend(memtable_bytes=2048, block_bytes=128)
    environment = BackendEnvironment(
        LONG, GROUPS, KeyGroupRange(first, last), MemoryFileSystem(), "/work", "unique", codec=StateCodec(registry)
    )
    return setting.create_keyed_backend(environment)


def incremental_heap(registry: TypeRegistry) -> KeyedStateBackend:
    """A heap backend whose native format is one file for each key group."""
    environment = BackendEnvironment(
        LONG, GROUPS, KeyGroupRange(0, GROUPS - 1), MemoryFileSystem(), "/work", "u", codec=StateCodec(registry)
    )
    return HeapStateBackend(incremental=True).create_keyed_backend(environment)


def program(name: str, snapshot: SnapshotType, registry: TypeRegistry) -> KeyedStateBackend:
    """A backend whose snapshots of that type are in its own format, if it is a native one."""
    if name == "heap" and snapshot is SAVEPOINT:
        return incremental_heap(registry)
    return backend(name, registry)


def taken(
    keyed: KeyedStateBackend, snapshot: SnapshotType = SnapshotType.CANONICAL_SAVEPOINT
) -> tuple[KeyedStateHandle, StateReader]:
    where = location()
    options = SnapshotOptions(snapshot)
    strategy = keyed.snapshot_strategy(options)
    resources = strategy.sync_prepare_resources(1)
    task = strategy.async_snapshot(resources, where.stream_factory("state"), options)
    handle = run_to_completion(task).job_manager_state
    assert handle is not None
    return handle, where.reader()


def snapshot_bytes(keyed: KeyedStateBackend) -> bytes:
    handle, reader = taken(keyed)
    stream: Any = handle
    with reader.open(stream.stream) as file:
        return file.read()
