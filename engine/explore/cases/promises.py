"""The promise for committed output: given by a mode or a sink, or requested by the user."""

from __future__ import annotations

from engine.elements.errors import ConfigurationError
from engine.protocols.barriers import CheckpointProtocol

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE, NONE = "exactly-once", "at-least-once", "at-most-once", "none"
PROMISES = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE, NONE)
"""How output is judged, as multisets: equal to the reference, at least it, at most it, or anything."""

PER_KEY = "exactly-once-per-key"
"""The promise of sinks that replace rows: at the end, the last row of each key is right."""


def promise_of(protocol: CheckpointProtocol) -> str:
    """The promise of a mode. Without checkpoints a restarted job begins again, and the output that its first attempt
    has committed stays: nothing is promised."""
    if not protocol.takes_checkpoints:
        return NONE
    return EXACTLY_ONCE if protocol.consistent_cut else AT_LEAST_ONCE


def check_promise(promise: str | None) -> None:
    """:raises ConfigurationError: when there is no such promise"""
    if promise is not None and promise not in PROMISES:
        raise ConfigurationError(f"there is no promise {promise!r}; there are: {', '.join(PROMISES)}")
