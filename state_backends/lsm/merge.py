"""Merges sorted sources, piece by piece, for scans and compactions.

Each source has a present piece. A round takes from every source the entries up to the smallest last key of these
pieces. It puts them into one ``dict``, older sources first, and sorts its keys; for a few runs that is cheap. So each
round uses up at least one piece, memory holds one piece per source, and keys of a single source pass unchanged.
``fixed_width`` does the same with arrays, where entries allow it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from state_backends.lsm.block import Columns
from state_backends.lsm.range_tombstones import NO_RANGES, DeletedRanges
from state_backends.lsm.sst import Table

ReadBlocks = Callable[[Table, int, int], Columns]
"""Reads the entries of some blocks of a file: (file, first block, the block after the last)."""

BLOCKS_AT_ONCE = 16
"""The number of blocks that a long scan or a compaction reads in one piece."""


class MergeSource(NamedTuple):
    """A run of entries, in ascending pieces that are not empty, and the ranges that it deletes in older sources."""

    pieces: Iterator[Columns]
    ranges: DeletedRanges = NO_RANGES


class _Head:
    """The present piece of a source, and the position up to which it is used."""

    __slots__ = ("_hidden", "_pieces", "keys", "last", "position", "values")

    def __init__(self, pieces: Iterator[Columns], hidden: DeletedRanges) -> None:
        self._pieces = pieces
        self._hidden = hidden
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.position = 0
        self.last = b""

    def advance(self) -> bool:
        """Go to the next piece, if there is one."""
        for keys, values in self._pieces:
            if self._hidden:
                keys, values = self._hidden.uncovered(keys, values)
                if not keys:
                    continue
            self.keys, self.values, self.position, self.last = keys, values, 0, keys[-1]
            return True
        return False

    def take(self, end: int) -> Columns:
        """The entries from the present position up to an index."""
        start, self.position = self.position, end
        if start == 0 and end == len(self.keys):
            return self.keys, self.values
        return self.keys[start:end], self.values[start:end]


def merged(sources: Iterable[MergeSource]) -> Iterator[Columns]:
    """The entries of some sources, given newest first: for each key its newest entry, tombstones included."""
    heads = []
    hidden = NO_RANGES
    for pieces, ranges in sources:
        head = _Head(pieces, hidden)
        if head.advance():
            heads.append(head)
        hidden = hidden.union(ranges)
    while len(heads) > 1:
        yield _round(heads)
        heads = [head for head in heads if head.position < len(head.keys) or head.advance()]
    for head in heads:
        yield head.take(len(head.keys))
        while head.advance():
            yield head.keys, head.values


def _round(heads: Sequence[_Head]) -> Columns:
    bound = min([head.last for head in heads])
    parts: list[Columns] = []
    for head in heads:
        keys = head.keys
        if head.last == bound:
            parts.append(head.take(len(keys)))
        elif keys[head.position] <= bound:
            parts.append(head.take(bisect_right(keys, bound, head.position)))
    if len(parts) == 1:
        return parts[0]
    overlay: dict[bytes, bytes | None] = {}
    for keys, values in reversed(parts):
        overlay.update(zip(keys, values, strict=True))
    ascending = sorted(overlay)
    return ascending, list(map(overlay.__getitem__, ascending))


def pieces_of_run(
    read: ReadBlocks, tables: Iterable[Table], first: bytes, end: bytes | None, at_once: int
) -> Iterator[Columns]:
    """The entries with ``first <= key < end`` of ascending and disjoint files.

    :param at_once: the number of blocks in the first piece; later pieces have more, up to ``BLOCKS_AT_ONCE``
    """
    for table in tables:
        first_keys = table.first_keys
        index = max(0, bisect_right(first_keys, first) - 1)
        stop = len(first_keys) if end is None else bisect_left(first_keys, end)
        while index < stop:
            until = min(stop, index + at_once)
            keys, values = read(table, index, until)
            index = until
            at_once = min(4 * at_once, BLOCKS_AT_ONCE)
            if keys[0] < first or (end is not None and keys[-1] >= end):
                begin = bisect_left(keys, first)
                finish = len(keys) if end is None else bisect_left(keys, end)
                keys, values = keys[begin:finish], values[begin:finish]
            if keys:
                yield keys, values


def ranges_of(tables: Iterable[Table]) -> DeletedRanges:
    ranges = NO_RANGES
    for table in tables:
        ranges = ranges.union(table.ranges)
    return ranges
