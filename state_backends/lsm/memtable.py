"""The memtable: what was written and is in no file yet.

It is a plain ``dict``, because a sorted container makes each write five times dearer; keys are sorted when it becomes
a file. Whoever scans it before gets a sorted index of the keys, made at the first scan and kept up to date from then
on: new keys stand at the end of a ``dict``, so they are found without looking at the others.
"""

from __future__ import annotations

from itertools import islice

from sortedcontainers import SortedList

from state_backends.lsm.block import Columns
from state_backends.lsm.range_tombstones import NO_RANGES, DeletedRanges


class Memtable:
    """Entries by key; ``None`` is a tombstone.

    :ivar entries: writers put into it; they never remove a key otherwise than by :meth:`delete_range`
    :ivar ranges: what is deleted in everything older
    """

    __slots__ = ("_index", "entries", "ranges")

    def __init__(self, entries: dict[bytes, bytes | None] | None = None, ranges: DeletedRanges = NO_RANGES) -> None:
        self.entries: dict[bytes, bytes | None] = {} if entries is None else entries
        self.ranges = ranges
        self._index: SortedList | None = None

    def __bool__(self) -> bool:
        return bool(self.entries or self.ranges)

    def copy(self) -> Memtable:
        """The same content, to go on with while this one stays as it is."""
        return Memtable(self.entries.copy(), self.ranges)

    def size_bytes(self) -> int:
        """The bytes of all keys and values."""
        lengths = sum(map(len, self.entries)) + sum(map(len, filter(None, self.entries.values())))
        return lengths + sum(len(first) + len(end) for first, end in self.ranges.ranges)

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Forget the entries of a range, and note that older ones are deleted."""
        keys = self._keys(first, end)
        for key in keys:
            del self.entries[key]
        index = self._index
        if index is not None:
            for key in keys:
                index.remove(key)
        self.ranges = self.ranges.union(DeletedRanges([(first, end)]))

    def columns(self) -> Columns:
        """All entries, sorted by key."""
        keys = sorted(self.entries)
        return keys, list(map(self.entries.__getitem__, keys))

    def columns_in(self, first: bytes, end: bytes | None) -> Columns:
        """The entries with ``first <= key < end``, sorted by key."""
        keys = self._keys(first, end)
        return keys, list(map(self.entries.__getitem__, keys))

    def _keys(self, first: bytes, end: bytes | None) -> list[bytes]:
        if not self.entries:
            return []
        index = self._index
        if index is None:
            index = self._index = SortedList(self.entries)
        elif (new := len(self.entries) - len(index)) > 0:
            index.update(list(islice(reversed(self.entries), new)))
        return list(index.irange(first, end, inclusive=(True, False)))

    def validate(self) -> None:
        """Assert that the index, if there is one, holds the keys that were there when it was last used."""
        self.ranges.validate()
        assert self._index is None or all(key in self.entries for key in self._index)
