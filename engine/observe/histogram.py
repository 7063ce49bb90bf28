"""A histogram of times in buckets whose width grows with the time (after Tene: HdrHistogram).

A value below 2,048 has a bucket of its own. Above that, a bucket is at most 1/1,024 of its values wide. So each
percentile is exact to 0.1 %, from ns to years, and a histogram of any number of values stays small.
"""

from __future__ import annotations

from collections.abc import Iterable

_BITS = 11


class Histogram:
    """Counts whole numbers from 0."""

    __slots__ = ("_buckets", "count", "greatest", "total")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._buckets: dict[int, int] = {}
        """The least value of a bucket -> how many are in it."""
        self.count = 0
        self.total = 0
        self.greatest = 0
        for value in values:
            self.add(value)

    def add(self, value: int, times: int = 1) -> None:
        """Count a value, several times perhaps."""
        assert value >= 0, value
        shift = value.bit_length() - _BITS
        least = value >> shift << shift if shift > 0 else value
        self._buckets[least] = self._buckets.get(least, 0) + times
        self.count += times
        self.total += value * times
        self.greatest = max(value, self.greatest)

    def merge(self, other: Histogram) -> None:
        """Count the values of another histogram, too."""
        for least, times in other._buckets.items():
            self._buckets[least] = self._buckets.get(least, 0) + times
        self.count += other.count
        self.total += other.total
        self.greatest = max(self.greatest, other.greatest)

    @property
    def mean(self) -> float | None:
        """Exact; ``None`` without a value."""
        return self.total / self.count if self.count else None

    def percentile(self, percent: float) -> int | None:
        """The least bucket that this part of all values does not exceed, by its greatest value; ``None`` without a
        value."""
        wanted, seen = self.count * percent / 100, 0
        for least in sorted(self._buckets):
            seen += self._buckets[least]
            if seen >= wanted:
                width = 1 << max(0, least.bit_length() - _BITS)
                return min(self.greatest, least + width - 1)
        return None
