"""The log-structured store as a kind of store for keyed state, and as a setting of a job."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from state_backends.api import BackendEnvironment
from state_backends.base import Executor, InlineExecutor
from state_backends.files import FileSystem
from state_backends.lsm.files import SST_SUFFIX
from state_backends.lsm.lsm_store import LsmStore
from state_backends.lsm.store_options import LsmOptions
from state_backends.store import StoreKeyedStateBackend
from state_backends.ttl import TtlRowFilter

_DEFAULTS = LsmOptions()


class LsmStoreKind:
    """The log-structured store as a kind of store."""

    name = "lsm"

    def __init__(self, options: LsmOptions | None = None, executor: Executor | None = None) -> None:
        """``executor``: runs the compactions of all stores opened by this kind; ``None`` = they run at once."""
        self.options = LsmOptions() if options is None else options
        self._executor: Executor = InlineExecutor() if executor is None else executor

    def open(self, file_system: FileSystem, directory: str, unique: str) -> LsmStore:
        return LsmStore(file_system, directory, unique, self.options, self._executor)

    def is_data_file(self, name: str) -> bool:
        return name.endswith(SST_SUFFIX)


@dataclass(frozen=True, slots=True)
class LsmStateBackend:
    """Keyed state in Weir's own log-structured store: state may be larger than memory.

    :ivar incremental: whether a checkpoint uploads only the files that no earlier checkpoint has
    :ivar memtable_bytes: bytes of keys and values held in memory before they become a file
    :ivar cache_bytes: bytes of blocks kept in memory
    :ivar block_bytes: bytes read and decoded at once
    :ivar compaction: ``levelled``, ``universal`` or ``none``, see :class:`state_backends.lsm.LsmOptions`
    :ivar level0_trigger: the number of new files that starts a compaction
    :ivar compression: of the store's files, ``none`` or ``zlib``
    :ivar wal: whether writes go to a log first; a job does not need it, because its checkpoints keep the state
    :raises StateArgumentError: when a setting makes no sense
    """

    name: ClassVar[str] = "lsm"

    incremental: bool = False
    memtable_bytes: int = _DEFAULTS.memtable_bytes
    cache_bytes: int = _DEFAULTS.cache_bytes
    block_bytes: int = _DEFAULTS.block_bytes
    compaction: str = _DEFAULTS.compaction
    level0_trigger: int = _DEFAULTS.level0_trigger
    compression: str = _DEFAULTS.compression
    wal: bool = _DEFAULTS.wal

    def __post_init__(self) -> None:
        self._options(None)

    def create_keyed_backend(self, environment: BackendEnvironment) -> StoreKeyedStateBackend:
        """An empty backend; its store is made with the first row."""
        ttl_filter = TtlRowFilter(environment.now_ms)
        kind = LsmStoreKind(self._options(ttl_filter), environment.executor)
        return StoreKeyedStateBackend(environment, kind, incremental=self.incremental, ttl_filter=ttl_filter)

    def _options(self, ttl_filter: TtlRowFilter | None) -> LsmOptions:
        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "incremental"}
        return LsmOptions(**settings, compaction_filter=ttl_filter)
