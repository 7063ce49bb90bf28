"""What is promised of committed output: by a mode, by a sink, or asked for by the user."""

from __future__ import annotations

from engine.elements.errors import ConfigurationError
from engine.protocols.barriers import CheckpointProtocol

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE, NONE = "exactly-once", "at-least-once", "at-most-once", "none"
PROMISES = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE, NONE)
"""What output may be judged by, as multisets: the reference, more than it, less than it, anything."""

PER_KEY = "exactly-once-per-key"
"""What sinks offer that replace rows: the last row of each key, in the end."""


def promise_of(protocol: CheckpointProtocol) -> str:
    """What a mode promises. Without checkpoints a restarted job begins again, and what its first attempt has
    committed stays: nothing is promised."""
    if not protocol.takes_checkpoints:
        return NONE
    return EXACTLY_ONCE if protocol.consistent_cut else AT_LEAST_ONCE


def check_promise(promise: str | None) -> None:
    """:raises ConfigurationError: when there is no such promise"""
    if promise is not None and promise not in PROMISES:
        raise ConfigurationError(f"there is no promise {promise!r}; there are: {', '.join(PROMISES)}")
