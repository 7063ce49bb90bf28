"""The heap state backend as a setting of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from state_backends.api import BackendEnvironment
from state_backends.heap.keyed_backend import HeapKeyedStateBackend


@dataclass(frozen=True, slots=True)
class HeapStateBackend:
    """Keyed state in live Python objects (Flink: ``HashMapStateBackend``). Incremental checkpoints leave out key
    groups whose bytes an earlier one has."""

    name: ClassVar[str] = "heap"

    incremental: bool = False

    def create_keyed_backend(self, environment: BackendEnvironment) -> HeapKeyedStateBackend:
        return HeapKeyedStateBackend(
            environment.key_type,
            environment.max_parallelism,
            environment.key_group_range,
            codec=environment.codec,
            now_ms=environment.now_ms,
            incremental_id=environment.unique if self.incremental else None,
        )
