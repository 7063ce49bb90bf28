"""The event time that an operator has reached, over failures and changes of parallelism."""

from __future__ import annotations

from engine.elements.batch import MIN_TIMESTAMP_MS
from operators.time import EventClock
from state_backends.api import OperatorStateBackend


class Context:
    """The part of its operator that an event clock uses."""

    def __init__(self, *restored: int) -> None:
        self.backend = OperatorStateBackend()
        self.backend.union_list_state("current-watermark").add_all(restored)

    def operator_backend(self) -> OperatorStateBackend:
        """State of all subtasks after a restore, else none."""
        return self.backend


def clock(*restored: int) -> EventClock:
    """A clock of a subtask that is given these watermarks."""
    return EventClock(Context(*restored))  # type: ignore[arg-type]


def test_a_restored_clock_takes_the_least_of_all_subtasks() -> None:
    """Records in time for the slowest subtask must not be late for a faster one."""
    assert clock(900, 300, 700).watermark_ms == 300
    assert clock().watermark_ms == MIN_TIMESTAMP_MS


def test_a_clock_never_falls_and_keeps_what_it_has_reached() -> None:
    """Repeated watermarks change nothing; the snapshot contains only its own watermark."""
    context = Context(900, 300)
    reached = EventClock(context)  # type: ignore[arg-type]
    for timestamp_ms in (500, 400):
        reached.advance(timestamp_ms)
    reached.snapshot()
    assert context.backend.union_list_state("current-watermark").get() == [500]
