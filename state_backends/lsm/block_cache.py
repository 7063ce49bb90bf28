"""Decoded blocks, up to a number of bytes; and files open for reading, up to a number of files.

Both drop the oldest first (FIFO). LRU would move an entry to the end at each hit, which costs every hit more than it
saves. A decoded block is a ``dict``, so a hit takes one look-up for the block and one for the key.
"""

from __future__ import annotations

import posixpath
from collections import deque
from contextlib import suppress

from state_backends.files import FileSystem, RandomAccessFile
from state_backends.lsm.sst import Table

Block = dict[bytes, bytes | None]


class BlockCache:
    """Decoded blocks by ``table.base + block number``. The block put in last always stays.

    :ivar blocks: the store's read path reads it directly
    :ivar used_bytes: the estimated size of all blocks
    """

    __slots__ = ("_limit", "_order", "_sizes", "blocks", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.blocks: dict[int, Block] = {}
        self._sizes: dict[int, int] = {}
        self._order: deque[int] = deque()
        self.used_bytes = 0

    def put(self, key: int, block: Block, size_bytes: int) -> None:
        """Add a block that is not in the cache, and drop the oldest blocks until all fit."""
        assert key not in self.blocks, key
        while self._order and self.used_bytes + size_bytes > self._limit:
            self._remove(self._order.popleft())
        self.blocks[key] = block
        self._sizes[key] = size_bytes
        self._order.append(key)
        self.used_bytes += size_bytes

    def forget(self, table: Table) -> None:
        for key in range(table.base, table.base + len(table.first_keys)):
            self._remove(key)

    def _remove(self, key: int) -> None:
        if self.blocks.pop(key, None) is not None:
            self.used_bytes -= self._sizes.pop(key)

    def validate(self) -> None:
        assert self.blocks.keys() == self._sizes.keys()
        assert self.used_bytes == sum(self._sizes.values())
        assert self.blocks.keys() <= frozenset(self._order)
        assert self.used_bytes <= self._limit or len(self.blocks) == 1, self.used_bytes


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
