"""An instrument that counts what is sent on channels: records, barriers and cancellation markers."""

from __future__ import annotations

from engine.observe.trace_events import Send, TraceEvent

_CONTROL = {"CheckpointBarrier": "barrier", "CancelCheckpointMarker": "cancel marker"}


class MessageCounter:
    """``records``: sent on channels between tasks; ``control``: barriers and cancellation markers there, by kind."""

    def __init__(self) -> None:
        self.records = 0
        self.control = dict.fromkeys(_CONTROL.values(), 0)

    def __call__(self, event: TraceEvent) -> None:
        """Take in one event."""
        if isinstance(event, Send):
            self.records += event.records
            kind = _CONTROL.get(event.kind)
            if kind is not None:
                self.control[kind] += 1
