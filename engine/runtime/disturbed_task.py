"""Tasks whose clock is off, that are slow, have nothing to read for a while, or get their watermarks late.

Nothing here dies: see :mod:`engine.runtime.interfered_task`. What a task is asked to wait for it asks again after that,
so that whoever answers needs to know nothing but the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.events import Watermark, WatermarkStatus
from engine.runtime.task import RUNNING, Task

if TYPE_CHECKING:
    from engine.graph.plan import SubtaskPlan, VertexPlan
    from engine.runtime.channel import Channel
    from engine.runtime.environment import TaskEnvironment
    from engine.runtime.output_queue import Element


class DisturbedTask(Task):
    """A task in a run in which something may go wrong with time."""

    def __init__(self, plan: SubtaskPlan, vertex: VertexPlan, environment: TaskEnvironment) -> None:
        super().__init__(plan, vertex, environment)
        assert environment.interference is not None, plan.name
        self._disturbs = environment.interference
        self._kept_back: list[tuple[int, Watermark | WatermarkStatus]] = []
        """What is kept from the task for a while: input channel and element."""

    @property
    def clock_ns(self) -> int:
        """What the processing-time clock of the task shows."""
        return self.kernel.now_ns + self._disturbs.clock_skew_ns(self.name)

    def run(self, _payload: None = None) -> None:
        """See the base class."""
        if not self._is_held():
            super().run()

    def _is_held(self) -> bool:
        now = self.kernel.now_ns
        if self.state != RUNNING or self.is_stopping or self._slice_records or self._mail:
            return False
        if now < max(self._resting_until_ns, self._spent_until_ns):
            return False
        hold_ns = self._disturbs.hold_ns(self.name, self.vertex.is_source)
        if not hold_ns:
            return False
        self.rest(hold_ns)
        self._woken = True
        self.kernel.schedule(self._resting_until_ns, "run", self)
        return True

    def handle_event(self, channel: Channel, event: Element) -> None:
        """See the base class."""
        is_time = isinstance(event, (Watermark, WatermarkStatus))
        if not is_time or not self._keeps_back(channel.input_index, event):
            super().handle_event(channel, event)

    def _keeps_back(self, index: int, event: Element) -> bool:
        assert isinstance(event, (Watermark, WatermarkStatus)), event
        if not self._kept_back:
            delay_ns = self._disturbs.watermark_delay_ns(self.name)
            if not delay_ns:
                return False
            self.kernel.schedule(self.kernel.now_ns + delay_ns, "receive_mail", self, ("release_watermarks", ()))
        self._kept_back.append((index, event))
        if event == Watermark(MAX_TIMESTAMP_MS):
            # The end of data is behind it: what it lets happen must have happened by then.
            self.release_watermarks()
        return True

    def release_watermarks(self) -> None:
        """What was kept from the task comes now (mail)."""
        kept_back, self._kept_back = self._kept_back, []
        for index, event in kept_back:
            self.take_time(index, event)

    def fingerprint(self) -> object:
        """See the base class."""
        return (super().fingerprint(), tuple(self._kept_back))
