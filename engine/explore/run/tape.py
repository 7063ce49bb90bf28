"""The tape: every trace event of a case, and a digest that names the behaviour of the case."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgpack

from engine.observe.trace_events import TraceEvent


class TraceTape:
    """An instrument that keeps all events, over all processes of a case."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []
        self.append = self.events.append
        """What to attach: the list's own method is the cheapest instrument there is."""

    def __call__(self, event: TraceEvent) -> None:
        self.events.append(event)

    def digest(self) -> str:
        """32 hexadecimal digits: one digest, one behaviour."""
        return trace_digest(self.events)


def trace_digest(events: Sequence[TraceEvent]) -> str:
    packer = msgpack.Packer(default=repr, autoreset=False)
    for event in events:
        packer.pack(event.__class__.__name__)
        packer.pack(event)
    return blake2b(packer.getbuffer(), digest_size=16).hexdigest()
