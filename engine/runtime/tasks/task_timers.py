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

from engine.runtime.tasks.environment import TaskPlace
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_life import TaskLife


class TaskTimers:
    """The timers of the task at a place. ``task`` hears of them by mail."""

    def __init__(self, task: object, place: TaskPlace, life: TaskLife, chain: OperatorChain) -> None:
        self._task = task
        self._place = place
        self._life = life
        self._chain = chain
        self._is_quiesced = False
        self._pending: list[tuple[int, int, int]] = []
        """A heap of instant, time by the task's clock, and position in the chain."""
        self._registered: set[tuple[int, int]] = set()
        """Times and positions, used only for membership tests."""

    def register(self, time_ns: int, position: int) -> None:
        """Call the operator at ``position`` at ``time_ns`` by the task's clock."""
        if self._is_quiesced:
            return
        clock_ns = self._place.clock.clock_ns()
        time_ns = max(time_ns, clock_ns)
        entry = (time_ns, position)
        if entry not in self._registered:
            self._registered.add(entry)
            instant_ns = self._place.kernel.now_ns + time_ns - clock_ns
            heappush(self._pending, (instant_ns, *entry))
            self._place.kernel.schedule(instant_ns, "receive_mail", self._task, ("fire_timers", (instant_ns,)))

    def fire_timers(self, instant_ns: int) -> None:
        """Fire every timer due at ``instant_ns`` of virtual time, as long as the task is alive (mail)."""
        if self._is_due(instant_ns):
            with self._place.around("timer.fire"):
                while self._is_due(instant_ns) and self._life.is_running:
                    _, due_ns, position = heappop(self._pending)
                    self._registered.discard((due_ns, position))
                    self._chain.timer_fires(position, due_ns)

    def _is_due(self, instant_ns: int) -> bool:
        return bool(self._pending) and self._pending[0][0] <= instant_ns

    def silence(self) -> None:
        """No timer fires any more. They stay in the state."""
        self._pending.clear()
        self._registered.clear()

    def quiesce(self) -> None:
        """No timer fires any more, and none is taken (Flink: ``SystemProcessingTimeService.quiesce``)."""
        self._is_quiesced = True
        self.silence()

    def fingerprint(self) -> object:
        """The timers due, and in how many nanoseconds."""
        now_ns = self._place.kernel.now_ns
        return tuple(
            sorted((instant_ns - now_ns, time_ns - now_ns, position) for instant_ns, time_ns, position in self._pending)
        )
