"""The real RocksDB as an ordered store, through the package ``rocksdict`` (extra ``rocksdb``).

Properties:

* It needs a real directory and does not use the file-system port there: only :class:`LocalFileSystem` works.
* It flushes and compacts in its own threads. So its files and their bytes differ between runs; the content does not.
* The write-ahead log is off: durability comes from checkpoints, as on Flink.
* Its data files are called ``000012.sst``. A number is never used twice in one store, nor in a store opened from a
  checkpoint of it. But two stores opened from the same checkpoint use the same numbers for different files. That is
  harmless while local names are not compared across stores: checkpoint storage knows files by their paths.
* ``items()`` of the package ends silently at a damaged block, so every scan is followed by a check of the status.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from state_backends.base import CorruptStateError, StateArgumentError
from state_backends.files import FileSystem, LocalFileSystem
from state_backends.rows import OrderedStore, StoreSnapshot

if TYPE_CHECKING:
    from types import ModuleType

DATA_FILE_SUFFIX = ".sst"
DEFAULT_MEMTABLE_BYTES = 64 << 20
"""RocksDB's own default, and Flink's."""
DEFAULT_CACHE_BYTES = 8 << 20
"""Flink's default; RocksDB's own is 32 MiB."""

_BLOCK_BYTES = 4096
_BLOOM_BITS_PER_KEY = 10.0
_LEVEL_1_MEMTABLES = 4
_ROWS_PER_INGESTED_FILE = 1 << 19

COMPACTION_STYLES = ("level", "universal")
COMPRESSIONS = ("none", "snappy", "lz4", "zstd")


def rocksdict() -> ModuleType:
    """The package, imported where it is used.

    :raises StateArgumentError: when it is not installed
    """
    try:
        import rocksdict as package
    except ImportError as problem:
        raise StateArgumentError(
            "state backend 'rocksdb' needs the package rocksdict, which is not installed. Install the extra "
            "(pip install 'weirstream[rocksdb]'), or choose the backend 'lsm', which needs nothing."
        ) from problem
    module: ModuleType = package
    return module


@dataclass(frozen=True, slots=True)
class RocksDBOptions:
    """How a RocksDB store works.

    :ivar memtable_bytes: how much is gathered in memory before it becomes a file; also about the size of a file
    :ivar cache_bytes: of the cache of blocks that were read
    :ivar l0_trigger: that many files of level 0 are merged into level 1
    :ivar compaction: ``level`` or ``universal``
    :ivar auto_compaction: whether files are merged at all; without, space and reads grow
    :ivar compression: of blocks
    :raises StateArgumentError: on a value outside of what makes sense
    """

    memtable_bytes: int = DEFAULT_MEMTABLE_BYTES
    cache_bytes: int = DEFAULT_CACHE_BYTES
    l0_trigger: int = 4
    compaction: str = "level"
    auto_compaction: bool = True
    compression: str = "none"

    def __post_init__(self) -> None:
        for name, least in (("memtable_bytes", 1 << 16), ("cache_bytes", 0), ("l0_trigger", 1)):
            value = getattr(self, name)
            if value < least:
                raise StateArgumentError(f"rocksdb: {name} must be at least {least}, not {value}.")
        for name, known in (("compaction", COMPACTION_STYLES), ("compression", COMPRESSIONS)):
            value = getattr(self, name)
            if value not in known:
                raise StateArgumentError(f"rocksdb: {name} {value!r} is none of {', '.join(known)}.")

    def native(self, package: ModuleType) -> Any:
        options = package.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(self.memtable_bytes)
        options.set_target_file_size_base(self.memtable_bytes)
        options.set_max_bytes_for_level_base(self.memtable_bytes * _LEVEL_1_MEMTABLES)
        options.set_level_zero_file_num_compaction_trigger(self.l0_trigger)
        options.set_disable_auto_compactions(not self.auto_compaction)
        options.set_compaction_style(getattr(package.DBCompactionStyle, self.compaction)())
        options.set_compression_type(getattr(package.DBCompressionType, self.compression)())
        # Its log is for people who tune it; one file is enough for them.
        options.set_keep_log_file_num(1)
        table = package.BlockBasedOptions()
        table.set_block_size(_BLOCK_BYTES)
        table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
        if self.cache_bytes:
            table.set_block_cache(package.Cache(self.cache_bytes))
        else:
            table.disable_cache()
        options.set_block_based_table_factory(table)
        return options


class RocksDBStoreKind:
    """RocksDB as a kind of store."""

    name = "rocksdb"

    def __init__(self, options: RocksDBOptions | None = None) -> None:
        """:raises StateArgumentError: when the package is not installed"""
        self.options = options or RocksDBOptions()
        self._package = rocksdict()

    def open(self, file_system: FileSystem, directory: str, unique: str) -> OrderedStore:
        """The store in a directory, with the files that are there, or a new one.

        :param unique: not used: RocksDB names its files itself (see the top of this module)
        :raises StateArgumentError: when the file system is not the real one
        :raises CorruptStateError: when the files there are damaged
        :raises OSError: when they cannot be read or made
        """
        if not isinstance(file_system, LocalFileSystem):
            raise StateArgumentError(
                f"{directory}: RocksDB works on real directories only, not on a {type(file_system).__name__}."
            )
        file_system.make_dirs(directory)
        return RocksDBStore(self._package, file_system, directory, self.options)

    def is_data_file(self, name: str) -> bool:
        return name.endswith(DATA_FILE_SUFFIX)


class RocksDBStore:
    """One open RocksDB, see :class:`state_backends.rows.OrderedStore`."""

    def __init__(
        self, package: ModuleType, file_system: LocalFileSystem, directory: str, options: RocksDBOptions
    ) -> None:
        self._package = package
        self._file_system = file_system
        self._directory = directory
        self._options = options.native(package)
        self._ingested = 0
        self._is_open = True
        self._write_options = package.WriteOptions()
        self._write_options.disable_wal = True
        try:
            self._db = package.Rdict(directory, self._options)
        except Exception as problem:
            raise _translated(problem, directory) from problem
        self._db.set_write_options(self._write_options)

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            values: list[bytes | None] = self._db.get(list(keys))
        except Exception as problem:
            raise _translated(problem, self._directory) from problem
        return values

    def put(self, key: bytes, value: bytes) -> None:
        try:
            self._db.put(key, value)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem

    def delete(self, key: bytes) -> None:
        try:
            self._db.delete(key)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem

    def write_many(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Store all entries, or none of them; ``None`` removes."""
        batch = self._package.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in entries.items():
            if value is None:
                delete(key)
            else:
                put(key, value)
        try:
            self._db.write(batch, self._write_options)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem

    def delete_range(self, first: bytes, end: bytes) -> None:
        if first >= end:
            return
        try:
            self._db.delete_range(first, end)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        return self.snapshot().scan(first, end)

    def snapshot(self) -> StoreSnapshot:
        try:
            return _RocksDBSnapshot(self._db.iter(), self._directory)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem

    def ingest(self, entries: Iterator[tuple[bytes, bytes]]) -> None:
        while (row := next(entries, None)) is not None:
            path = posixpath.join(self._directory, f"ingest-{self._ingested:06}.inprogress")
            self._ingested += 1
            try:
                self._write_external(path, chain([row], islice(entries, _ROWS_PER_INGESTED_FILE - 1)))
            finally:
                if self._file_system.exists(path):
                    self._file_system.delete(path)

    def _write_external(self, path: str, rows: Iterator[tuple[bytes, bytes]]) -> None:
        writer = self._package.SstFileWriter(self._options)
        moved = self._package.IngestExternalFileOptions()
        moved.set_move_files(True)
        try:
            writer.open(path)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem
        # What the rows raise is not RocksDB's and goes through as it is.
        for key, value in rows:
            writer[key] = value
        try:
            writer.finish()
            self._db.ingest_external_file([path], moved)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem

    def checkpoint(self, directory: str) -> tuple[str, ...]:
        try:
            self._package.Checkpoint(self._db).create_checkpoint(directory)
        except Exception as problem:
            raise _translated(problem, directory) from problem
        return tuple(self._file_system.list_dir(directory))

    def compact_all(self) -> None:
        """Merge all files into the last level, now."""
        try:
            self._db.flush()
            self._db.compact_range(None, None)
        except Exception as problem:
            raise _translated(problem, self._directory) from problem

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._db.close()


class _RocksDBSnapshot:
    """The content at one moment.

    One iterator pins it: RocksDB's iterators do. The package's own snapshots pin what single gets read, and not what is
    iterated: each scan of one sees what the database holds by then (rocksdict 0.3.29).
    """

    def __init__(self, iterator: Any, directory: str) -> None:
        self._iterator = iterator
        self._directory = directory
        self._at_work: object = None
        """The scan that has moved the iterator last: scans may take turns."""

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        assert self._iterator is not None, "a released snapshot was read"
        return self._scan(self._iterator, first, end)

    def _scan(self, iterator: Any, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        me, key = object(), None
        while True:
            try:
                if self._at_work is not me:
                    self._at_work = me
                    iterator.seek(first if key is None else key)
                if key is not None:
                    iterator.next()
                if not iterator.valid():
                    # It ends in the same way after the last row and before a damaged block.
                    iterator.status()
                    return
                key = iterator.key()
                if end is not None and key >= end:
                    return
                row = key, iterator.value()
            except Exception as problem:
                raise _translated(problem, self._directory) from problem
            yield row

    def release(self) -> None:
        self._iterator = None


def _translated(problem: Exception, directory: str) -> Exception:
    """The error of the port for an error of the package, which has one type for all errors and only a text."""
    words = str(problem)
    if words.startswith("Corruption"):
        return CorruptStateError(directory, f"RocksDB finds it damaged ({words})")
    if words.startswith("IO error"):
        code = errno.ENOSPC if "No space left" in words else errno.EIO
        return OSError(code, f"RocksDB: {words}", directory)
    return problem
