"""Which state backend a job uses, by name; and what a backend is given when one subtask needs one.

| name          | live state                    | checkpoints                                                        |
|---------------|-------------------------------|--------------------------------------------------------------------|
| ``heap``      | Python objects                | full; incremental: key groups whose bytes have changed             |
| ``lsm``       | a log-structured store        | full, in canonical format; incremental: new SST files              |
| ``rocksdb``   | the real RocksDB (an extra)   | as ``lsm``                                                         |
| ``changelog`` | any of them (heap if not told)| a log of changes, and materialised snapshots of what is behind it  |

``changelog`` may name what it stands over: ``changelog:lsm``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from state_backends.encoding import StateCodec, default_codec
from state_backends.errors import StateArgumentError
from state_backends.executor import Executor, InlineExecutor
from state_backends.filesystem_port import FileSystem
from state_backends.key_groups import KeyGroupRange, KeyType
from state_backends.keyed_backend import KeyedStateBackend
from state_backends.snapshot import StreamFactory


def _no_time() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class BackendEnvironment:
    """What one keyed backend of one subtask is given.

    :ivar key_type: the declared type of all keys, ``None`` = that of the snapshot restored, else of the first key
    :ivar max_parallelism: the number of key groups of the operator
    :ivar key_group_range: those that this subtask owns
    :ivar file_system: where local files go
    :ivar working_dir: a directory for them, the backend's alone; it does not exist yet
    :ivar unique: never given to another backend, crashes and restarts included; goes into names of files
    :ivar executor: does background work
    :ivar now_ms: the processing time, for state that expires
    :ivar codec: encodes keys and values
    :ivar shared_streams: streams into the shared scope, for what is uploaded between checkpoints; ``None`` = nothing is
    """

    key_type: KeyType | None
    max_parallelism: int
    key_group_range: KeyGroupRange
    file_system: FileSystem
    working_dir: str
    unique: str
    executor: Executor = field(default_factory=InlineExecutor)
    now_ms: Callable[[], int] = _no_time
    codec: StateCodec = field(default_factory=default_codec)
    shared_streams: StreamFactory | None = None


class StateBackend(Protocol):
    """A kind of keyed state, with its settings (Flink: ``StateBackend``). Holds no state and no file itself."""

    @property
    def name(self) -> str:
        """As in the table above."""

    @property
    def incremental(self) -> bool:
        """Whether checkpoints use files of earlier ones."""

    def create_keyed_backend(self, environment: BackendEnvironment) -> KeyedStateBackend:
        """An empty keyed backend for one subtask."""


_MODULES = {
    "heap": ("state_backends.heap_backend", "HeapStateBackend"),
    "lsm": ("state_backends.lsm_backend", "LsmStateBackend"),
    "rocksdb": ("state_backends.rocksdb_backend", "RocksDBStateBackend"),
}
_CHANGELOG = "changelog"

STATE_BACKEND_NAMES = (*_MODULES, _CHANGELOG)
"""What :func:`state_backend_named` knows."""


def state_backend_named(name: str, *, incremental: bool = False) -> StateBackend:
    """The state backend of that name, with its default settings.

    :raises StateArgumentError: when there is none of that name, or the package that it needs is not installed
    """
    if name == _CHANGELOG or name.startswith(f"{_CHANGELOG}:"):
        inner = state_backend_named(name.partition(":")[2] or "heap", incremental=incremental)
        if inner.name.startswith(_CHANGELOG):
            raise StateArgumentError(f"state backend {name!r}: a changelog cannot stand over a changelog.")
        module = import_module("state_backends.changelog.backend")
        over_inner: StateBackend = module.ChangelogStateBackend(inner)
        return over_inner
    if name not in _MODULES:
        raise StateArgumentError(
            f"state backend {name!r} is none of {', '.join(STATE_BACKEND_NAMES)} "
            f"({_CHANGELOG}:NAME says what a changelog stands over)."
        )
    home, class_name = _MODULES[name]
    backend: StateBackend = getattr(import_module(home), class_name)(incremental=incremental)
    return backend
