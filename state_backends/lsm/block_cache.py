"""Blocks that were read, up to a number of bytes; and files open for reading, up to a number of files.

Both drop the oldest first (FIFO). LRU would move an entry to the end at each hit, which costs every hit more than it
saves.

A block first stays as it is stored, packed: decoding it takes longer than reading it, and most blocks are dropped
before a few of their entries have been asked for. A block that is read again and again is decoded into a ``dict``: a
hit then takes one look-up for the block and one for the key.
"""

from __future__ import annotations

import posixpath
from collections import OrderedDict
from contextlib import suppress

from state_backends.files import FileSystem, RandomAccessFile
from state_backends.lsm.block import BYTES_PER_BLOCK
from state_backends.lsm.sst import Table

Block = dict[bytes, bytes | None]

_READS_BEFORE_DECODING = 4


class BlockCache:
    """Blocks by ``table.base + block number``, each packed or decoded. The block put in last always stays.

    Either kind has half of the space. They are in memory of two kinds, neither of which is given back, so otherwise a
    cache that was full of packed blocks and then of decoded ones would take its space twice.

    :ivar blocks: the decoded blocks; the store's read path reads it directly
    :ivar packed: the other ones, as bytes, the oldest first
    """

    __slots__ = ("_decoded_bytes", "_limit", "_packed_bytes", "_reads", "_sizes", "blocks", "packed")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes // 2
        self.blocks: dict[int, Block] = {}
        self.packed: OrderedDict[int, bytes] = OrderedDict()
        # How often packed blocks were found here.
        self._reads: dict[int, int] = {}
        # The estimated sizes of the decoded blocks, the oldest first.
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._decoded_bytes = 0
        self._packed_bytes = 0

    @property
    def used_bytes(self) -> int:
        """The estimated size of all blocks."""
        return self._packed_bytes + self._decoded_bytes

    def put_packed(self, key: int, data: bytes) -> None:
        """Add a block that is not in the cache."""
        packed = self.packed
        assert key not in packed, key
        used = self._packed_bytes + len(data) + BYTES_PER_BLOCK
        while used > self._limit and packed:
            oldest, dropped = packed.popitem(last=False)
            used -= len(dropped) + BYTES_PER_BLOCK
            self._reads.pop(oldest, None)
        packed[key] = data
        self._packed_bytes = used

    def is_wanted(self, key: int) -> bool:
        """Count a read of a packed block; returns whether it is read so often that decoding it pays."""
        reads = self._reads[key] = self._reads.get(key, 0) + 1
        return reads >= _READS_BEFORE_DECODING

    def put(self, key: int, block: Block, size_bytes: int) -> None:
        """Add a decoded block; it replaces the packed one."""
        self._remove(key)
        sizes = self._sizes
        used = self._decoded_bytes + size_bytes
        while used > self._limit and sizes:
            oldest, dropped = sizes.popitem(last=False)
            used -= dropped
            del self.blocks[oldest]
        sizes[key] = size_bytes
        self.blocks[key] = block
        self._decoded_bytes = used

    def forget(self, table: Table) -> None:
        for key in range(table.base, table.base + len(table.first_keys)):
            self._remove(key)

    def _remove(self, key: int) -> None:
        if key in self.packed:
            self._packed_bytes -= len(self.packed.pop(key)) + BYTES_PER_BLOCK
            self._reads.pop(key, None)
        elif key in self.blocks:
            self._decoded_bytes -= self._sizes.pop(key)
            del self.blocks[key]

    def validate(self) -> None:
        assert not self.blocks.keys() & self.packed.keys()
        assert self.blocks.keys() == self._sizes.keys()
        assert self._reads.keys() <= self.packed.keys()
        assert self._decoded_bytes == sum(self._sizes.values())
        assert self._packed_bytes == sum(len(data) + BYTES_PER_BLOCK for data in self.packed.values())
        assert self._decoded_bytes <= self._limit or len(self.blocks) == 1, self._decoded_bytes
        assert self._packed_bytes <= self._limit or len(self.packed) == 1, self._packed_bytes


class OpenFiles:
    """Files of one directory, opened when needed."""

    __slots__ = ("_closed", "_directory", "_files", "_fs", "_limit")

    def __init__(self, fs: FileSystem, directory: str, limit: int) -> None:
        self._fs = fs
        self._directory = directory
        self._limit = limit
        self._files: dict[str, RandomAccessFile] = {}
        self._closed = False

    def get(self, name: str) -> RandomAccessFile:
        file = self._files.get(name)
        if file is None:
            assert not self._closed, "the store is closed"
            while len(self._files) >= self._limit:
                self.close(next(iter(self._files)))
            file = self._files[name] = self._fs.open_random(posixpath.join(self._directory, name))
        return file

    def close(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None:
            # The file was only read, so a failure to close it loses no data.
            with suppress(OSError):
                file.close()

    def close_all(self) -> None:
        """Close all files, and do not open any more."""
        self._closed = True
        for name in list(self._files):
            self.close(name)
