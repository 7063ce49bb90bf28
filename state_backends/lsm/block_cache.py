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

    :ivar blocks: the decoded blocks; the store's read path reads it directly
    :ivar packed: the other ones, as bytes
    :ivar used_bytes: the estimated size of all blocks
    """

    __slots__ = ("_limit", "_reads", "_sizes", "blocks", "packed", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.blocks: dict[int, Block] = {}
        self.packed: dict[int, bytes] = {}
        # How often packed blocks were found here.
        self._reads: dict[int, int] = {}
        # The oldest first.
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self.used_bytes = 0

    def put_packed(self, key: int, data: bytes) -> None:
        """Add a block that is not in the cache."""
        self._make_room(key, len(data) + BYTES_PER_BLOCK)
        self.packed[key] = data

    def is_wanted(self, key: int) -> bool:
        """Count a read of a packed block; returns whether it is read so often that decoding it pays."""
        reads = self._reads[key] = self._reads.get(key, 0) + 1
        return reads >= _READS_BEFORE_DECODING

    def put(self, key: int, block: Block, size_bytes: int) -> None:
        """Add a decoded block; it replaces the packed one."""
        self._remove(key)
        self._make_room(key, size_bytes)
        self.blocks[key] = block

    def _make_room(self, key: int, size_bytes: int) -> None:
        """Drop the oldest blocks until a new one fits, and note it as the newest."""
        sizes = self._sizes
        assert key not in sizes, key
        used = self.used_bytes + size_bytes
        while used > self._limit and sizes:
            oldest, size = sizes.popitem(last=False)
            used -= size
            self._drop(oldest)
        sizes[key] = size_bytes
        self.used_bytes = used

    def forget(self, table: Table) -> None:
        for key in range(table.base, table.base + len(table.first_keys)):
            self._remove(key)

    def _remove(self, key: int) -> None:
        size = self._sizes.pop(key, None)
        if size is not None:
            self.used_bytes -= size
            self._drop(key)

    def _drop(self, key: int) -> None:
        if self.packed.pop(key, None) is None:
            del self.blocks[key]
        elif key in self._reads:
            del self._reads[key]

    def validate(self) -> None:
        assert not self.blocks.keys() & self.packed.keys()
        assert self.blocks.keys() | self.packed.keys() == self._sizes.keys()
        assert self._reads.keys() <= self.packed.keys()
        assert self.used_bytes == sum(self._sizes.values())
        assert self.used_bytes <= self._limit or len(self._sizes) == 1, self.used_bytes


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
