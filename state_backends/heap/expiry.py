"""Removes expired state from the heap, a little with each access, and keeps it out of full snapshots.

Without either of these, expired state stays until it is read.
"""

from __future__ import annotations

from typing import Any

from state_backends.base import FrozenShard, ShardedTable, StateKind, StateTtlConfig, TableSnapshot
from state_backends.heap.state_table import StateTable
from state_backends.ttl import NowMs

_EMPTY = object()


class IncrementalCleanup:
    """At each access, looks at the next entries of a state and removes those that have expired
    (TtlIncrementalCleanup).

    It goes through the key groups in order, and through the entries that a group has when its turn begins, in their
    order. So the order depends only on the program. Entries that come later are visited in the next round.
    """

    def __init__(self, table: StateTable, config: StateTtlConfig, now_ms: NowMs) -> None:
        self._table = table
        self._config = config
        self._now_ms = now_ms
        self._parts: list[tuple[ShardedTable, int]] = []
        self._part: tuple[ShardedTable, int] | None = None
        self._keys: list[Any] = []

    def __call__(self, accesses: int) -> None:
        """The state was accessed for this number of entries."""
        budget = accesses * self._config.cleanup_incrementally
        limit = self._config.latest_expired_ms(self._now_ms())
        begun = False
        while budget > 0:
            if not self._keys and not self._next_part():
                if begun:
                    return
                begun = True
                self._begin()
                continue
            if self._keys:
                self._look_at(self._keys.pop(), limit)
                budget -= 1

    def _begin(self) -> None:
        parts = [(table, group) for table in (self._table.plain, self._table.namespaced) for group in table.shards]
        self._parts = sorted(parts, key=lambda part: part[1], reverse=True)

    def _next_part(self) -> bool:
        if not self._parts:
            return False
        self._part = table, group = self._parts.pop()
        self._keys = list(reversed(table.shards[group]))
        return True

    def _look_at(self, stored_key: Any, limit: int) -> None:
        assert self._part is not None
        table, group = self._part
        shard = table.shards[group]
        value = shard.get(stored_key, _EMPTY)
        if value is _EMPTY:
            return
        living = _living(value, self._table.kind, limit)
        if living is not value:
            if table.stale:
                table.touch(shard)
            if living is None:
                del shard[stored_key]
            else:
                shard[stored_key] = living


class UnexpiredEntries(TableSnapshot):
    """A pinned table without entries that had expired at the moment of the snapshot."""

    __slots__ = ("_entries", "_limit_ms", "_state")

    def __init__(self, entries: TableSnapshot, table: StateTable, limit_ms: int) -> None:
        """A view of a pinned table, without entries that were accessed at ``limit_ms`` or before."""
        # Both views share the shards: the pinned table is still told when a writer must freeze one.
        self.shards = entries.shards
        self.version = entries.version
        self._entries = entries
        self._state = table
        self._limit_ms = limit_ms

    def groups_with_entries(self) -> list[int]:
        """The key groups with unexpired entries, ascending."""
        return [group for group in self._entries.groups_with_entries() if self._has_living(group)]

    def take(self, group: int) -> FrozenShard | None:
        """The entries of a group that have not expired; ``None`` without any. Errors as of a pinned table."""
        shard = self._entries.take(group)
        if shard is None:
            return None
        kept: dict[Any, Any] = {}
        for stored_key, value in shard.entries.items():
            living = self._kept(value, shard.encoded)
            if living is not None:
                kept[stored_key] = living
        return FrozenShard(kept, shard.encoded) if kept else None

    def release(self) -> None:
        """Release the entries; a second call does nothing."""
        self._entries.release()
        self.shards = {}

    def _has_living(self, group: int) -> bool:
        shard = self.shards[group]
        if isinstance(shard, FrozenShard):
            if shard.problem is not None:
                return True  # taking the group raises the error
            return any(self._kept(value, shard.encoded) is not None for value in shard.entries.values())
        return any(self._kept(value, encoded=False) is not None for value in shard.values())

    def _kept(self, value: Any, encoded: bool) -> Any:
        if not encoded:
            return _living(value, self._state.kind, self._limit_ms)
        decoded = self._state.codec.decode(value)
        living = _living(decoded, self._state.kind, self._limit_ms)
        if living is None or living is decoded:
            return None if living is None else value
        return self._state.encode_value(living)


def _living(value: Any, kind: StateKind, limit_ms: int) -> Any:
    """The unexpired rest of a stored value: the value itself when nothing has expired, ``None`` when all has."""
    if kind is StateKind.LIST:
        elements = [pair for pair in value if pair[0] > limit_ms]
        return value if len(elements) == len(value) else (elements or None)
    if kind is StateKind.MAP:
        entries = {map_key: pair for map_key, pair in value.items() if pair[0] > limit_ms}
        return value if len(entries) == len(value) else (entries or None)
    return value if value[0] > limit_ms else None
