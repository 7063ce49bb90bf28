"""The heap state backend: keyed state of one subtask in live dicts, one per key group.

It keeps Python values as they are and encodes them only for a snapshot. How a snapshot stays untouched by
what is processed meanwhile is in :mod:`state_backends.sharded_table`; the states themselves are in
:mod:`state_backends.heap_states` and :mod:`state_backends.heap_folding_states`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from state_backends.descriptors import (
    RESERVED_NAME_PREFIX,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from state_backends.encoding import StateCodec, default_codec
from state_backends.errors import KeyGroupError, StateSchemaError
from state_backends.full_snapshot import FullSnapshotReader, SnapshotHeader
from state_backends.heap_folding_states import HeapAggregatingState, HeapReducingState
from state_backends.heap_snapshot import HeapSnapshotResources, HeapSnapshotTask
from state_backends.heap_states import HeapListState, HeapMapState, HeapValueState, KeyContext
from state_backends.heap_tables import StateTable
from state_backends.key_groups import (
    KeyGroupRange,
    KeyType,
    check_keys,
    check_parallelism,
    infer_key_type,
    key_group_function,
)
from state_backends.keyed_handles import KeyedStateHandle, full_handle
from state_backends.sharded_table import FrozenShard
from state_backends.snapshot import SnapshotOptions, SnapshotResources, StateReader, StreamFactory
from state_backends.timers import TimerService

__all__ = ["DEFAULT_KEY_CACHE_ENTRIES", "HeapKeyedStateBackend"]

DEFAULT_KEY_CACHE_ENTRIES = 1 << 20
"""How many keys each table remembers the shard of; about 40 bytes each, beside the key itself."""


class HeapKeyedStateBackend:
    """Keyed state of one subtask, in memory."""

    def __init__(
        self,
        key_type: KeyType | None,
        max_parallelism: int,
        key_group_range: KeyGroupRange,
        *,
        codec: StateCodec | None = None,
        key_cache_entries: int = DEFAULT_KEY_CACHE_ENTRIES,
    ) -> None:
        """An empty backend.

        :param key_type: the declared type of all keys; ``None`` = that of the snapshot restored, else of
            the first key
        :param max_parallelism: the number of key groups of the operator
        :param key_group_range: those that this subtask owns
        :raises KeyGroupError: when the range does not fit the max parallelism
        """
        check_parallelism(1, max_parallelism)
        if key_group_range.last >= max_parallelism:
            raise KeyGroupError(f"key groups {key_group_range} exceed the max parallelism {max_parallelism}.")
        assert key_cache_entries > 0
        self.key_type: KeyType | None = key_type
        self.max_parallelism = max_parallelism
        self.key_group_range = key_group_range
        self._codec = default_codec() if codec is None else codec
        self._typed_group_of = None if key_type is None else key_group_function(key_type, max_parallelism)
        self._key_cache_entries = key_cache_entries
        # Checking one scalar key is a comparison of types; anything else takes the long way.
        self._plain_key_type = _plain_type(key_type)
        self._keys = KeyContext()
        self._tables: dict[str, StateTable] = {}
        self._timer_services: dict[str, TimerService] = {}

    @property
    def current_key(self) -> Any:
        """The key that single access refers to.

        :raises StateArgumentError: when none was set
        """
        return self._keys.require()

    def set_current_key(self, key: Any) -> None:
        """Scope single access to a key.

        :raises KeyTypeError: when it is not of the declared type
        """
        if type(key) is not self._plain_key_type:
            check_keys((key,), self.key_type or self._adopt_key_type(infer_key_type(key)))
        self._keys.key = key

    def clear_current_key(self) -> None:
        """Scope single access to no key: it raises until another key is set."""
        self._keys.key = None

    def value_state(self, descriptor: ValueStateDescriptor) -> HeapValueState:
        """The value state of that name.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        return HeapValueState(self._keys, self._table(descriptor.name, descriptor.kind), descriptor)

    def list_state(self, descriptor: ListStateDescriptor) -> HeapListState:
        """The list state of that name.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        return HeapListState(self._keys, self._table(descriptor.name, descriptor.kind))

    def map_state(self, descriptor: MapStateDescriptor) -> HeapMapState:
        """The map state of that name.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        return HeapMapState(self._keys, self._table(descriptor.name, descriptor.kind))

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> HeapReducingState:
        """The reducing state of that name.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        return HeapReducingState(self._keys, self._table(descriptor.name, descriptor.kind), descriptor)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> HeapAggregatingState:
        """The aggregating state of that name.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        return HeapAggregatingState(self._keys, self._table(descriptor.name, descriptor.kind), descriptor)

    def timer_service(self, name: str) -> TimerService:
        """The timers of that name, the same object at each call."""
        service = self._timer_services.get(name)
        if service is None:
            tables = [
                self._table(f"{RESERVED_NAME_PREFIX}{domain}_{name}", StateKind.TIMERS)
                for domain in ("event", "processing")
            ]
            service = self._timer_services[name] = TimerService(*tables)
        return service

    def num_entries(self, state_name: str | None = None) -> int:
        """How many (key, namespace) have content, in one state or in all; timers only when named."""
        if state_name is not None:
            return len(self._tables[state_name]) if state_name in self._tables else 0
        return sum(len(table) for table in self._tables.values() if table.kind is not StateKind.TIMERS)

    def keys(self, state_name: str, namespace: Any = None) -> list[Any]:
        """The keys with content in a state and namespace, ordered by key group and encoded key."""
        table = self._tables.get(state_name)
        if table is None:
            return []
        found = []
        for _, shard in sorted((table.plain if namespace is None else table.namespaced).shards.items()):
            if namespace is None:
                keys = list(shard)
            else:
                keys = [key for key, its_namespace in shard if its_namespace == namespace]
            found += sorted(keys, key=self._codec.encode)
        return found

    def state_names(self) -> list[str]:
        """The names of all states that were declared or restored, sorted; those of timers included."""
        return sorted(self._tables)

    def snapshot_strategy(self, options: SnapshotOptions) -> HeapKeyedStateBackend:
        """The backend itself: all its snapshots are full ones."""
        return self

    def sync_prepare_resources(self, checkpoint_id: int) -> HeapSnapshotResources:
        """Pin the present state. Its cost grows with the number of key groups, not of entries."""
        return HeapSnapshotResources(
            list(self._tables.values()),
            self._codec,
            self.key_type,
            self.max_parallelism,
            self.key_group_range,
        )

    def async_snapshot(
        self,
        resources: SnapshotResources,
        checkpoint_id: int,
        timestamp: int,
        stream_factory: StreamFactory,
        options: SnapshotOptions,
    ) -> HeapSnapshotTask:
        """A task that writes what was pinned in the full format. It owns the resources from here on."""
        assert isinstance(resources, HeapSnapshotResources)
        return HeapSnapshotTask(resources, stream_factory, options)

    def restore(self, handles: Iterable[KeyedStateHandle], reader: StateReader) -> None:
        """Read the entries of the own key groups from snapshots into this backend, which must be empty.

        The handles may cover more than the own key groups (a rescale): the rest is left out.

        :raises CorruptStateError: when a file is damaged
        :raises MissingStateError: when a file is not there
        :raises StateSchemaError: when key type, max parallelism or the kind of a state differ
        """
        assert not any(map(len, self._tables.values())), "restore into a backend that has state"
        for handle in handles:
            common = handle.key_group_range.intersection(self.key_group_range)
            if common is None:
                continue
            handle = full_handle(handle, "heap")
            with reader.open(handle.stream) as file:
                snapshot = FullSnapshotReader(file, handle, self._codec)
                self._check_header(snapshot.header)
                for block in snapshot.blocks(common):
                    kind = StateKind(block.state.kind)
                    self._table(block.state.name, kind, register=False).load(block)
        for service in self._timer_services.values():
            service.rebuild_index()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing to do: no snapshot of this backend builds on an earlier one."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Nothing to do: the task of the snapshot is cancelled by its owner."""

    def notify_checkpoint_subsumed(self, checkpoint_id: int) -> None:
        """Nothing to do: this backend keeps no files."""

    def dispose(self) -> None:
        """Nothing to do: this backend keeps no files."""

    def fingerprint(self) -> bytes:
        """A digest of the content: equal for equal state, whatever its history and its snapshots."""
        digest = hashlib.blake2b(digest_size=16)
        for name in sorted(self._tables):
            table = self._tables[name]
            for state, entries in table.parts():
                for group, shard in sorted(entries.shards.items()):
                    if shard:
                        block = table.encode_block(state, FrozenShard(shard, encoded=False))
                        digest.update(self._codec.encode([name, state.namespaced, state.kind, group]))
                        digest.update(block.keys + block.namespaces + block.values)
        return digest.digest()

    def _table(self, name: str, kind: StateKind, *, register: bool = True) -> StateTable:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = StateTable(
                name, kind, self._codec, self._group_of, self.key_group_range, self._key_cache_entries
            )
        if table.kind is not kind:
            origin = "declared" if table.registered else "restored"
            raise StateSchemaError(
                f"state {name!r} was {origin} as {table.kind.value} state and cannot be {kind.value} state too. "
                "Give the new state another name."
            )
        table.registered = table.registered or register
        return table

    def _adopt_key_type(self, key_type: KeyType) -> KeyType:
        self.key_type = key_type
        self._plain_key_type = _plain_type(key_type)
        self._typed_group_of = key_group_function(key_type, self.max_parallelism)
        return key_type

    def _group_of(self, key: Any) -> int:
        if self._typed_group_of is None:
            self._adopt_key_type(infer_key_type(key))
        assert self._typed_group_of is not None
        return self._typed_group_of(key)

    def _check_header(self, header: SnapshotHeader) -> None:
        if self.key_type is None:
            self._adopt_key_type(header.key_type)
        if header.key_type != self.key_type:
            raise StateSchemaError(
                f"the snapshot has keys of type {header.key_type}, the program declares {self.key_type}: "
                "the same key would belong to another key group. Declare the key type of the snapshot."
            )
        if header.max_parallelism != self.max_parallelism:
            raise StateSchemaError(
                f"the snapshot has max parallelism {header.max_parallelism}, the operator {self.max_parallelism}: "
                "keys would change their key group. Set the max parallelism of the snapshot."
            )


def _plain_type(key_type: KeyType | None) -> type | None:
    """The Python type that says all about a key of this type; ``None`` for tuples and undeclared keys."""
    return None if key_type is None or key_type.name == "TUPLE" else key_type.python_type
