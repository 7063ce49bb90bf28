"""The memtable: entries that were written and are in no file yet; and scans of a store and its snapshots, which read a
memtable and the files of a pinned version.

It is a plain ``dict``, because a sorted container makes each write five times dearer; keys are sorted when it becomes
a file. The first scan before that makes a sorted index of the keys, and later scans add the new keys to it. New keys
stand at the end of a ``dict``, so a scan finds them without looking at the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import cast

from sortedcontainers import SortedList

from state_backends.lsm.block import Columns
from state_backends.lsm.file_set import FileSet, Pin
from state_backends.lsm.merge import MergeSource, merged
from state_backends.lsm.range_tombstones import NO_RANGES, DeletedRanges


class Memtable:
    """Entries by key; ``None`` is a tombstone.

    :ivar entries: writers add and overwrite entries; only :meth:`delete_range` removes a key from it
    :ivar ranges: the ranges whose older entries, in the files, are deleted
    """

    __slots__ = ("_index", "entries", "ranges")

    def __init__(self, entries: dict[bytes, bytes | None] | None = None, ranges: DeletedRanges = NO_RANGES) -> None:
        self.entries: dict[bytes, bytes | None] = {} if entries is None else entries
        self.ranges = ranges
        self._index: SortedList | None = None

    def __bool__(self) -> bool:
        return bool(self.entries or self.ranges)

    def copy(self) -> Memtable:
        """The same content, for further writes; this one stays as it is."""
        return Memtable(self.entries.copy(), self.ranges)

    def size_bytes(self) -> int:
        lengths = sum(map(len, self.entries)) + sum(map(len, filter(None, self.entries.values())))
        return lengths + sum(len(first) + len(end) for first, end in self.ranges.ranges)

    def delete_range(self, first: bytes, end: bytes) -> None:
        """Remove the entries of a range, and note that older entries of it are deleted."""
        keys = self._keys(first, end)
        for key in keys:
            del self.entries[key]
        index = self._index
        if index is not None:
            for key in keys:
                index.remove(key)
        self.ranges = self.ranges.union(DeletedRanges([(first, end)]))

    def columns(self) -> Columns:
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
        """Assert that the index, if there is one, holds only keys that are there."""
        self.ranges.validate()
        assert self._index is None or all(key in self.entries for key in self._index)


class LsmSnapshot:
    """The content of a store at one moment."""

    def __init__(self, files: FileSet, pin: Pin, memtable: Memtable) -> None:
        self._files = files
        self._pin = pin
        self._memtable = memtable
        self._is_released = False

    def scan(self, first: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        assert not self._is_released, "the snapshot is released"
        return rows(self._files, self._files.pin_again(self._pin), self._memtable, first, end)

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._files.unpin(self._pin)
            self._files.delete_obsolete()


def rows(
    files: FileSet, pin: Pin, memtable: Memtable, first: bytes, end: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a range in a memtable and in pinned files; the pin is released after the last one."""
    columns = memtable.columns_in(first, end)
    sources = [MergeSource(iter([columns] if columns[0] else ()), memtable.ranges)]
    generated = _generate(files, pin, [*sources, *files.sources(pin.view, first, end)])
    # A generator that has begun always releases the pin when it ends, even when it is not read to its end.
    next(generated)
    return generated


def _generate(files: FileSet, pin: Pin, sources: Sequence[MergeSource]) -> Iterator[tuple[bytes, bytes]]:
    try:
        yield (b"", b"")
        for keys, values in merged(sources):
            if all(values):
                # The usual case: no tombstones and no empty values, so no pair needs a test.
                yield from zip(keys, cast("list[bytes]", values), strict=True)
                continue
            for key, value in zip(keys, values, strict=True):
                if value is not None:
                    yield key, value
    finally:
        files.unpin(pin)
