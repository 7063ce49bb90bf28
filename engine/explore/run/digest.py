"""A digest of a case's trace, which names the behaviour of the case."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgpack

from engine.observe.trace_events import TraceEvent


def trace_digest(events: Sequence[TraceEvent]) -> str:
    """32 hexadecimal digits: one digest, one behaviour."""
    packer = msgpack.Packer(default=repr, autoreset=False)
    for event in events:
        packer.pack(event.__class__.__name__)
        packer.pack(event)
    return blake2b(packer.getbuffer(), digest_size=16).hexdigest()
