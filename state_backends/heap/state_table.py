"""One named state of the heap backend: its two tables, and the encoding of its entries; and the pinned tables of a
snapshot.

A snapshot pins references to live shards, which are sorted and encoded key group by key group. Pinning costs one dict
copy per table, so its time grows with the number of key groups, not with that of the entries. The task that writes the
shards is in :mod:`state_backends.snapshots.full_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from operator import itemgetter
from typing import Any

from state_backends.base import (
    FrozenShard,
    KeyGroupRange,
    KeyType,
    PinnedValues,
    ShardedTable,
    StateKind,
    TableSnapshot,
    value_class,
)
from state_backends.codec import StateCodec, in_encoded_order
from state_backends.snapshots import Contents, DecodedBlock, EncodedBlock, FullSnapshotResources, StateId

_MAP, _TIMERS = StateKind.MAP, StateKind.TIMERS


class StateTable:
    """The entries of one state: an entry without namespace under the key, any other under (key, namespace).

    Timers use only ``plain``, with stored keys (time, key, namespace) and values ``None``.

    :ivar name: the state's name
    :ivar kind: the kind of state; a name keeps its kind
    :ivar registered: whether the running program has declared it (it may only have been restored)
    """

    __slots__ = ("_ids", "codec", "kind", "name", "namespaced", "plain", "registered")

    def __init__(
        self,
        name: str,
        kind: StateKind,
        codec: StateCodec,
        group_of: Callable[[Any], int],
        key_group_range: KeyGroupRange,
        cache_limit: int,
    ) -> None:
        self.name = name
        self.kind = kind
        self.codec = codec
        self.registered = False
        self.plain = ShardedTable(group_of, key_group_range, self, cache_limit)
        self.namespaced = ShardedTable(group_of, key_group_range, self, cache_limit)
        plain = StateId(name, kind is _TIMERS, kind.value)
        self._ids = [plain] if kind is _TIMERS else [plain, StateId(name, True, kind.value)]
        """Of the tables, in a snapshot."""

    def __len__(self) -> int:
        return len(self.plain) + len(self.namespaced)

    def as_rows(self, empty: Callable[[], StateTable]) -> StateTable:
        """The same state with its entries in dicts, as they are here; ``empty`` makes a table without entries."""
        return self

    def encode_value(self, value: Any) -> bytes:
        """The bytes of a stored value; a map with its entries in canonical order."""
        if self.kind is _MAP:
            value = self.codec.sorted_map(value)
        return self.codec.pack(value)

    def refusal(self, stored_key: Any, value: Any, problem: Exception) -> Exception:
        """The error to show when :meth:`encode_value` raised ``problem``."""
        what = f"value of state {self.name!r} under {stored_key!r}"
        return self.codec.refusal(value, what, problem)

    def parts(self) -> list[tuple[StateId, ShardedTable]]:
        """The two tables with their ids in a snapshot, in canonical order."""
        ids = self._ids
        if len(ids) == 1:
            return [(ids[0], self.plain)]
        return [(ids[0], self.plain), (ids[1], self.namespaced)]

    def encode_block(self, state: StateId, shard: FrozenShard) -> EncodedBlock:
        """The entries of one shard as sorted columns. The error names the value that cannot be written."""
        if self.kind is _TIMERS:
            return self._encode_timers(state, shard)
        pinned: object = shard.entries
        if isinstance(pinned, PinnedValues):
            return self._encode_pinned(state, pinned)
        entries, pack, joined = shard.entries, self.codec.pack, self.codec.joined
        encoded = self._encode_namespaces(map(itemgetter(1), entries)) if state.namespaced else {}
        keys = list(map(itemgetter(0), entries)) if state.namespaced else list(entries)
        if len(encoded) <= 1 and (ordered := in_encoded_order(keys)) is not None:
            stored_keys = list(zip(ordered, repeat(*encoded))) if state.namespaced else ordered
            key_column = pack(ordered)
        else:
            packed = list(map(pack, keys))
            # An encoding is never a prefix of another, so this compares as (key, namespace) would.
            places = [key + encoded[one[1]] for key, one in zip(packed, entries, strict=True)] if encoded else packed
            unordered, order = list(entries), _sorted_positions(places)
            stored_keys = [unordered[position] for position in order]
            key_column = joined([packed[position] for position in order])
        values = list(map(entries.__getitem__, stored_keys))
        value_column = joined(values) if shard.encoded else self._encode_values(values, stored_keys)
        namespace_column = joined([encoded[one[1]] for one in stored_keys]) if state.namespaced else pack(None)
        return EncodedBlock(state, len(values), key_column, namespace_column, value_column)

    def _encode_pinned(self, state: StateId, pinned: PinnedValues) -> EncodedBlock:
        """The values are copied in the order of their encoded keys, once it is known."""
        origin, keys, values = pinned.origin, pinned.keys, pinned.values()
        if origin.column is not None and origin.keys is keys:
            values_column = self._encode_values(values, keys)
            return EncodedBlock(state, len(keys), origin.column, self.codec.pack(None), values_column)
        if origin.column is None and (ordered := in_encoded_order(keys)) is not None:
            origin.put_in_order(ordered, self.codec.pack(ordered))
        return self.encode_block(state, FrozenShard(dict(zip(keys, values, strict=True)), encoded=False))

    def load(self, block: DecodedBlock) -> None:
        if self.kind is _TIMERS:
            assert block.namespaces is not None
            shard = self.plain.shard_for_group(block.key_group)
            shard.update(dict.fromkeys(zip(block.values, block.keys, block.namespaces, strict=True)))
        elif block.namespaces is None:
            shard = self.plain.shard_for_group(block.key_group)
            shard.update(zip(block.keys, block.values, strict=True))
        else:
            shard = self.namespaced.shard_for_group(block.key_group)
            stored_keys = zip(block.keys, block.namespaces, strict=True)
            shard.update(zip(stored_keys, block.values, strict=True))

    def _encode_timers(self, state: StateId, shard: FrozenShard) -> EncodedBlock:
        entries, pack, joined = shard.entries, self.codec.pack, self.codec.joined
        encoded = self._encode_namespaces(map(itemgetter(2), entries))
        times, unordered = list(dict.fromkeys(map(itemgetter(0), entries))), list(map(itemgetter(1), entries))
        if len(encoded) == len(times) == 1 and (ordered := in_encoded_order(unordered)) is not None:
            size = len(ordered)
            return EncodedBlock(state, size, pack(ordered), joined([*encoded.values()] * size), pack(times * size))
        timers = [(pack(key), encoded[namespace], time) for time, key, namespace in entries]
        timers.sort()
        keys, namespaces, all_times = zip(*timers, strict=True)
        return EncodedBlock(state, len(timers), joined(keys), joined(namespaces), pack(list(all_times)))

    def _encode_namespaces(self, namespaces: Iterable[Any]) -> dict[Any, bytes]:
        what = f"namespace of state {self.name!r}"
        return {one: self.codec.encode(one, what) for one in dict.fromkeys(namespaces)}

    def _encode_values(self, values: list[Any], stored_keys: list[Any]) -> bytes:
        """The value column, packed in one call; when that fails, value by value to find the one that cannot be."""
        if self.kind is not _MAP:
            try:
                return self.codec.pack(values)
            except Exception:
                # Some value cannot be written: the loop below finds it and raises the error to show.
                pass
        encoded: list[bytes] = []
        for stored_key, value in zip(stored_keys, values, strict=True):
            try:
                encoded.append(self.encode_value(value))
            except Exception as problem:
                raise self.refusal(stored_key, value, problem) from problem
        return self.codec.joined(encoded)


@value_class
class PinnedPart:
    """One table of one state, pinned: its id in the snapshot, its state, which encodes entries, and the entries."""

    state: StateId
    table: StateTable
    entries: TableSnapshot


class HeapSnapshotResources(FullSnapshotResources):
    """The pinned tables of the backend, in canonical order of their states."""

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


def _sorted_positions(encoded: list[bytes]) -> list[int]:
    """The positions, sorted by their bytes, which are all different."""
    position_of = dict(zip(encoded, range(len(encoded)), strict=True))
    assert len(position_of) == len(encoded), "two keys of one shard have the same encoding"
    return [position_of[one] for one in sorted(position_of)]
