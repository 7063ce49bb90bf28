"""The settings of a log-structured store, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from state_backends.base import StateArgumentError

CompactionFilter = Callable[[bytes, bytes], bytes | None]
"""Compactions call it with each live (key, value). If it returns the same object, the entry stays; ``None`` drops the
entry; other bytes replace the value. Its answer must not depend on anything that differs between runs. A filter that is
false (``bool()``) when a compaction begins is not asked in it, and entries of one width are merged as arrays. Open
snapshots and scans keep the files that they began with, so they never see its effect."""

COMPACTION_STYLES = ("levelled", "universal", "none")
COMPRESSIONS = ("none", "zlib")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LsmOptions:
    """How a store works. The options are not stored: a directory may be opened with others than it was made with.

    :ivar memtable_bytes: bytes of keys and values held in memory before they become a file of level 0
    :ivar block_bytes: bytes read, checked and decoded at once; a larger entry has a block of its own
    :ivar cache_bytes: estimated size in memory of the blocks kept. Filters and indexes of open files are not
        included: they take about 2 bytes per entry, and 100 bytes per block
    :ivar compaction: ``levelled`` (RocksDB's default: little space, more writing), ``universal`` (fewer bytes written
        and uploaded, more space), ``none`` (files only pile up)
    :ivar level0_trigger: this many files of level 0 (levelled) or sorted runs (universal) start a compaction
    :ivar level1_bytes: how much level 1 may hold, ``None`` = four memtables
    :ivar level_multiplier: how many times more each further level may hold
    :ivar max_levels: the number of levels, level 0 included
    :ivar target_file_bytes: the size at which a compaction begins another file, ``None`` = ``memtable_bytes``
    :ivar size_ratio_percent: universal: a run is merged with the newer runs if it is at most this much larger than all
        of them together
    :ivar max_size_amplification_percent: universal: everything is merged when all runs but the oldest together reach
        this share of the oldest run's size
    :ivar filter_bits: bits per key of the filters; a filter spares reads of files that do not have the key
    :ivar compression: ``none`` or ``zlib``, of new files
    :ivar wal: whether writes go to a log too, so that they survive the end of the process
    :ivar sync: whether ``fsync`` makes all files survive a crash of the machine. Off by default: a keyed backend loses
        its local files with the machine anyway, and its checkpoints keep the state
    :ivar manifest_bytes: a new manifest begins when the present one has grown by this much
    :ivar max_open_files: the largest number of files held open for reading
    :ivar compaction_filter: see :data:`CompactionFilter`; flushes and moves of whole files do not ask it
    """

    memtable_bytes: int = 4 * _MIB
    block_bytes: int = 4096
    cache_bytes: int = 32 * _MIB
    compaction: str = "levelled"
    level0_trigger: int = 4
    level1_bytes: int | None = None
    level_multiplier: int = 10
    max_levels: int = 7
    target_file_bytes: int | None = None
    size_ratio_percent: int = 1
    max_size_amplification_percent: int = 200
    filter_bits: int = 12
    compression: str = "none"
    wal: bool = False
    sync: bool = False
    manifest_bytes: int = _MIB
    max_open_files: int = 256
    compaction_filter: CompactionFilter | None = None

    def __post_init__(self) -> None:
        for name, known in (("compaction", COMPACTION_STYLES), ("compression", COMPRESSIONS)):
            if (value := getattr(self, name)) not in known:
                raise StateArgumentError(f"option {name}={value!r} of the lsm store is none of {', '.join(known)}.")
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise StateArgumentError(f"option {name}={value!r} of the lsm store must be {lowest} or more.")

    @property
    def file_bytes(self) -> int:
        return self.memtable_bytes if self.target_file_bytes is None else self.target_file_bytes

    def level_bytes(self, level: int) -> int:
        assert level >= 1
        first = 4 * self.memtable_bytes if self.level1_bytes is None else self.level1_bytes
        size: int = first * self.level_multiplier ** (level - 1)
        return size


_LOWEST = {
    "memtable_bytes": 1,
    "block_bytes": 1,
    "cache_bytes": 0,
    "level0_trigger": 1,
    "level1_bytes": 1,
    "level_multiplier": 2,
    "max_levels": 2,
    "target_file_bytes": 1,
    "size_ratio_percent": 0,
    "max_size_amplification_percent": 1,
    "filter_bits": 1,
    "manifest_bytes": 1,
    "max_open_files": 1,
}
