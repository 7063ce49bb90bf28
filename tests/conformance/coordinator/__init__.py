"""Replays of the vectors about the coordinator, state and restore: one function per kind.

Each takes a vector and returns its mismatches. It raises ``MalformedVector`` for any departure from the format.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.compare import Vector
from tests.conformance.coordinator import (
    copy_on_write,
    failures,
    finished,
    incremental,
    key_groups,
    local_recovery,
    moved_state,
    retained,
    sequence,
    snapshots,
    states,
    stopping,
    storage,
    task_side,
    timers,
    triggers,
    ttl,
)

KINDS: dict[str, Callable[[Vector], list[str]]] = {
    **key_groups.KINDS,
    **moved_state.KINDS,
    **triggers.KINDS,
    **failures.KINDS,
    **finished.KINDS,
    **retained.KINDS,
    **sequence.KINDS,
    **stopping.KINDS,
    **task_side.KINDS,
    **storage.KINDS,
    **states.KINDS,
    **timers.KINDS,
    **snapshots.KINDS,
    **local_recovery.KINDS,
    **incremental.KINDS,
    **ttl.KINDS,
    **copy_on_write.KINDS,
}
