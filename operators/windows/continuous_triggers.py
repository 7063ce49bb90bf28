"""Triggers that fire windows again and again at the multiples of an interval, for results before the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import check_whole
from operators.windows.triggers import MergeContext, Trigger, TriggerContext, TriggerResult

if TYPE_CHECKING:
    from operators.windows.assigners import Window


class ContinuousEventTimeTrigger(Trigger):
    """Fires at every multiple of an interval of event time, and at the end of the window (Flink: same name).

    A watermark that jumps over several multiples fires once for each. Only a global window does not go through the rest
    of time when its input ends: it fires a last time.
    """

    def __init__(self, interval_ms: int) -> None:
        check_whole("interval_ms of a ContinuousEventTimeTrigger", interval_ms)
        self.interval_ms = interval_ms

    @classmethod
    def of(cls, interval_ms: int) -> ContinuousEventTimeTrigger:
        """Fire at every multiple of ``interval_ms``."""
        return cls(interval_ms)

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Have a timer at the end and one at the next multiple after the first record."""
        if window.max_timestamp <= ctx.current_watermark_ms:
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        if ctx.reducing_state("fire-time", min).get() is None:
            if timestamp_ms is None:
                raise TypeError("ContinuousEventTimeTrigger needs event time, but the record has no timestamp")
            self._fire_after(timestamp_ms - timestamp_ms % self.interval_ms, window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end, and at the multiple that is due; then wait for the next one."""
        if time_ms == window.max_timestamp:
            return TriggerResult.FIRE
        fire_time = ctx.reducing_state("fire-time", min)
        if fire_time.get() != time_ms:
            return TriggerResult.CONTINUE
        fire_time.clear()
        self._fire_after(time_ms, window, ctx)
        return TriggerResult.FIRE

    def _fire_after(self, time_ms: int, window: Window, ctx: TriggerContext) -> None:
        end_ms = window.max_timestamp
        is_over = ctx.current_watermark_ms == end_ms == MAX_TIMESTAMP_MS
        next_ms = end_ms if is_over else min(time_ms + self.interval_ms, end_ms)
        ctx.reducing_state("fire-time", min).add(next_ms)
        ctx.register_event_time_timer(next_ms)

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """The earliest of the times goes on."""
        fire_time = ctx.reducing_state("fire-time", min)
        ctx.merge_state(fire_time)
        next_ms = fire_time.get()
        if next_ms is not None:
            ctx.register_event_time_timer(next_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        fire_time = ctx.reducing_state("fire-time", min)
        next_ms = fire_time.get()
        if next_ms is not None:
            ctx.delete_event_time_timer(next_ms)
            fire_time.clear()
        ctx.delete_event_time_timer(window.max_timestamp)


class ContinuousProcessingTimeTrigger(Trigger):
    """Fires at every multiple of an interval of the virtual clock, from the first record on (Flink: same name).

    For windows that end by that clock, the last firing is at their end. (Flink also compares the end of event-time
    windows with the clock; once that has passed, its trigger fires without a pause. Here it keeps the interval.)
    """

    def __init__(self, interval_ms: int) -> None:
        check_whole("interval_ms of a ContinuousProcessingTimeTrigger", interval_ms)
        self.interval_ms = interval_ms

    @classmethod
    def of(cls, interval_ms: int) -> ContinuousProcessingTimeTrigger:
        """Fire at every multiple of ``interval_ms``."""
        return cls(interval_ms)

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Have a timer at the next multiple."""
        if ctx.reducing_state("fire-time", min).get() is None:
            now_ms = ctx.processing_time_ms()
            self._fire_after(now_ms, now_ms - now_ms % self.interval_ms, window, ctx)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the multiple that is due, and wait for the next one."""
        fire_time = ctx.reducing_state("fire-time", min)
        if fire_time.get() != time_ms:
            return TriggerResult.CONTINUE
        fire_time.clear()
        self._fire_after(time_ms, time_ms, window, ctx)
        return TriggerResult.FIRE

    def _fire_after(self, now_ms: int, multiple_ms: int, window: Window, ctx: TriggerContext) -> None:
        next_ms = multiple_ms + self.interval_ms
        if now_ms < window.max_timestamp < next_ms:
            next_ms = window.max_timestamp
        ctx.reducing_state("fire-time", min).add(next_ms)
        ctx.register_processing_time_timer(next_ms)

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """The earliest of the times goes on."""
        fire_time = ctx.reducing_state("fire-time", min)
        ctx.merge_state(fire_time)
        next_ms = fire_time.get()
        if next_ms is not None:
            ctx.register_processing_time_timer(next_ms)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        fire_time = ctx.reducing_state("fire-time", min)
        next_ms = fire_time.get()
        if next_ms is not None:
            ctx.delete_processing_time_timer(next_ms)
            fire_time.clear()
