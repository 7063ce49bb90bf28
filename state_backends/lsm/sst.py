"""Sorted files of entries: their format, their reader and their writer.

::

    data blocks     each msgpack [keys, values], about 4 KiB, possibly compressed
    filter          64-bit words, little endian
    index           msgpack [first key of each block, offsets of the blocks and of the filter, crc32 of each block,
                    range tombstones, smallest key, largest key, whether the largest is excluded, compression]
    footer          filter offset u64 | index offset u64 | crc32 of the filter u32 | crc32 of the index u32 |
                    entries u64 | tombstones u64 | format version u16 | crc32 of the footer so far u32 | WEIRLSMS

Integers are big endian. The checksums form a chain: blocks - index - footer - manifest. So a changed byte, a missing
byte, and a block or file in the place of another are all noticed. A block is checked whenever it is read from the
file; filter and index are read once and kept.
"""

from __future__ import annotations

import posixpath
import struct
from array import array
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import sub
from typing import TYPE_CHECKING
from zlib import crc32

import msgpack

from state_backends.base import CorruptStateError, binary, check_shape, flag, list_of, np, row, text, whole
from state_backends.codec import check_version
from state_backends.files import TEMPORARY_SUFFIX, FileSystem, RandomAccessFile, WritableFile
from state_backends.lsm.block import Columns, cumulative_bytes, cuts, decompressed, encode_block, unpack_block
from state_backends.lsm.bloom import build_filter, build_filter_at_once, filter_from_bytes, filter_to_bytes
from state_backends.lsm.files import delete_quietly, put_in_place
from state_backends.lsm.fixed_width import FixedColumns, Widths, join, key_hashes, pack_blocks, unpack_blocks
from state_backends.lsm.range_tombstones import NO_RANGES, DeletedRanges, Range
from state_backends.lsm.store_options import COMPRESSIONS, LsmOptions
from state_backends.lsm.version import FileMeta

if TYPE_CHECKING:
    from numpy.typing import NDArray

SST_MAGIC = b"WEIRLSMS"
SST_VERSION = 1

_FIELDS = struct.Struct(">QQIIQQH")
_CRC = struct.Struct(">I")
_INDEX = row(list_of(binary), list_of(whole), list_of(whole), list_of(row(binary, binary)), binary, binary, flag, text)
_FOOTER_BYTES = _FIELDS.size + _CRC.size + len(SST_MAGIC)
_WRITE_BYTES = 1 << 18
_BLOCK_NUMBER_BITS = 32


@dataclass(frozen=True, slots=True)
class _Index:
    """The index of a file."""

    first_keys: list[bytes]
    offsets: list[int]
    crcs: list[int]
    ranges: DeletedRanges
    smallest: bytes
    largest: bytes
    largest_excluded: bool
    compression: str

    def to_bytes(self) -> bytes:
        data: bytes = msgpack.packb([
            self.first_keys, self.offsets, self.crcs, self.ranges.ranges, self.smallest, self.largest,
            self.largest_excluded, self.compression,
        ])  # fmt: skip
        return data

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> _Index:
        """
        :raises ValueError: when its content makes no sense
        :raises CorruptStateError: when the bytes do not have the shape of an index
        """
        plain = msgpack.unpackb(data)
        check_shape(plain, _INDEX, path, "index")
        first_keys, offsets, crcs, ranges, smallest, largest, excluded, compression = plain
        if len(offsets) != len(first_keys) + 1 or len(crcs) != len(first_keys) or compression not in COMPRESSIONS:
            raise ValueError("its parts do not fit each other")
        if any(end < start for start, end in pairwise(offsets)):
            raise ValueError("a block of it ends before it begins")
        ranges = DeletedRanges((start, end) for start, end in ranges)
        return cls(first_keys, offsets, crcs, ranges, smallest, largest, excluded, compression)


class Table:
    """A file of entries that can be read: its filter and index, kept in memory. It holds no open file.

    :ivar meta: the file, as the manifest describes it
    :ivar base: base plus the number of a block is the block's number among the blocks of all files of a store
    :ivar first_keys: the first key of each block
    :ivar words: the filter, ``word_count`` words
    :ivar ranges: range tombstones; they do not delete entries of this file
    :ivar smallest: the first key for which the file has an entry or a tombstone
    :ivar limit: the key after the last one
    """

    __slots__ = (
        "_compression", "_crcs", "_offsets", "base", "first_keys", "limit", "meta", "path", "ranges", "smallest",
        "word_count", "words",
    )  # fmt: skip

    def __init__(self, path: str, meta: FileMeta, index: _Index, words: array[int]) -> None:
        self.path = path
        self.meta = meta
        self.base = meta.number << _BLOCK_NUMBER_BITS
        self.first_keys = index.first_keys
        self._offsets = index.offsets
        self._crcs = index.crcs
        self._compression = index.compression
        self.words = words
        self.word_count = len(words)
        self.ranges = index.ranges
        self.smallest = meta.smallest
        self.limit = meta.limit

    def read(self, file: RandomAccessFile, start: int, stop: int) -> Columns:
        """The entries of the blocks from ``start`` up to ``stop``, read at once and checked against their checksums."""
        offsets = self._offsets
        begin = offsets[start]
        data = file.read_at(begin, offsets[stop] - begin)
        if stop == start + 1:
            return self._decode(data, start)
        all_keys: list[bytes] = []
        all_values: list[bytes | None] = []
        for block in range(start, stop):
            keys, values = self._decode(data[offsets[block] - begin : offsets[block + 1] - begin], block)
            all_keys += keys
            all_values += values
        return all_keys, all_values

    def read_fixed(self, file: RandomAccessFile, start: int, stop: int, widths: Widths) -> FixedColumns:
        """:meth:`read` for entries of one width, in blocks that are not compressed and, but for the last, of one size.

        :raises NotFixedError: when the entries have other widths
        """
        offsets = self._offsets
        begin = offsets[start]
        data = file.read_at(begin, offsets[stop] - begin)
        view = memoryview(data)
        for block in range(start, stop):
            if crc32(view[offsets[block] - begin : offsets[block + 1] - begin]) != self._crcs[block]:
                raise self._damaged(block)
        return unpack_blocks(data, self.block_sizes(start, stop), widths)

    def block_sizes(self, start: int, stop: int) -> list[int]:
        offsets = self._offsets
        return list(map(sub, offsets[start + 1 : stop + 1], offsets[start:stop]))

    def read_packed(self, file: RandomAccessFile, block: int) -> bytes:
        """One block, checked against its checksum and no longer compressed: see :meth:`unpack`."""
        offsets = self._offsets
        begin = offsets[block]
        return self._packed(file.read_at(begin, offsets[block + 1] - begin), block)

    def unpack(self, data: bytes, block: int) -> Columns:
        try:
            return unpack_block(data)
        except ValueError as problem:
            raise self.senseless(block, problem) from problem

    def _decode(self, data: bytes, block: int) -> Columns:
        return self.unpack(self._packed(data, block), block)

    def _packed(self, data: bytes, block: int) -> bytes:
        if crc32(data) != self._crcs[block]:
            raise self._damaged(block)
        if self._compression == "none":
            return data
        try:
            return decompressed(data)
        except ValueError as problem:
            raise self.senseless(block, problem) from problem

    def _damaged(self, block: int) -> CorruptStateError:
        return CorruptStateError(self.path, f"damaged: block {block} does not match its checksum")

    def senseless(self, block: int, problem: ValueError) -> CorruptStateError:
        """The error of a block that has its checksum and still is none."""
        return CorruptStateError(self.path, f"block {block} makes no sense: {problem}")

    def block_bytes(self, block: int) -> int:
        return self._offsets[block + 1] - self._offsets[block]


def open_table(file: RandomAccessFile, path: str, meta: FileMeta) -> Table:
    """Read filter and index of a file. It is refused when it is damaged, has a newer format version, or is not the file
    that the manifest means."""
    if file.size != meta.size_bytes:
        raise CorruptStateError(path, f"truncated or too long: {file.size} bytes, not {meta.size_bytes}")
    footer = file.read_at(meta.size_bytes - _FOOTER_BYTES, _FOOTER_BYTES)
    filter_offset, index_offset, filter_crc, index_crc, entries, tombstones = _read_footer(footer, path)
    if crc32(footer) != meta.checksum or (entries, tombstones) != (meta.entries, meta.tombstones):
        raise CorruptStateError(path, "is another file than the one that the manifest names so")
    tail = file.read_at(filter_offset, meta.size_bytes - _FOOTER_BYTES - filter_offset)
    filter_data, index_data = tail[: index_offset - filter_offset], tail[index_offset - filter_offset :]
    if crc32(filter_data) != filter_crc:
        raise CorruptStateError(path, "damaged: its filter does not match its checksum")
    if crc32(index_data) != index_crc:
        raise CorruptStateError(path, "damaged: its index does not match its checksum")
    try:
        return Table(path, meta, _Index.from_bytes(index_data, path), filter_from_bytes(filter_data))
    except (ValueError, TypeError) as problem:
        raise CorruptStateError(path, f"its index makes no sense: {problem}") from problem


def _read_footer(footer: bytes, path: str) -> tuple[int, int, int, int, int, int]:
    if len(footer) < _FOOTER_BYTES or not footer.endswith(SST_MAGIC):
        raise CorruptStateError(path, f"damaged: it does not end as a {SST_MAGIC.decode()} file")
    (crc,) = _CRC.unpack_from(footer, _FIELDS.size)
    if crc != crc32(footer[: _FIELDS.size]):
        raise CorruptStateError(path, "damaged: its footer does not match its checksum")
    *fields, version = _FIELDS.unpack_from(footer)
    check_version(path, version, SST_VERSION)
    filter_offset, index_offset, filter_crc, index_crc, entries, tombstones = fields
    return filter_offset, index_offset, filter_crc, index_crc, entries, tombstones


class SstWriter:
    """Writes one file, under a temporary name until it is whole."""

    def __init__(self, fs: FileSystem, directory: str, name: str, options: LsmOptions) -> None:
        self._fs = fs
        self._path = posixpath.join(directory, name)
        self._name = name
        self._options = options
        self._file: WritableFile = fs.open_write(self._path + TEMPORARY_SUFFIX)
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._pending: Columns = ([], [])
        self._first_keys: list[bytes] = []
        self._offsets: list[int] = [0]
        self._crcs: list[int] = []
        self._hashes: list[list[int]] = []
        # Entries that came as matrices: those that are in no block yet, and the hashes of all keys.
        self._pending_fixed: FixedColumns | None = None
        self._fixed_hashes: list[NDArray[np.uint32]] = []
        self._entries = 0
        self._tombstones = 0
        self._last_key = b""

    @property
    def written_bytes(self) -> int:
        return self._offsets[-1]

    def add(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """Append at least one entry. The keys must be greater than all keys before."""
        self._hashes.append(list(map(crc32, keys)))
        self._entries += len(keys)
        self._last_key = keys[-1]
        pending_keys, pending_values = self._pending
        if pending_keys:
            keys, values = pending_keys + keys, pending_values + values
        starts = cuts(cumulative_bytes(keys, values), self._options.block_bytes)
        for start, stop in pairwise(starts):
            self._add_block(keys[start:stop], values[start:stop])
        # The last block may still grow.
        self._pending = (keys[starts[-1] :], values[starts[-1] :])

    def add_fixed(self, columns: FixedColumns) -> None:
        """:meth:`add` for entries of one width, into blocks that are not compressed. A file gets all its entries by
        one of the two."""
        self._fixed_hashes.append(key_hashes(columns.keys))
        self._entries += len(columns.keys)
        self._last_key = columns.keys[-1].tobytes()
        columns = join(self._pending_fixed, columns)
        per_block = max(1, self._options.block_bytes // (columns.keys.shape[1] + columns.values.shape[1]))
        # The last block may still grow.
        whole = (len(columns.keys) - 1) // per_block * per_block
        if whole:
            self._add_fixed_blocks(columns.sliced(0, whole), per_block)
        self._pending_fixed = columns.sliced(whole)

    def _add_fixed_blocks(self, columns: FixedColumns, per_block: int) -> None:
        data, size, first_keys = pack_blocks(columns, per_block)
        view = memoryview(data)
        begin = self._offsets[-1]
        self._first_keys += first_keys
        self._offsets += range(begin + size, begin + len(data) + 1, size)
        self._crcs += [crc32(view[start : start + size]) for start in range(0, len(data), size)]
        self._write(data)

    def _add_block(self, keys: list[bytes], values: list[bytes | None]) -> None:
        data = encode_block(keys, values, self._options.compression)
        self._first_keys.append(keys[0])
        self._offsets.append(self._offsets[-1] + len(data))
        self._crcs.append(crc32(data))
        if not all(values):
            self._tombstones += sum(value is None for value in values)
        self._write(data)

    def _write(self, data: bytes) -> None:
        self._unwritten.append(data)
        self._unwritten_bytes += len(data)
        if self._unwritten_bytes >= _WRITE_BYTES:
            self._write_out()

    def _write_out(self) -> None:
        self._file.write(b"".join(self._unwritten))
        self._unwritten = []
        self._unwritten_bytes = 0

    def finish(self, ranges: DeletedRanges = NO_RANGES) -> Table:
        """Write the rest and give the file its name. The file must have at least one entry or range tombstone."""
        if self._pending[0]:
            self._add_block(*self._pending)
            self._pending = ([], [])
        if self._pending_fixed is not None:
            self._add_fixed_blocks(self._pending_fixed, len(self._pending_fixed.keys))
            self._pending_fixed = None
        words = self._filter()
        index = self._index(ranges)
        filter_data, index_data = filter_to_bytes(words), index.to_bytes()
        filter_offset = self._offsets[-1]
        fields = _FIELDS.pack(
            filter_offset, filter_offset + len(filter_data), crc32(filter_data), crc32(index_data),
            self._entries, self._tombstones, SST_VERSION,
        )  # fmt: skip
        footer = b"".join((fields, _CRC.pack(crc32(fields)), SST_MAGIC))
        for data in (filter_data, index_data, footer):
            self._write(data)
        self._write_out()
        if self._options.sync:
            self._file.fsync()
        self._file.close()
        put_in_place(self._fs, self._path + TEMPORARY_SUFFIX, self._path, sync=self._options.sync)
        size = filter_offset + len(filter_data) + len(index_data) + len(footer)
        meta = FileMeta(
            self._name, size, crc32(footer), self._entries, self._tombstones, len(ranges.ranges),
            index.smallest, index.largest, index.largest_excluded,
        )  # fmt: skip
        return Table(self._path, meta, index, words)

    def _filter(self) -> array[int]:
        bits = self._options.filter_bits
        if self._fixed_hashes:
            return build_filter_at_once(np.concatenate(self._fixed_hashes), bits)
        return build_filter(chain.from_iterable(self._hashes), self._entries, bits)

    def _index(self, ranges: DeletedRanges) -> _Index:
        bounds: list[Range] = list(ranges.ranges[:1] + ranges.ranges[-1:])
        smallest = [start for start, _ in bounds[:1]] + self._first_keys[:1]
        excluded = bool(bounds) and (not self._entries or bounds[-1][1] > self._last_key)
        largest = bounds[-1][1] if excluded else self._last_key
        return _Index(
            self._first_keys, self._offsets, self._crcs, ranges, min(smallest), largest, excluded,
            self._options.compression,
        )  # fmt: skip

    def abandon(self) -> None:
        self._file.close()
        for path in (self._path + TEMPORARY_SUFFIX, self._path):
            delete_quietly(self._fs, path)
