"""Range tombstones: the ranges of keys that a memtable or a file deletes in all older sources.

There are no sequence numbers. Within a source (memtable or file) the entries are newer than the ranges, because a range
deletion first removes entries from the memtable. Between sources, the newer one hides the older ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

Range = tuple[bytes, bytes]
"""First key, and the key after the last one."""


class DeletedRanges:
    """Disjoint half-open ranges of keys, ascending; adjacent ones are joined. Immutable."""

    __slots__ = ("_ends", "_starts", "ranges")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        """The union of ranges, given in any order; empty ranges are left out."""
        joined: list[Range] = []
        for start, end in sorted(one for one in ranges if one[0] < one[1]):
            if joined and start <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        self.ranges = tuple(joined)
        self._starts = [start for start, _ in joined]
        self._ends = [end for _, end in joined]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeletedRanges) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __repr__(self) -> str:
        return f"DeletedRanges({list(self.ranges)})"

    def covers(self, key: bytes) -> bool:
        index = bisect_right(self._starts, key) - 1
        return index >= 0 and key < self._ends[index]

    def union(self, other: DeletedRanges) -> DeletedRanges:
        if not other:
            return self
        return DeletedRanges((*self.ranges, *other.ranges)) if self else other

    def clipped(self, first: bytes, end: bytes | None) -> DeletedRanges:
        if not self.ranges:
            return self
        return DeletedRanges(
            (max(start, first), stop if end is None else min(stop, end)) for start, stop in self.ranges
        )

    def uncovered(
        self, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> tuple[list[bytes], list[bytes | None]]:
        """The entries outside all ranges. Entries are given ascending by key."""
        left_keys: list[bytes] = []
        left_values: list[bytes | None] = []
        position = 0
        for start, end in self.ranges:
            begin = bisect_left(keys, start, position)
            left_keys += keys[position:begin]
            left_values += values[position:begin]
            position = bisect_left(keys, end, begin)
            if position == len(keys):
                break
        left_keys += keys[position:]
        left_values += values[position:]
        return left_keys, left_values

    def validate(self) -> None:
        assert all(start < end for start, end in self.ranges), self
        assert all(left[1] < right[0] for left, right in pairwise(self.ranges)), self


NO_RANGES = DeletedRanges()
"""No range at all."""
