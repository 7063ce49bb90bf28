"""Evictors: which records of a window are removed before or after it is computed (Flink: ``Evictor``).

A window with an evictor keeps all its records with their timestamps; evicted records are gone for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engine.elements.errors import check_whole
from operators.basic import Clocks

if TYPE_CHECKING:
    from operators.windows.assigners import Window


class TimestampedValue(NamedTuple):
    """A record of a window (Flink: ``TimestampedValue``)."""

    value: Any
    timestamp_ms: int | None


class Evictor:
    """Base of all evictors. Records come in the order in which they were added; both methods return those to keep."""

    def evict_before(self, elements: list[TimestampedValue], window: Window, ctx: Clocks) -> list[TimestampedValue]:
        """The records that the window is computed from."""
        return elements

    def evict_after(self, elements: list[TimestampedValue], window: Window, ctx: Clocks) -> list[TimestampedValue]:
        """The records that stay in the window once it has been computed."""
        return elements


class _OneSided(Evictor):
    """An evictor with one rule, applied before the window is computed or after."""

    def __init__(self, evict_after: bool) -> None:
        self._after = evict_after

    def evict_before(self, elements: list[TimestampedValue], window: Window, ctx: Clocks) -> list[TimestampedValue]:
        """Apply the rule, unless it is for after."""
        return elements if self._after else self._evict(elements)

    def evict_after(self, elements: list[TimestampedValue], window: Window, ctx: Clocks) -> list[TimestampedValue]:
        """Apply the rule, if it is for after."""
        return self._evict(elements) if self._after else elements

    def _evict(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        raise TypeError(f"{type(self).__name__} has no rule")


class CountEvictor(_OneSided):
    """Keeps the last ``max_count`` records (Flink: ``CountEvictor``)."""

    def __init__(self, max_count: int, evict_after: bool = False) -> None:
        check_whole("max_count of a CountEvictor", max_count, 0)
        super().__init__(evict_after)
        self.max_count = max_count

    @classmethod
    def of(cls, max_count: int, evict_after: bool = False) -> CountEvictor:
        """Keep the last ``max_count`` records, evicting before the window is computed or after."""
        return cls(max_count, evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        return elements[max(0, len(elements) - self.max_count) :]


class TimeEvictor(_OneSided):
    """Keeps the records less than ``window_ms`` older than the newest one (Flink: ``TimeEvictor``).

    Has no effect when the first record has no timestamp.
    """

    def __init__(self, window_ms: int, evict_after: bool = False) -> None:
        check_whole("window_ms of a TimeEvictor", window_ms)
        super().__init__(evict_after)
        self.window_ms = window_ms

    @classmethod
    def of(cls, window_ms: int, evict_after: bool = False) -> TimeEvictor:
        """Keep the last ``window_ms`` of event time, evicting before the window is computed or after."""
        return cls(window_ms, evict_after)

    def _evict(self, elements: list[TimestampedValue]) -> list[TimestampedValue]:
        if not elements or elements[0].timestamp_ms is None:
            return elements
        stamps = [element.timestamp_ms for element in elements if element.timestamp_ms is not None]
        cutoff_ms = max(stamps) - self.window_ms
        return [one for one in elements if one.timestamp_ms is not None and one.timestamp_ms > cutoff_ms]
