"""Kinds that ask for what the state backends do not have: skipped, each with its reason."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.compare import Vector
from tests.conformance.outcome import Skip

_REASONS = {
    "local_state_store": "belongs to the state backends: local recovery is not built yet",
    "restore_alternatives": "belongs to the state backends: local recovery is not built yet",
    "restore_procedure": "belongs to the state backends: local recovery is not built yet",
    "incremental_snapshot": "belongs to the state backends: incremental snapshots are not built yet",
    "state_ttl": "belongs to the state backends: time-to-live of state is not built yet",
    "heap_copy_on_write": "belongs to the state backends: a heap table that copies values for the program is not built "
    "(the heap backend copies for the snapshot instead, so the program never gets a copy)",
}


def _skip(reason: str) -> Callable[[Vector], list[str]]:
    def check(vector: Vector) -> list[str]:
        raise Skip(reason)

    return check


KINDS = {kind: _skip(reason) for kind, reason in _REASONS.items()}
