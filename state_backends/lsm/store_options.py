"""The settings of a log-structured store, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from state_backends.base import StateArgumentError

CompactionFilter = Callable[[bytes, bytes], bytes | None]
"""Asked by compactions about each live (key, value): the same object keeps it, ``None`` drops the entry, other bytes
replace the value. Its answer must depend on nothing that differs between runs. Open snapshots and scans keep the files
that they began with, so they never see what it did."""

COMPACTION_STYLES = ("levelled", "universal", "none")
COMPRESSIONS = ("none", "zlib")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LsmOptions:
    """How a store is built. They are not stored: a directory may be opened with other options than it was made with.

    :ivar memtable_bytes: keys and values held in memory before they become a file of level 0
    :ivar block_bytes: what is read, checked and decoded at once; an entry larger than that has a block of its own
    :ivar cache_bytes: decoded blocks kept, by their estimated size in memory; filters and indexes of open files come on
        top: about 2 bytes per entry, and 100 bytes per block
    :ivar compaction: ``levelled`` (RocksDB's default: little space, more writing), ``universal`` (fewer bytes written
        and uploaded, more space), ``none`` (files only pile up)
    :ivar level0_trigger: so many files of level 0, or sorted runs, start a compaction
    :ivar level1_bytes: how much level 1 may hold, ``None`` = four memtables
    :ivar level_multiplier: how much more each further level may hold
    :ivar max_levels: level 0 included
    :ivar target_file_bytes: where compactions begin another file, ``None`` = ``memtable_bytes``
    :ivar size_ratio_percent: universal: a run is merged with the newer ones if it is at most so much larger than they
        are together
    :ivar max_size_amplification_percent: universal: everything is merged when all runs but the oldest have so much of
        its size
    :ivar filter_bits: bits per key of the filters that spare reads of files without the key
    :ivar compression: of new files
    :ivar wal: whether writes go to a log too, so that they survive the process
    :ivar sync: whether everything is also made to survive the machine, by ``fsync``. Off by default, because the local
        files of a keyed backend are lost with their machine anyway: checkpoints are what lasts
    :ivar manifest_bytes: the log of changes is begun anew when it has grown by so much
    :ivar max_open_files: files held open for reading
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
