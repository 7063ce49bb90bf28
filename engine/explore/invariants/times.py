"""V11: event time never goes back on a channel, and timers are called when they are due, once."""

from __future__ import annotations

from engine.explore.invariants.base import Shared, Watcher, faults_possible
from engine.explore.run import CaseView, hears
from engine.observe.trace_events import Send, TimerFired

_OTHER_CLOCKS = frozenset(("clock-jump", "skew"))
"""Faults that make the clock of a task differ from the one that its timers are called by."""


class TimeGoesOn(Watcher):
    name = "V11"
    title = "Watermarks never go back on a channel; a timer is called when it is due, and once in an attempt."
    reason = "A watermark that goes back, or a timer called twice, fires a window twice; one called early, too soon."
    source = "Flink StatusWatermarkValve, SystemProcessingTimeService, InternalTimerServiceImpl"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._watermarks: dict[int, tuple[int, int]] = {}
        """By channel: attempt and watermark."""
        self._fired: dict[tuple[str, str], tuple[int, int]] = {}
        """By task and operator: attempt, and when the last timer was due."""
        self.records_of = self.shared.records_of

    def process_started(self, view: CaseView) -> None:
        """Attempts count from 1 again."""
        super().process_started(view)
        self._watermarks.clear()
        self._fired.clear()

    @hears(Send)
    def _on_send(self, event: Send) -> None:
        if event.kind != "Watermark":
            return
        assert event.detail is not None
        attempt, newest = self._watermarks.get(event.channel, (0, event.detail))
        if event.attempt == attempt and event.detail < newest:
            self.violated(
                f"the watermark goes back from {newest} to {event.detail} ms on {self.topology.channel(event.channel)}",
                event.time_ns,
                channel=event.channel,
            )
        if event.attempt >= attempt:
            self._watermarks[event.channel] = (event.attempt, event.detail)

    @hears(TimerFired)
    def _on_timer(self, event: TimerFired) -> None:
        if not faults_possible(self.view).isdisjoint(_OTHER_CLOCKS):
            return
        who = (event.task, event.operator)
        attempt, last_ns = self._fired.get(who, (0, -1))
        if event.due_ns > event.time_ns:
            text = f"a timer of {event.operator} in {event.task} is called {event.due_ns - event.time_ns} ns early"
            self.violated(text, event.time_ns, task=event.task)
        # The call may have registered the due timer again: then it is another one.
        if event.attempt == attempt and event.due_ns <= last_ns and event.due_ns < event.time_ns:
            self.violated(
                f"the timer of {event.operator} in {event.task} that was due at {event.due_ns} ns is called after the"
                f" one due at {last_ns} ns",
                event.time_ns,
                task=event.task,
            )
        if event.attempt >= attempt:
            self._fired[who] = (event.attempt, event.due_ns)
