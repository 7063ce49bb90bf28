"""The RocksDB state backend as a setting of a job: keyed state in the real RocksDB (extra ``rocksdb``)."""

from __future__ import annotations

import tempfile  # deterministic: only for where files lie that no output shows
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from state_backends.api import BackendEnvironment
from state_backends.files import LocalFileSystem
from state_backends.rocksdb.rocksdb_store import (
    DEFAULT_CACHE_BYTES,
    DEFAULT_MEMTABLE_BYTES,
    RocksDBOptions,
    RocksDBStoreKind,
)
from state_backends.store import StoreKeyedStateBackend

TEMPORARY_PREFIX = "weir-rocksdb-"


@dataclass(frozen=True, slots=True)
class RocksDBStateBackend:
    """Keyed state in RocksDB (Flink: ``EmbeddedRocksDBStateBackend``). The settings are those of
    :class:`RocksDBOptions`; they are checked, and the package is looked for, when this is made.

    :ivar incremental: whether a checkpoint uploads only the files that no earlier checkpoint has
    :raises StateArgumentError: when the package is not installed, or on a value outside of what makes sense
    """

    name: ClassVar[str] = "rocksdb"

    incremental: bool = False
    memtable_bytes: int = DEFAULT_MEMTABLE_BYTES
    cache_bytes: int = DEFAULT_CACHE_BYTES
    l0_trigger: int = 4
    compaction: str = "level"
    auto_compaction: bool = True
    compression: str = "none"

    def __post_init__(self) -> None:
        self._kind()

    def create_keyed_backend(self, environment: BackendEnvironment) -> StoreKeyedStateBackend:
        """An empty backend. RocksDB needs a real directory: if the working directory is not one, the backend makes a
        temporary directory, and deletes it when it is disposed of."""
        if not isinstance(environment.file_system, LocalFileSystem):
            directory = tempfile.mkdtemp(prefix=TEMPORARY_PREFIX)
            environment = replace(environment, file_system=LocalFileSystem(), working_dir=directory)
        return StoreKeyedStateBackend(environment, self._kind(), incremental=self.incremental)

    def _kind(self) -> RocksDBStoreKind:
        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "incremental"}
        return RocksDBStoreKind(RocksDBOptions(**settings))
