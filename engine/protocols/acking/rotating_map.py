"""A map whose entries expire by rotation (Storm: ``RotatingMap``).

Rules. Of B buckets the newest takes every put, wherever the key was before; a rotation drops the oldest with all its
entries and opens a new one. So an entry is dropped at the B-th rotation after its last put: with a rotation every T,
after (B-1)T at the earliest and BT at the latest. Reading an entry does not keep it.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RotatingMap(Generic[K, V]):
    """A map with ``buckets`` (at least 2) buckets; with one, an entry could be dropped at once."""

    def __init__(self, buckets: int) -> None:
        assert buckets >= 2, buckets
        self._buckets: deque[dict[K, V]] = deque({} for _ in range(buckets))
        """Newest first."""

    def put(self, key: K, value: V) -> None:
        """Set an entry; its time restarts."""
        newest, *older = self._buckets
        newest[key] = value
        for bucket in older:
            if key in bucket:
                del bucket[key]
                break

    def get(self, key: K) -> V | None:
        """The value of ``key``, ``None`` when there is none."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket[key]
        return None

    def remove(self, key: K) -> V | None:
        """Take an entry out; ``None`` when there is none."""
        for bucket in self._buckets:
            if key in bucket:
                return bucket.pop(key)
        return None

    def rotate(self) -> dict[K, V]:
        """Drop the oldest bucket; returns its entries, oldest put first."""
        expired = self._buckets.pop()
        self._buckets.appendleft({})
        return expired

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __contains__(self, key: K) -> bool:
        return any(key in bucket for bucket in self._buckets)

    def items(self) -> list[tuple[K, V]]:
        """All entries, those that expire first come first."""
        return [entry for bucket in reversed(self._buckets) for entry in bucket.items()]

    def fingerprint(self) -> tuple[tuple[K, ...], ...]:
        """The keys of each bucket, newest bucket first."""
        return tuple(tuple(bucket) for bucket in self._buckets)
