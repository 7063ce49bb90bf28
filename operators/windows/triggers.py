"""Triggers: when a window is computed, and whether it then forgets its contents (Flink: ``Trigger``).

A trigger is called for every record and every timer of a window. It keeps its data in state that it gets from its
context: one value per key and window, snapshotted with the rest. Attributes of its own are not state, and one object
serves all windows of a subtask.

Rules of the callbacks (Flink: ``WindowOperator``):

* ``FIRE`` computes the window from its contents, ``PURGE`` empties it but keeps the window and the trigger's state.
* ``on_event_time`` and ``on_processing_time`` are called for *every* timer of the window, even the cleanup timer:
  compare the time.
* ``clear`` is called when the window is cleaned up, and for windows that were merged into another one.
* A trigger for sessions also defines how windows merge: ``can_merge`` and ``on_merge``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from engine.elements.errors import ConfigurationError, check_whole
from operators.basic import Clocks, KeyTimers, NamedStates

if TYPE_CHECKING:
    from operators.windows.assigners import Window
    from state_backends.api import ListState, ReducingState


class TriggerResult(Enum):
    """The decision of a trigger (Flink: ``TriggerResult``)."""

    CONTINUE = "continue"
    """No action."""
    FIRE = "fire"
    """Compute the window and keep its contents."""
    PURGE = "purge"
    """Forget the contents."""
    FIRE_AND_PURGE = "fire_and_purge"
    """Compute the window, then forget its contents."""

    @property
    def fires(self) -> bool:
        """Whether the window is computed."""
        return self in (TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE)

    @property
    def purges(self) -> bool:
        """Whether the contents are forgotten (afterwards)."""
        return self in (TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE)


class TriggerContext(Clocks, NamedStates, KeyTimers, Protocol):
    """The context of a trigger: the clocks, and the state and timers of the present window of the current key. Get a
    state again in each callback: a handle belongs to one window only."""


class MergeContext(TriggerContext, Protocol):
    """The context of a trigger when windows were merged."""

    def merge_state(self, state: ListState | ReducingState) -> None:
        """Move the values of the merged windows in a list or reducing state into that of the new window.

        (Flink: ``OnMergeContext.mergePartitionedState``.) Raises ``TypeError`` for state that cannot be merged.
        """


class Trigger:
    """Base of all triggers. Your own trigger overrides the three callbacks, and ``clear`` if it has state. Event-time
    windows fire by the virtual clock, and processing-time windows by the watermark, only if the trigger does so."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """A record was added to the window. ``timestamp_ms`` is ``None`` when the stream carries no timestamps."""
        raise TypeError(f"{type(self).__name__} does not define on_element(value, timestamp_ms, window, ctx)")

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """An event-time timer of the window is due."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """A processing-time timer of the window is due."""
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        """Whether ``on_merge`` is defined; sessions require it."""
        return False

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """Several windows have become ``window``; a record is about to be added to it."""
        raise TypeError(f"{type(self).__name__} can_merge, but does not define on_merge(window, ctx)")

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        """Remove every state and timer that this trigger has for the window."""

    def spec(self) -> str:
        """The part that must not change while there is state: a trigger cannot use another's timers and state."""
        return type(self).__name__


class EventTimeTrigger(Trigger):
    """Fires when the watermark passes the end of the window, then for every late record (Flink: same name)."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at once if the end has passed, else register a timer there."""
        if window.max_timestamp <= ctx.current_watermark_ms:
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Fire at the end of the window; the later cleanup timer is not ours."""
        return TriggerResult.FIRE if time_ms == window.max_timestamp else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """A timer at the end of the new window, unless it has passed: then the record in hand fires."""
        if window.max_timestamp > ctx.current_watermark_ms:
            ctx.register_event_time_timer(window.max_timestamp)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp)


class ProcessingTimeTrigger(Trigger):
    """Fires when the virtual clock passes the end of the window (Flink: same name)."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Register a timer at the end of the window."""
        ctx.register_processing_time_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """A timer at the end of the new window, unless it has passed."""
        if window.max_timestamp > ctx.processing_time_ms():
            ctx.register_processing_time_timer(window.max_timestamp)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp)


def _add(a: int, b: int) -> int:
    return a + b


class CountTrigger(Trigger):
    """Fires whenever a window has got ``count`` further records, at no other time (Flink: same name)."""

    def __init__(self, count: int) -> None:
        check_whole("count of a CountTrigger", count)
        self.count = count

    @classmethod
    def of(cls, count: int) -> CountTrigger:
        """Fire after every ``count`` records."""
        return cls(count)

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Count, and fire when there are enough."""
        count = ctx.reducing_state("count", _add)
        count.add(1)
        if count.get() < self.count:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        """Counts add up, and may exceed ``count``; the present record fires."""
        ctx.merge_state(ctx.reducing_state("count", _add))

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.reducing_state("count", _add).clear()


class PurgingTrigger(Trigger):
    """Another trigger that also forgets the contents at each firing (Flink: same name)."""

    def __init__(self, trigger: Trigger) -> None:
        if not isinstance(trigger, Trigger):
            raise ConfigurationError(
                f"PurgingTrigger takes a trigger, as in PurgingTrigger.of(CountTrigger.of(3)), got {trigger!r}"
            )
        self.trigger = trigger

    @classmethod
    def of(cls, trigger: Trigger) -> PurgingTrigger:
        """``trigger``, purging."""
        return cls(trigger)

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.trigger.on_element(value, timestamp_ms, window, ctx))

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.trigger.on_event_time(time_ms, window, ctx))

    def on_processing_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return _purging(self.trigger.on_processing_time(time_ms, window, ctx))

    def can_merge(self) -> bool:
        return self.trigger.can_merge()

    def on_merge(self, window: Window, ctx: MergeContext) -> None:
        self.trigger.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.trigger.clear(window, ctx)

    def spec(self) -> str:
        """That of the inner trigger: purging leaves no state."""
        return self.trigger.spec()


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.fires else result


class NeverTrigger(Trigger):
    """Never fires: the default of global windows (Flink: ``GlobalWindows.NeverTrigger``)."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


class EndOfStreamTrigger(Trigger):
    """Fires once, with the watermark at the end of the input (Flink: ``GlobalWindows.EndOfStreamTrigger``)."""

    def on_element(self, value: Any, timestamp_ms: int | None, window: Window, ctx: TriggerContext) -> TriggerResult:
        """Register a timer at the end of the window, which is the end of time."""
        ctx.register_event_time_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_event_time(self, time_ms: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time_ms == window.max_timestamp else TriggerResult.CONTINUE
