"""The event time that a stateful operator has reached, kept over failures.

Flink starts every attempt at "nothing seen". Then a record after the cut that was late in the first run is in time in
the second. It opens a window that had fired and been cleaned up, and the window fires twice. So the watermark belongs
to the state. It is union state; a restore takes the least of all subtasks. At an aligned cut all have the same one, and
after a change of parallelism the least is right for all of them.
"""

from __future__ import annotations

from engine.elements.batch import MIN_TIMESTAMP_MS
from engine.elements.operator import OperatorContext
from state_backends.base import number

_STATE = "current-watermark"


class EventClock:
    """The current watermark of one operator; it never falls."""

    __slots__ = ("_state", "watermark_ms")

    def __init__(self, context: OperatorContext) -> None:
        self._state = context.operator_backend().union_list_state(_STATE, number)
        # The least of all subtasks: a later one would make records late that are not
        # (mutants "latest watermark restored" and "event time begins anew").
        self.watermark_ms: int = min(self._state.get(), default=MIN_TIMESTAMP_MS)

    def advance(self, timestamp_ms: int) -> None:
        """A watermark arrived; older ones have no effect (they are repeated after a restore)."""
        self.watermark_ms = max(self.watermark_ms, timestamp_ms)

    def snapshot(self) -> None:
        """Bring the declared state up to date."""
        self._state.update([self.watermark_ms])
