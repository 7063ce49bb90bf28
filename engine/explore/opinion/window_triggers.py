"""The time at which a window is computed, and its records: the triggers and evictors of docs/event-time-and-windows.md.

They are written anew here; triggers and evictors of the user run as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.explore.opinion.elements import NotModelled, is_a
from operators.windows import TriggerResult

CONTINUE, FIRE = TriggerResult.CONTINUE, TriggerResult.FIRE
FIRES, PURGES = (FIRE, TriggerResult.FIRE_AND_PURGE), (TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE)


class Never:
    """Never fires. Base of the others."""

    def on_element(self, value: Any, stamp: int | None, window: Any, ctx: Any) -> TriggerResult:
        """A record was added."""
        return CONTINUE

    def on_event_time(self, time_ms: int, window: Any, ctx: Any) -> TriggerResult:
        """A timer of the window is due."""
        return CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        """Several windows have become this one."""

    def clear(self, window: Any, ctx: Any) -> None:
        """The window is deleted, with its timers."""


class AtTheEnd(Never):
    """At the end of the window, and then at once for every late record."""

    def on_element(self, value: Any, stamp: int | None, window: Any, ctx: Any) -> TriggerResult:
        if window.max_timestamp <= ctx.current_watermark_ms:
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        return CONTINUE

    def on_event_time(self, time_ms: int, window: Any, ctx: Any) -> TriggerResult:
        return FIRE if time_ms == window.max_timestamp else CONTINUE

    def on_merge(self, window: Any, ctx: Any) -> None:
        if window.max_timestamp > ctx.current_watermark_ms:
            ctx.register_event_time_timer(window.max_timestamp)


class EveryCount(Never):
    """After every so many records, never at the end. The counts of merged windows add up."""

    def __init__(self, count: int) -> None:
        self._count = count

    def on_element(self, value: Any, stamp: int | None, window: Any, ctx: Any) -> TriggerResult:
        counted = ctx.value_state("count", 0)
        counted.update(counted.get() + 1)
        if counted.get() < self._count:
            return CONTINUE
        counted.clear()
        return FIRE

    def on_merge(self, window: Any, ctx: Any) -> None:
        counted = ctx.value_state("count", 0)
        counted.update(sum(value for value in ctx.of_merged("count")))

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.value_state("count", 0).clear()


class EveryInterval(AtTheEnd):
    """When the watermark passes multiples of an interval, counted from the first record, and at the end. A watermark
    that jumps over several fires for each; a global window does not fire for the rest of time."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms

    def on_element(self, value: Any, stamp: int | None, window: Any, ctx: Any) -> TriggerResult:
        result = super().on_element(value, stamp, window, ctx)
        if result is CONTINUE and ctx.value_state("next").get() is None:
            assert stamp is not None
            self._next(stamp - stamp % self._interval_ms, window, ctx)
        return result

    def on_event_time(self, time_ms: int, window: Any, ctx: Any) -> TriggerResult:
        if time_ms == window.max_timestamp or ctx.value_state("next").get() != time_ms:
            return super().on_event_time(time_ms, window, ctx)
        self._next(time_ms, window, ctx)
        return FIRE

    def _next(self, time_ms: int, window: Any, ctx: Any) -> None:
        end_ms = window.max_timestamp
        is_over = ctx.current_watermark_ms == end_ms == ctx.end_of_time_ms
        next_ms = end_ms if is_over else min(time_ms + self._interval_ms, end_ms)
        ctx.value_state("next").update(next_ms)
        ctx.register_event_time_timer(next_ms)

    def on_merge(self, window: Any, ctx: Any) -> None:
        times = ctx.of_merged("next")
        if times:
            ctx.value_state("next").update(min(times))
            ctx.register_event_time_timer(min(times))

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.value_state("next").clear()


class Purging(Never):
    """Like another trigger, but empties the window each time it fires."""

    def __init__(self, trigger: Any) -> None:
        self._trigger = trigger
        self.on_merge, self.clear = trigger.on_merge, trigger.clear  # type: ignore[method-assign]

    def on_element(self, value: Any, stamp: int | None, window: Any, ctx: Any) -> TriggerResult:
        return _purging(self._trigger.on_element(value, stamp, window, ctx))

    def on_event_time(self, time_ms: int, window: Any, ctx: Any) -> TriggerResult:
        return _purging(self._trigger.on_event_time(time_ms, window, ctx))


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result in FIRES else result


class Keep:
    """An evictor: before or after the window is computed, only some records stay."""

    def __init__(self, keep: Callable[[list[Any]], list[Any]], *, after: bool) -> None:
        self._keep, self._after = keep, after

    def evict_before(self, elements: list[Any], window: Any, ctx: Any) -> list[Any]:
        return elements if self._after else self._keep(elements)

    def evict_after(self, elements: list[Any], window: Any, ctx: Any) -> list[Any]:
        return self._keep(elements) if self._after else elements


def evictor_of(given: Any) -> Any:
    """The evaluator's form of the job's evictor: the last so many records, or those of the last so many ms."""
    name = f"{type(given).__module__}.{type(given).__qualname__}"
    if name == "operators.windows.evictors.CountEvictor":
        count = given.max_count
        return Keep(lambda elements: elements[-count:] if count else [], after=given._after)
    if name == "operators.windows.evictors.TimeEvictor":
        return Keep(lambda elements: _newest(elements, given.window_ms), after=given._after)
    return given


def _newest(elements: list[Any], span_ms: int) -> list[Any]:
    if not elements or elements[0].timestamp_ms is None:
        return elements
    newest_ms = max(one.timestamp_ms for one in elements if one.timestamp_ms is not None)
    return [one for one in elements if one.timestamp_ms is not None and newest_ms - one.timestamp_ms < span_ms]


def trigger_of(given: Any) -> Any:
    """The evaluator's form of the job's trigger. Raises :class:`NotModelled` for those of the virtual clock."""
    name = f"{type(given).__module__}.{type(given).__qualname__}"
    if name in ("operators.windows.triggers.EventTimeTrigger", "operators.windows.triggers.EndOfStreamTrigger"):
        return AtTheEnd()
    if name == "operators.windows.triggers.NeverTrigger":
        return Never()
    if name == "operators.windows.triggers.CountTrigger":
        return EveryCount(given.count)
    if name == "operators.windows.triggers.PurgingTrigger":
        return Purging(trigger_of(given.trigger))
    if name == "operators.windows.continuous_triggers.ContinuousEventTimeTrigger":
        return EveryInterval(given.interval_ms)
    if is_a(given, "operators.windows.triggers.ProcessingTimeTrigger") or "ContinuousProcessingTime" in name:
        raise NotModelled("its windows fire by the virtual clock, which depends on costs and schedules")
    return given
