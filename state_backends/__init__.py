"""Keyed and operator state, snapshots and checkpoint storage, over one file-system port.

This package knows nothing of the engine and is usable and testable alone. Its rooms, from the bottom up; each may
import those above it in this list, through their front doors (what the ``__init__`` of a room lists):

* ``base``: errors, key groups, descriptors; ``files``: the only way to files; ``codec``: values to bytes and back
* ``snapshots``: state in files; ``api``: what engine and operators are written against
* ``rows`` and ``columns``: state as sorted rows, and as arrays; ``ttl``: state that expires
* ``heap``, and ``store`` with ``rocksdb`` and ``lsm``: what keeps keyed state; ``changelog``: a log over any of them
* ``named``: a backend by its name; ``offline``: checkpoints without their job; ``local``: copies beside the task

The names below are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "AggregatingStateDescriptor": "base",
    "CheckpointMetadata": "snapshots",
    "CheckpointStorage": "snapshots",
    "FaultInjectingFileSystem": "files",
    "FileSystem": "files",
    "HeapKeyedStateBackend": "heap",
    "KeyGroupRange": "base",
    "KeyType": "base",
    "KeyedStateBackend": "api",
    "KeyedStateHandle": "snapshots",
    "ListStateDescriptor": "base",
    "LocalFileSystem": "files",
    "MapStateDescriptor": "base",
    "MemoryFileSystem": "files",
    "OperatorStateBackend": "api",
    "OperatorStateHandle": "snapshots",
    "ReducingStateDescriptor": "base",
    "SnapshotOptions": "snapshots",
    "SnapshotResult": "snapshots",
    "SnapshotTask": "snapshots",
    "StateBackendError": "base",
    "StateCodec": "codec",
    "StateTtlConfig": "base",
    "StateVisibility": "base",
    "TimerService": "api",
    "UpdateType": "base",
    "ValueStateDescriptor": "base",
    "register_record_type": "codec",
    "register_type": "codec",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the list


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(_HOME)
