"""Windows and their assigners: which windows a record belongs to. Pure arithmetic on event times in ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError


class TimeWindow(NamedTuple):
    """The event times ``start`` (included) to ``end`` (excluded), in ms (Flink: ``TimeWindow``)."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The greatest event time in the window: the watermark that ends it, the timestamp of its result."""
        return self.end - 1


@dataclass(frozen=True, slots=True)
class TumblingEventTimeWindows:
    """Windows of one size, each starting where the one before ends (Flink: ``TumblingEventTimeWindows``).

    Windows start at ``offset_ms`` plus multiples of ``size_ms`` since the epoch.
    """

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if type(self.size_ms) is not int or self.size_ms < 1:
            raise ConfigurationError(f"the size of a window must be an int of at least 1 ms, got {self.size_ms!r}")
        if type(self.offset_ms) is not int or abs(self.offset_ms) >= self.size_ms:
            raise ConfigurationError(
                f"the offset of windows must be an int smaller than their size of {self.size_ms} ms, "
                f"got {self.offset_ms!r}"
            )

    @classmethod
    def of(cls, size_ms: int, offset_ms: int = 0) -> TumblingEventTimeWindows:
        """Windows of ``size_ms``, shifted by ``offset_ms``."""
        return cls(size_ms, offset_ms)

    def starts(self, timestamps: list[int]) -> list[int]:
        """The start of the window of each timestamp. (Floor modulo, so times before the epoch are right too.)"""
        size, offset = self.size_ms, self.offset_ms
        if offset == 0:
            return [timestamp - timestamp % size for timestamp in timestamps]
        return [timestamp - (timestamp - offset) % size for timestamp in timestamps]

    def window(self, start: int) -> TimeWindow:
        """The window that starts at ``start``."""
        return TimeWindow(start, start + self.size_ms)

    def cleanup_time(self, start: int, allowed_lateness_ms: int) -> int:
        """When the window that starts at ``start`` is forgotten, limited to the end of time."""
        return min(start + self.size_ms - 1 + allowed_lateness_ms, MAX_TIMESTAMP_MS)
