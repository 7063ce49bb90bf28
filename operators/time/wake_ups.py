"""The physical wake-ups for processing-time timers.

The timers are keyed state; the clock does not know them. There is always a wake-up for the earliest timer. Deleting a
timer does not cancel it (Flink: ``InternalTimerServiceImpl``): a wake-up without a due timer has no effect.
"""

from __future__ import annotations

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.operator import OperatorContext
from state_backends.api import TimerService


class WakeUps:
    """The wake-ups that one operator has requested from its context, each ``delay_ms`` after the time of its timers."""

    __slots__ = ("_armed_ms", "_context", "_delay_ms", "_timers")

    def __init__(self, context: OperatorContext, timers: TimerService, delay_ms: int = 0) -> None:
        self._context = context
        self._timers = timers
        self._delay_ms = delay_ms
        self._armed_ms: dict[int, None] = {}

    def arm(self) -> None:
        """Request a wake-up for the earliest processing-time timer, unless there is an earlier one or the same."""
        due_ms = self._timers.processing_time.next_time()
        if due_ms is None or due_ms == MAX_TIMESTAMP_MS:
            return
        due_ms += self._delay_ms
        # A later wake-up does not serve an earlier timer (mutant "wake-up not moved").
        if due_ms not in self._armed_ms:
            self._armed_ms[due_ms] = None
            self._context.register_processing_timer(due_ms)

    def passed(self, time_ms: int) -> None:
        """The clock has reached ``time_ms``: forget the wake-ups up to then."""
        self._armed_ms = {armed: None for armed in self._armed_ms if armed > time_ms}

    def fingerprint(self) -> object:
        now_ms = self._context.processing_time_ms()
        return sorted(armed - now_ms for armed in self._armed_ms)
