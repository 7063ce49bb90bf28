"""Snapshots of the heap backend: references to live shards now, sorted and written key group by key group.

Pinning costs one dict copy per table, so its time grows with the number of key groups and not with that
of the entries. A step writes whole key groups, at least one, until it has written ``entries_per_step``.
"""

from __future__ import annotations

from dataclasses import dataclass

from state_backends.encoding import StateCodec
from state_backends.full_snapshot import EncodedBlock, FullSnapshotWriter, SnapshotHeader, StateId
from state_backends.handles import StateScope
from state_backends.heap_tables import StateTable
from state_backends.key_groups import KeyGroupRange, KeyType
from state_backends.keyed_handles import KeyedStateHandle
from state_backends.sharded_table import TableSnapshot
from state_backends.snapshot import (
    CheckpointStream,
    SnapshotOptions,
    SnapshotResources,
    SnapshotResult,
    SnapshotTask,
    StreamFactory,
)


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


class HeapSnapshotResources(SnapshotResources):
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
        super().__init__()
        self.codec = codec
        self.key_type = key_type
        self.max_parallelism = max_parallelism
        self.key_group_range = key_group_range
        self.parts = [
            PinnedPart(state, table, entries.snapshot())
            for table in sorted(tables, key=lambda one: one.name)
            for state, entries in table.parts()
        ]

    def _release(self) -> None:
        for part in self.parts:
            part.entries.release()


class HeapSnapshotTask(SnapshotTask[KeyedStateHandle]):
    """Writes the pinned entries in the full format."""

    def __init__(
        self, resources: HeapSnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> None:
        super().__init__(resources)
        self._pinned = resources
        self._stream_factory = stream_factory
        self._options = options
        self._stream: CheckpointStream | None = None
        self._writer: FullSnapshotWriter | None = None
        self._groups: list[int] = []
        self._next_group = 0

    def _advance(self) -> SnapshotResult[KeyedStateHandle] | None:
        if self._writer is None:
            states = self._plan()
            if not states:
                return SnapshotResult(None)
            self._open(states)
        assert self._writer is not None
        written = 0
        while self._next_group < len(self._groups) and written < self._options.entries_per_step:
            group = self._groups[self._next_group]
            blocks = self._blocks(group)
            self._writer.write_group(group, blocks)
            written += sum(block.count for block in blocks)
            self._next_group += 1
        if self._next_group < len(self._groups):
            return None
        return SnapshotResult(self._writer.finish())

    def _plan(self) -> list[StateId]:
        """The states that have entries; notes the key groups that have some."""
        states = []
        groups: set[int] = set()
        for part in self._pinned.parts:
            with_entries = part.entries.groups_with_entries()
            if with_entries:
                states.append(part.state)
                groups.update(with_entries)
        self._groups = sorted(groups)
        return states

    def _open(self, states: list[StateId]) -> None:
        pinned = self._pinned
        assert pinned.key_type is not None, "there are entries, so some key had a type"
        header = SnapshotHeader(
            pinned.key_type,
            pinned.max_parallelism,
            pinned.key_group_range,
            tuple(states),
            self._options.compression,
        )
        self._stream = self._stream_factory.create_stream(StateScope.EXCLUSIVE)
        self._writer = FullSnapshotWriter(self._stream, pinned.codec, header)

    def _blocks(self, group: int) -> list[EncodedBlock]:
        blocks = []
        for part in self._pinned.parts:
            shard = part.entries.take(group)
            if shard is not None:
                blocks.append(part.table.encode_block(part.state, shard))
        return blocks

    def _discard(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def fingerprint(self) -> tuple[object, ...]:
        """How far the task has come."""
        return (self.status.value, tuple(self._groups), self._next_group)
