"""A digest of a case's trace, which names the behaviour of the case."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from operator import attrgetter

import msgpack

from engine.observe.trace_events import TraceEvent


def trace_digest(events: Sequence[TraceEvent]) -> str:
    """32 hexadecimal digits: one digest, one behaviour."""
    packer = msgpack.Packer(default=repr, autoreset=False)
    names = map(attrgetter("__class__.__name__"), events)
    # Each name and its event; the packer answers nothing.
    any(map(packer.pack, chain.from_iterable(zip(names, events, strict=True))))
    return blake2b(packer.getbuffer(), digest_size=16).hexdigest()
