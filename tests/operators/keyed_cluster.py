"""All subtasks of one keyed operator, with records routed by key group, and restarts at any parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.elements.operator import Operator
from state_backends.base import STRING, KeyType, key_group_for, operator_index_for_key_group
from tests.operators.harness import MAX_PARALLELISM, START_NS, Checkpoint, Harness


class KeyedCluster:
    """Behaves as one operator whatever its parallelism."""

    def __init__(
        self,
        make: Callable[[], Operator],
        key: Callable[[Any], Any],
        parallelism: int = 1,
        key_type: KeyType = STRING,
    ) -> None:
        self._make, self._key_type = make, key_type
        self._key = key
        self._checkpoints = 0
        self._now_ns = START_NS
        self.dropped = 0
        self._start(parallelism, None)

    def _start(self, parallelism: int, restored: Checkpoint | None) -> None:
        self.subtasks = [
            Harness(
                self._make(),
                subtask=subtask,
                parallelism=parallelism,
                key=self._key,
                key_type=self._key_type,
                restored=restored,
                now_ns=self._now_ns,
            )
            for subtask in range(parallelism)
        ]

    def process(self, records: Iterable[tuple[Any, int]]) -> None:
        """Records with timestamps, each to the subtask that owns its key."""
        routed: list[list[tuple[Any, int]]] = [[] for _ in self.subtasks]
        for value, stamp in records:
            group = key_group_for(self._key(value), MAX_PARALLELISM, self._key_type)
            routed[operator_index_for_key_group(MAX_PARALLELISM, len(self.subtasks), group)].append((value, stamp))
        for harness, part in zip(self.subtasks, routed, strict=True):
            if part:
                harness.process([value for value, _ in part], [stamp for _, stamp in part])

    def process_2(self, records: Iterable[tuple[Any, int]], key: Callable[[Any], Any] | None = None) -> None:
        """The same through the second input: to the owner of ``key``, or without a key to every subtask."""
        for value, stamp in records:
            owner = None
            if key is not None:
                group = key_group_for(key(value), MAX_PARALLELISM)
                owner = operator_index_for_key_group(MAX_PARALLELISM, len(self.subtasks), group)
            for subtask, harness in enumerate(self.subtasks):
                if owner in (None, subtask):
                    harness.process_2([value], [stamp], key)

    def watermark(self, timestamp_ms: int) -> None:
        for harness in self.subtasks:
            harness.watermark(timestamp_ms)

    def advance_ms(self, duration_ms: int) -> None:
        self._now_ns += duration_ms * 1_000_000
        for harness in self.subtasks:
            harness.advance_to_ns(self._now_ns)

    def restart(self, parallelism: int) -> None:
        """Snapshot everything, throw the subtasks away, restore."""
        self._checkpoints += 1
        checkpoint = Checkpoint(self._checkpoints)
        for harness in self.subtasks:
            harness.snapshot(self._checkpoints, checkpoint)
            self.dropped += harness.counter("numLateRecordsDropped")
            harness.close()
        self._start(parallelism, checkpoint)

    def late_records_dropped(self) -> int:
        return self.dropped + sum(harness.counter("numLateRecordsDropped") for harness in self.subtasks)

    def take_stamped(self) -> list[tuple[Any, int | None]]:
        """The output of all subtasks since the last call, sorted: subtasks have no common order."""
        return sorted((pair for harness in self.subtasks for pair in harness.take_stamped()), key=repr)
