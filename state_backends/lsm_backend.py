"""The log-structured state backend as a setting of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from state_backends.lsm import LsmOptions, LsmStoreKind
from state_backends.state_backend import BackendEnvironment
from state_backends.store_backend import StoreKeyedStateBackend
from state_backends.ttl_filter import TtlRowFilter

_DEFAULTS = LsmOptions()


@dataclass(frozen=True, slots=True)
class LsmStateBackend:
    """Keyed state in a log-structured store of our own: state may be larger than memory.

    :ivar incremental: whether a checkpoint uploads only files that no earlier one has
    :ivar memtable_bytes: what is held in memory before it becomes a file
    :ivar cache_bytes: decoded blocks that are kept in memory
    :ivar block_bytes: what is read and decoded at once
    :ivar compaction: ``levelled`` or ``universal``, see :class:`state_backends.lsm.LsmOptions`
    :ivar level0_trigger: so many new files start a compaction
    :ivar compression: ``none`` or ``zlib``, of the store's files
    :ivar wal: whether writes go to a log first; a job does not need it, its checkpoints are what lasts
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
        return LsmOptions(
            memtable_bytes=self.memtable_bytes,
            cache_bytes=self.cache_bytes,
            block_bytes=self.block_bytes,
            compaction=self.compaction,
            level0_trigger=self.level0_trigger,
            compression=self.compression,
            wal=self.wal,
            compaction_filter=ttl_filter,
        )
