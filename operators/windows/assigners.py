"""Windows and their assigners: which windows a record belongs to. Pure arithmetic on times in ms.

Event-time windows are assigned by the record's timestamp and end with the watermark; processing-time windows are
assigned by the virtual clock and end with it. Windows start at ``offset_ms`` plus multiples of their slide since the
epoch. Sessions have no fixed place: each record opens a window of one gap, and windows that touch become one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError, check_whole
from operators.windows.triggers import (
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    Trigger,
)


class TimeWindow(NamedTuple):
    """The times ``start`` (included) to ``end`` (excluded), in ms (Flink: ``TimeWindow``)."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The greatest time in the window: the watermark that ends it, the timestamp of its result."""
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the windows overlap or touch; the end of one may be the start of the other."""
        return self.start <= other.end and other.start <= self.end

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The least window that holds both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


class GlobalWindow:
    """The one window of ``GlobalWindows``, which never ends by itself (Flink: ``GlobalWindow``)."""

    __slots__ = ()

    max_timestamp: ClassVar[int] = MAX_TIMESTAMP_MS
    """The end of time; the timestamp of its results."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "GlobalWindow()"


Window = TimeWindow | GlobalWindow


class WindowAssigner:
    """Says which windows a record belongs to (Flink: ``WindowAssigner``).

    Derive your own as a frozen dataclass from this class. It must be pure.

    :cvar is_event_time: whether windows are cleaned up by the watermark; by the virtual clock otherwise
    :cvar merges: whether windows that touch become one (Flink: ``MergingWindowAssigner``)
    :cvar needs_timestamps: whether records without timestamps are refused
    """

    __slots__ = ()

    is_event_time: ClassVar[bool] = True
    merges: ClassVar[bool] = False
    needs_timestamps: ClassVar[bool] = True

    def assign(self, value: Any, timestamp_ms: int | None, now_ms: int) -> Sequence[Window]:
        """The windows of a record, at most a few; none drops it."""
        raise TypeError(f"{type(self).__name__} does not define assign(value, timestamp_ms, now_ms)")

    def default_trigger(self) -> Trigger:
        """The trigger of the windows when none is given."""
        return EventTimeTrigger() if self.is_event_time else ProcessingTimeTrigger()

    def spec(self) -> str:
        """The part that must not change while there is state: the class, its numbers and texts."""
        shown = [(name, getattr(self, name)) for name in getattr(self, "__dataclass_fields__", ())]
        plain = ", ".join(f"{name}={value!r}" for name, value in shown if isinstance(value, (int, str)))
        return f"{type(self).__name__}({plain})"

    def namespace_of(self, window: Window) -> Any:
        """The plain value that stands for a window in state."""
        return tuple(window)  # type: ignore[arg-type]

    def window_of(self, namespace: Any) -> Window:
        """The window that ``namespace_of`` described."""
        return TimeWindow(*namespace)


def _check_offset(offset_ms: object, limit_ms: int, what: str) -> None:
    if type(offset_ms) is not int or abs(offset_ms) >= limit_ms:
        raise ConfigurationError(
            f"the offset of windows must be an int smaller than their {what} of {limit_ms} ms, got {offset_ms!r}"
        )


@dataclass(frozen=True, slots=True)
class _Tumbling(WindowAssigner):
    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        check_whole("size_ms of windows", self.size_ms)
        _check_offset(self.offset_ms, self.size_ms, "size")

    @classmethod
    def of(cls, size_ms: int, offset_ms: int = 0) -> Self:
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

    def assign(self, value: Any, timestamp_ms: int | None, now_ms: int) -> Sequence[Window]:
        time_ms = timestamp_ms if self.is_event_time else now_ms
        assert time_ms is not None
        start = time_ms - (time_ms - self.offset_ms) % self.size_ms
        return (TimeWindow(start, start + self.size_ms),)


@dataclass(frozen=True, slots=True)
class TumblingEventTimeWindows(_Tumbling):
    """Windows of one size, each starting where the one before ends (Flink: ``TumblingEventTimeWindows``)."""


@dataclass(frozen=True, slots=True)
class TumblingProcessingTimeWindows(_Tumbling):
    """The same by the virtual clock (Flink: ``TumblingProcessingTimeWindows``)."""

    is_event_time: ClassVar[bool] = False
    needs_timestamps: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class _Sliding(WindowAssigner):
    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        check_whole("size_ms of windows", self.size_ms)
        check_whole("slide_ms of windows", self.slide_ms)
        _check_offset(self.offset_ms, self.slide_ms, "slide")

    @classmethod
    def of(cls, size_ms: int, slide_ms: int, offset_ms: int = 0) -> Self:
        """Windows of ``size_ms``, one every ``slide_ms``, shifted by ``offset_ms``.

        A record belongs to all windows that contain its time: to several if they overlap, to none in a gap.
        """
        return cls(size_ms, slide_ms, offset_ms)

    def starts_of(self, time_ms: int) -> range:
        """The starts of the windows that hold ``time_ms``, latest first."""
        last = time_ms - (time_ms - self.offset_ms) % self.slide_ms
        return range(last, time_ms - self.size_ms, -self.slide_ms)

    def window(self, start: int) -> TimeWindow:
        """The window that starts at ``start``."""
        return TimeWindow(start, start + self.size_ms)

    def cleanup_time(self, start: int, allowed_lateness_ms: int) -> int:
        """When the window that starts at ``start`` is forgotten, limited to the end of time."""
        return min(start + self.size_ms - 1 + allowed_lateness_ms, MAX_TIMESTAMP_MS)

    def assign(self, value: Any, timestamp_ms: int | None, now_ms: int) -> Sequence[Window]:
        time_ms = timestamp_ms if self.is_event_time else now_ms
        assert time_ms is not None
        return [TimeWindow(start, start + self.size_ms) for start in self.starts_of(time_ms)]


@dataclass(frozen=True, slots=True)
class SlidingEventTimeWindows(_Sliding):
    """Windows of one size that start at a regular distance (Flink: ``SlidingEventTimeWindows``)."""


@dataclass(frozen=True, slots=True)
class SlidingProcessingTimeWindows(_Sliding):
    """The same by the virtual clock (Flink: ``SlidingProcessingTimeWindows``)."""

    is_event_time: ClassVar[bool] = False
    needs_timestamps: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class _Sessions(WindowAssigner):
    gap_ms: int | None = None
    gap_of: Callable[[Any], int] | None = None

    merges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.gap_ms is None) == (self.gap_of is None):
            raise ConfigurationError("sessions have one gap, with_gap(ms), or one per record, with_dynamic_gap(fn)")
        check_whole("gap_ms of sessions", self.gap_ms, or_none=True)
        if self.gap_of is not None and not callable(self.gap_of):
            raise ConfigurationError(f"the gap of sessions must be a function of the record, got {self.gap_of!r}")

    @classmethod
    def with_gap(cls, gap_ms: int) -> Self:
        """Sessions with one gap for all records."""
        return cls(gap_ms)

    @classmethod
    def with_dynamic_gap(cls, gap_of: Callable[[Any], int]) -> Self:
        """Sessions in which each record keeps the session open for ``gap_of(value)`` ms."""
        return cls(None, gap_of)

    def assign(self, value: Any, timestamp_ms: int | None, now_ms: int) -> Sequence[Window]:
        """See ``WindowAssigner``. Raises ``ValueError`` when the gap function does not return a gap."""
        time_ms = timestamp_ms if self.is_event_time else now_ms
        assert time_ms is not None
        gap_ms = self.gap_ms
        if gap_ms is None:
            assert self.gap_of is not None
            gap_ms = self.gap_of(value)
            if type(gap_ms) is not int or gap_ms < 1:
                raise ValueError(f"the gap of sessions must be an int of at least 1 ms, got {gap_ms!r}")
        return (TimeWindow(time_ms, time_ms + gap_ms),)

    def spec(self) -> str:
        """A gap per record may change, because windows in the state contain their ends."""
        return f"{type(self).__name__}({'dynamic gap' if self.gap_ms is None else f'gap_ms={self.gap_ms}'})"


@dataclass(frozen=True, slots=True)
class EventTimeSessionWindows(_Sessions):
    """Windows that end when a key has had no record for a gap (Flink: ``EventTimeSessionWindows``, ``Dynamic…``).

    A record opens the window from its time to its time plus the gap; windows that overlap or touch become one. So a
    late record can be in time if its session is still open.
    """


@dataclass(frozen=True, slots=True)
class ProcessingTimeSessionWindows(_Sessions):
    """The same by the virtual clock (Flink: ``ProcessingTimeSessionWindows``, ``Dynamic…``)."""

    is_event_time: ClassVar[bool] = False
    needs_timestamps: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class GlobalWindows(WindowAssigner):
    """One window per key for all records, useful with your own trigger (Flink: ``GlobalWindows``)."""

    fires_at_end_of_stream: bool = False

    needs_timestamps: ClassVar[bool] = False

    @classmethod
    def create(cls) -> GlobalWindows:
        """The window never fires unless a trigger is given."""
        return cls()

    @classmethod
    def create_with_end_of_stream_trigger(cls) -> GlobalWindows:
        """The window fires when the input has ended, unless another trigger is given."""
        return cls(fires_at_end_of_stream=True)

    def assign(self, value: Any, timestamp_ms: int | None, now_ms: int) -> Sequence[Window]:
        return (GlobalWindow(),)

    def default_trigger(self) -> Trigger:
        """See ``create`` and ``create_with_end_of_stream_trigger``."""
        return EndOfStreamTrigger() if self.fires_at_end_of_stream else NeverTrigger()

    def spec(self) -> str:
        """There is only one kind; the trigger decides when it fires."""
        return "GlobalWindows"

    def namespace_of(self, window: Window) -> Any:
        """Any value except ``None``, which means no namespace."""
        return 0

    def window_of(self, namespace: Any) -> Window:
        """See ``namespace_of``."""
        return GlobalWindow()
