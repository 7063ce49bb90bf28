"""A digest of a case's trace, which names the behaviour of the case."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgpack

from engine.observe.trace_events import TraceEvent


def trace_digest(events: Sequence[TraceEvent]) -> str:
    """32 hexadecimal digits: one digest, one behaviour."""
    kinds = list(map(type, events))
    names = {kind: kind.__name__ for kind in set(kinds)}
    # Each name and its event, packed by one call.
    parts: list[Any] = [None] * (2 * len(events))
    parts[::2], parts[1::2] = map(names.__getitem__, kinds), events
    packed = memoryview(msgpack.packb(parts, default=repr))
    return blake2b(packed[_header_bytes(len(parts)) :], digest_size=16).hexdigest()


def _header_bytes(length: int) -> int:
    """Of a list with so many members."""
    return len(msgpack.Packer().pack_array_header(length))
