"""Keyed and operator state, snapshots and checkpoint storage, behind one file-system port.

This room knows nothing of the engine and is usable and testable alone. Its modules, from the bottom up:

* ``errors``, ``key_types``, ``key_groups``: what goes wrong, what a key is, which group it belongs to
* ``type_registry``, ``encoding``, ``framing``: values to bytes and back, and the envelope of files
* ``filesystem`` (port, local, memory, faulty): the only way to files
* ``descriptors``, ``handles``, ``snapshot``, ``keyed_backend``: contracts
* ``sharded_table``, ``heap_*``, ``timers``, ``heap``: keyed state in memory
* ``ttl_*``, ``schema_*``: state that expires, and records whose fields have changed
* ``operator_state``: lists that belong to a subtask
* ``full_snapshot``, ``checkpoint_streams``, ``checkpoint_metadata``, ``storage``: state in files

The names below are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "AggregatingStateDescriptor": "descriptors",
    "CheckpointMetadata": "storage",
    "CheckpointStorage": "storage",
    "FaultInjectingFileSystem": "filesystem",
    "FileSystem": "filesystem",
    "HeapKeyedStateBackend": "heap",
    "KeyGroupRange": "key_groups",
    "KeyType": "key_groups",
    "KeyedStateBackend": "keyed_backend",
    "KeyedStateHandle": "keyed_handles",
    "ListStateDescriptor": "descriptors",
    "LocalFileSystem": "filesystem",
    "MapStateDescriptor": "descriptors",
    "MemoryFileSystem": "filesystem",
    "OperatorStateBackend": "operator_state",
    "OperatorStateHandle": "handles",
    "ReducingStateDescriptor": "descriptors",
    "SnapshotOptions": "snapshot",
    "SnapshotResult": "snapshot",
    "SnapshotTask": "snapshot",
    "StateBackendError": "errors",
    "StateCodec": "encoding",
    "StateTtlConfig": "ttl",
    "StateVisibility": "ttl",
    "TimerService": "timers",
    "UpdateType": "ttl",
    "ValueStateDescriptor": "descriptors",
    "register_record_type": "encoding",
    "register_type": "encoding",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the list


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
