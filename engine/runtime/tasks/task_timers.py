"""The processing-time timers of a task: the times at which its operators want to be called.

Rules.

* A timer is a position in the chain and a time by the task's clock. A timer registered twice fires once.
* Its delay is fixed when it is registered: later changes of the clock do not matter (Flink:
  ``SystemProcessingTimeService.registerTimer``). So timers are due at an instant of virtual time. By a clock that was
  set back, a timer that registers the next one would be due again at once, and again, until the clock has caught up.
* After the end of data, and after the savepoint that stops the job, timers are silent: none fires, none is taken.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol

from engine.runtime.kernel import Around, Kernel


class TimerOwner(Protocol):
    """The task that has the timers."""

    @property
    def clock_ns(self) -> int:
        """The time its processing-time clock shows."""

    @property
    def takes_timers(self) -> bool:
        """Whether a timer may still have effects."""

    @property
    def is_running(self) -> bool:
        """Whether the task is running; a timer may kill it."""

    def timer_fires(self, position: int, time_ns: int) -> None:
        """Call the operator at ``position``, which has asked for ``time_ns``."""


class TaskTimers:
    """The timers of ``owner``, which hears of them by mail."""

    def __init__(self, owner: TimerOwner, kernel: Kernel, around: Around) -> None:
        self._owner = owner
        self._kernel = kernel
        self._around = around
        self._pending: list[tuple[int, int, int]] = []
        """A heap of instant, time by the task's clock, and position in the chain."""
        self._registered: set[tuple[int, int]] = set()
        """Times and positions, used only for membership tests."""

    def register(self, time_ns: int, position: int) -> None:
        """Call the operator at ``position`` at ``time_ns`` by the task's clock."""
        owner = self._owner
        if not owner.takes_timers:
            return
        clock_ns = owner.clock_ns
        time_ns = max(time_ns, clock_ns)
        entry = (time_ns, position)
        if entry not in self._registered:
            self._registered.add(entry)
            instant_ns = self._kernel.now_ns + time_ns - clock_ns
            heappush(self._pending, (instant_ns, *entry))
            self._kernel.schedule(instant_ns, "receive_mail", owner, ("fire_timers", (instant_ns,)))

    def fire_timers(self, instant_ns: int) -> None:
        """Fire every timer due at ``instant_ns`` of virtual time, as long as the task is alive (mail)."""
        if self._is_due(instant_ns):
            with self._around("timer.fire"):
                while self._is_due(instant_ns) and self._owner.is_running:
                    _, due_ns, position = heappop(self._pending)
                    self._registered.discard((due_ns, position))
                    self._owner.timer_fires(position, due_ns)

    def _is_due(self, instant_ns: int) -> bool:
        return bool(self._pending) and self._pending[0][0] <= instant_ns

    def silence(self) -> None:
        """No timer fires any more. They stay in the state."""
        self._pending.clear()
        self._registered.clear()

    def fingerprint(self, now_ns: int) -> object:
        """The timers due, and in how many nanoseconds."""
        return tuple(
            sorted((instant_ns - now_ns, time_ns - now_ns, position) for instant_ns, time_ns, position in self._pending)
        )
