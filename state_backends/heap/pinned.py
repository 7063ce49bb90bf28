"""What a snapshot pins of the heap backend: references to live shards, sorted and encoded key group by key group.

Pinning costs one dict copy per table, so its time grows with the number of key groups and not with that
of the entries. The task that writes them is in :mod:`state_backends.snapshots.full_task`.
"""

from __future__ import annotations

from dataclasses import dataclass

from state_backends.base import KeyGroupRange, KeyType, TableSnapshot
from state_backends.codec import StateCodec
from state_backends.heap.state_table import StateTable
from state_backends.snapshots import Contents, EncodedBlock, FullSnapshotResources, StateId


@dataclass(frozen=True, slots=True)
class PinnedPart:
    """One table of one state, pinned.

    :ivar state: its id in the snapshot
    :ivar table: the state, for how its entries are written
    :ivar entries: the pinned entries
    """

    state: StateId
    table: StateTable
    entries: TableSnapshot


class HeapSnapshotResources(FullSnapshotResources):
    """Everything a snapshot needs of the backend.

    :ivar parts: the pinned tables, in canonical order of their states
    """

    def __init__(
        self,
        tables: list[StateTable],
        codec: StateCodec,
        key_type: KeyType | None,
        max_parallelism: int,
        key_group_range: KeyGroupRange,
    ) -> None:
        super().__init__(codec, key_type, max_parallelism, key_group_range)
        self.parts = [
            PinnedPart(state, table, entries.snapshot())
            for table in sorted(tables, key=lambda one: one.name)
            for state, entries in table.parts()
        ]
        self._with_entries: list[PinnedPart] = []

    def contents(self) -> Contents:
        states = []
        groups: set[int] = set()
        for part in self.parts:
            with_entries = part.entries.groups_with_entries()
            if with_entries:
                states.append(part.state)
                groups.update(with_entries)
                self._with_entries.append(part)
        return Contents(states, sorted(groups))

    def blocks(self, key_group: int) -> list[EncodedBlock]:
        blocks = []
        for part in self._with_entries:
            shard = part.entries.take(key_group)
            if shard is not None:
                blocks.append(part.table.encode_block(part.state, shard))
        return blocks

    def _release(self) -> None:
        for part in self.parts:
            part.entries.release()
