"""The processing-time timers of a task: what its operators want to be called for, and when.

Rules.

* A timer is a position in the chain and a time by the task's clock. Asked for twice it fires once.
* How long it takes is settled when it is registered: what happens to the clock later changes nothing (Flink:
  ``SystemProcessingTimeService.registerTimer``). So timers are due at an instant of virtual time: by a clock that was
  set back, a timer that asks for the next one would be due again at once, and again, until the clock has caught up.
* Behind the end of data, and behind the savepoint that stops the job, timers are quiet: none fires, none is taken.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from engine.observe.events import TimerFired

if TYPE_CHECKING:
    from engine.runtime.task import Task


class TaskTimers:
    """The timers of ``task``."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._pending: list[tuple[int, int, int]] = []
        """A heap of instant, time by the task's clock, and position in the chain."""
        self._registered: set[tuple[int, int]] = set()
        """Times and positions, to be asked for members only."""

    def register(self, time_ns: int, position: int) -> None:
        """Call ``on_processing_time_ns`` of the operator at ``position`` at ``time_ns`` by the task's clock."""
        task = self._task
        if task.input_ended or task.is_stopping:
            return
        clock_ns = task.clock_ns
        time_ns = max(time_ns, clock_ns)
        entry = (time_ns, position)
        if entry not in self._registered:
            self._registered.add(entry)
            instant_ns = task.kernel.now_ns + time_ns - clock_ns
            heappush(self._pending, (instant_ns, *entry))
            task.kernel.schedule(instant_ns, "receive_mail", task, ("fire_timers", (instant_ns,)))

    def is_due(self, instant_ns: int) -> bool:
        """Whether a timer has yet to fire that is due at ``instant_ns`` of virtual time."""
        return bool(self._pending) and self._pending[0][0] <= instant_ns

    def fire(self, instant_ns: int) -> None:
        """Fire every timer due at ``instant_ns`` of virtual time, as long as the task is alive."""
        task = self._task
        while self.is_due(instant_ns) and task.is_running:
            _, due_ns, position = heappop(self._pending)
            self._registered.discard((due_ns, position))
            if task.environment.instrument is not None:
                name = task.contexts[position].name
                task.environment.instrument(TimerFired(task.kernel.now_ns, task.attempt, task.name, name, due_ns))
            task.operators[position].on_processing_time_ns(due_ns)

    def silence(self) -> None:
        """No timer fires any more. They stay in the state."""
        self._pending.clear()
        self._registered.clear()

    def fingerprint(self, now_ns: int) -> object:
        """What is due, and in how many nanoseconds."""
        return tuple(
            sorted((instant_ns - now_ns, time_ns - now_ns, position) for instant_ns, time_ns, position in self._pending)
        )
