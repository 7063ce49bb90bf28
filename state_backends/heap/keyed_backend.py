"""The heap state backend: keyed state of one subtask in live dicts, one per key group; and the setting of a job.

It keeps Python values as they are and encodes them only for a snapshot. :mod:`state_backends.base.sharded_table` keeps
a snapshot unchanged while processing continues. :mod:`state_backends.heap.entries` has the accesses of state handles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from state_backends.api import (
    BackendEnvironment,
    HeapTimerTable,
    KeyedStateBackend,
    KeyScope,
    TimerQueue,
    TimerService,
    check_same_kind,
    load_full,
)
from state_backends.base import (
    RESERVED_NAME_PREFIX,
    FrozenShard,
    KeyGroupRange,
    KeyType,
    ReducingStateDescriptor,
    StateArgumentError,
    StateDescriptor,
    StateKind,
    StateTtlConfig,
)
from state_backends.codec import StateCodec, default_codec
from state_backends.heap.entries import HeapEntries, HeapMapEntries
from state_backends.heap.expiry import IncrementalCleanup, UnexpiredEntries
from state_backends.heap.incremental_groups import (
    CheckedReader,
    IncrementalHeapStrategy,
    full_format_parts,
    restored_base,
)
from state_backends.heap.state_table import HeapSnapshotResources, StateTable
from state_backends.snapshots import (
    DecodedBlock,
    EncodedBlock,
    FullKeyedStateHandle,
    FullSnapshotTask,
    KeyedSnapshotStrategy,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotResources,
    SnapshotType,
    StateReader,
    StateSchemas,
    StreamFactory,
    block_entries,
    content_digest,
)
from state_backends.ttl import NowMs, with_ttl

if TYPE_CHECKING:
    from state_backends.heap.column_states import ColumnStateTable, HeapReducingColumns
    from state_backends.heap.stored_windows import HeapWindowColumns, WindowEntries

KEY_CACHE_ENTRIES = 1 << 20
"""The number of keys whose shard each table remembers; about 40 bytes each, and the key itself."""


class HeapKeyedStateBackend(KeyedStateBackend):
    """Keyed state of one subtask, in memory."""

    def __init__(
        self,
        key_type: KeyType | None,
        max_parallelism: int,
        key_group_range: KeyGroupRange,
        *,
        codec: StateCodec | None = None,
        now_ms: NowMs = lambda: 0,
        incremental_id: str | None = None,
    ) -> None:
        """An empty backend.

        :param key_type: the declared type of all keys; ``None`` = the type in the restored snapshot, otherwise that of
            the first key
        :param max_parallelism: the number of key groups of the operator
        :param key_group_range: the key groups that this subtask owns
        :param now_ms: the processing time, for state with time-to-live
        :param incremental_id: names the backend in incremental checkpoints, which do not upload key groups whose bytes
            an earlier one has; never given to another backend. ``None`` = all snapshots are full
        :raises KeyGroupError: when the range does not fit the max parallelism
        """
        self.scope = KeyScope(key_type, max_parallelism, key_group_range)
        self._codec = default_codec() if codec is None else codec
        self._tables: dict[str, StateTable] = {}
        self._timer_services: dict[str, TimerService] = {}
        self._schemas = StateSchemas(self._codec)
        self._now_ms = now_ms
        self._ttl: dict[str, StateTtlConfig] = {}
        self._incremental: IncrementalHeapStrategy | None = None
        if incremental_id is not None:
            self._use(IncrementalHeapStrategy(self._pin, key_group_range, incremental_id))

    def table(self, descriptor: StateDescriptor) -> Any:
        stored = self.stored(descriptor.name, descriptor.kind, descriptor.ttl)
        if descriptor.ttl is None:
            return stored
        cleanup = None
        if descriptor.ttl.cleanup_incrementally:
            cleanup = IncrementalCleanup(self._tables[descriptor.name], descriptor.ttl, self._now_ms)
        return with_ttl(stored, descriptor, self._now_ms, cleanup)

    def stored(self, name: str, kind: StateKind, ttl: StateTtlConfig | None) -> Any:
        table = self._table(name, kind)
        self._schemas.declare(name, ttl)
        if ttl is not None:
            self._ttl[name] = ttl
        entries = HeapMapEntries if kind is StateKind.MAP else HeapEntries
        return entries(self.scope, table)

    def reducing_columns(self, descriptor: ReducingStateDescriptor) -> HeapReducingColumns:
        """The reducing state of that name, for folds of whole columns, see its module.

        :raises StateSchemaError: when the name belongs to a state of another kind
        :raises StateArgumentError: when the state has time-to-live
        """
        from state_backends.heap.column_states import ColumnStateTable, HeapReducingColumns

        if descriptor.ttl is not None:
            raise StateArgumentError(
                f"state {descriptor.name!r} has time-to-live, and columns do not note when a value was accessed. "
                "Leave ttl out, or use the row operator."
            )
        self._schemas.declare(descriptor.name, None)
        if not isinstance(self._tables.get(descriptor.name), ColumnStateTable):
            self.reducing_state(descriptor)
        return HeapReducingColumns(self, descriptor)

    def column_table(self, name: str, key_type: KeyType, dtype: Any) -> ColumnStateTable:
        """The table of a declared reducing state, moved into columns if it is not there yet.

        :param key_type: the type of the keys to come; a type that the backend knows already takes precedence
        :param dtype: the type of the values to come
        :raises StateSchemaError: when a value in the state is of another type
        """
        from state_backends.heap.column_states import ColumnEntries, ColumnStateTable, columns_of

        table = self._tables[name]
        if not isinstance(table, ColumnStateTable):
            scope = self.scope
            settled = scope.key_type or scope.adopt(key_type)
            entries = ColumnEntries(settled, scope.max_parallelism, scope.key_group_range, self._codec, dtype)
            table = self._tables[name] = columns_of(table, entries)
        return table

    def window_columns(self, descriptor: ReducingStateDescriptor) -> HeapWindowColumns:
        """The windows of the reducing state of that name, for arrays of whole windows, see its module.

        :raises StateSchemaError: when the name belongs to a state of another kind
        """
        from state_backends.heap.stored_windows import HeapWindowColumns

        assert descriptor.ttl is None, descriptor
        self._schemas.declare(descriptor.name, None)
        self._table(descriptor.name, descriptor.kind)
        return HeapWindowColumns(self, descriptor.name, self._codec)

    def window_table(self, name: str) -> StateTable:
        """The table of a declared reducing state."""
        return self._tables[name]

    def put_windows(self, name: str, entries: WindowEntries) -> None:
        """All that a declared reducing state has with a namespace from now on."""
        from state_backends.heap.stored_windows import WindowTable

        self._tables[name] = WindowTable(self._tables[name], entries)

    def _timer_queue(self, name: str, domain: str) -> TimerQueue:
        table = self._table(f"{RESERVED_NAME_PREFIX}{domain}_{name}", StateKind.TIMERS)
        return TimerQueue(HeapTimerTable(self._codec, table.plain))

    def num_entries(self, state_name: str | None = None) -> int:
        if state_name is not None:
            return len(self._tables[state_name]) if state_name in self._tables else 0
        return sum(len(table) for table in self._tables.values() if table.kind is not StateKind.TIMERS)

    def keys(self, state_name: str, namespace: Any = None) -> list[Any]:
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
        return sorted(self._tables)

    def snapshot_strategy(self, options: SnapshotOptions) -> KeyedSnapshotStrategy:
        """The backend itself writes full snapshots. An incremental backend uses another strategy for all snapshots
        except canonical savepoints."""
        if self._incremental is None or options.type is SnapshotType.CANONICAL_SAVEPOINT:
            return self
        return self._incremental

    def sync_prepare_resources(self, checkpoint_id: int) -> HeapSnapshotResources:
        """Pin the present state. The cost grows with the number of key groups, not with that of the entries."""
        return self._pin()

    def _pin(self) -> HeapSnapshotResources:
        scope = self.scope
        resources = HeapSnapshotResources(
            list(self._tables.values()), self._codec, scope.key_type, scope.max_parallelism, scope.key_group_range
        )
        resources.schema = self._schemas.written()
        now = self._now_ms()
        for index, part in enumerate(resources.parts):
            ttl = self._ttl.get(part.state.name)
            if ttl is not None and ttl.cleanup_full_snapshot:
                unexpired = UnexpiredEntries(part.entries, part.table, ttl.latest_expired_ms(now))
                resources.parts[index] = replace(part, entries=unexpired)
        return resources

    def async_snapshot(
        self, resources: SnapshotResources, stream_factory: StreamFactory, options: SnapshotOptions
    ) -> FullSnapshotTask:
        """A task that writes the pinned state in the full format. It owns the resources from here on."""
        assert isinstance(resources, HeapSnapshotResources)
        return FullSnapshotTask(resources, stream_factory, options)

    def restore(self, handles: Iterable[KeyedStateHandle], reader: StateReader) -> None:
        assert not any(map(len, self._tables.values())), "restore into a backend that has state"
        found = [one for one in handles if one.key_group_range.intersection(self.scope.key_group_range) is not None]
        for handle in found:
            is_full = isinstance(handle, FullKeyedStateHandle)
            for part in full_format_parts(handle):
                source = reader if is_full else CheckedReader(reader)
                load_full(part, source, self.scope, self._codec, self._schemas, self._load)
        for service in self._timer_services.values():
            service.rebuild_index()
        if self._incremental is not None:
            base = restored_base(found, self.scope.key_group_range)
            self._use(
                IncrementalHeapStrategy(self._pin, self.scope.key_group_range, self._incremental.backend_id, base)
            )

    def _load(self, blocks: Iterator[DecodedBlock]) -> None:
        for block in blocks:
            self._table(block.state.name, StateKind(block.state.kind), register=False).load(block)

    def _use(self, incremental: IncrementalHeapStrategy) -> None:
        self._incremental, self.history = incremental, incremental.history

    def dispose(self) -> None:
        """Nothing to do: this backend keeps no files."""

    def fingerprint(self) -> bytes:
        return content_digest(self._codec, self.content())

    def content(self) -> Iterator[tuple[int, EncodedBlock]]:
        for name in sorted(self._tables):
            table = self._tables[name]
            for state, entries in table.parts():
                for group, shard in sorted(entries.shards.items()):
                    if shard:
                        yield group, table.encode_block(state, FrozenShard(shard, encoded=False))

    def entries_of(self, block: EncodedBlock) -> Iterator[tuple[Any, Any, Any]]:
        return block_entries(self._codec, block)

    def _table(self, name: str, kind: StateKind, *, register: bool = True) -> StateTable:
        table = self._tables.get(name)
        if table is None:
            table = self._new_table(name, kind)
        # This declares a state in rows, so it must not stay in columns.
        table = self._tables[name] = table.as_rows(partial(self._new_table, name, table.kind))
        check_same_kind(name, table.kind, kind, registered=table.registered)
        table.registered = table.registered or register
        return table

    def _new_table(self, name: str, kind: StateKind) -> StateTable:
        groups = self.scope.key_group_range
        return StateTable(name, kind, self._codec, self.scope.any_group_of, groups, KEY_CACHE_ENTRIES)


@dataclass(frozen=True, slots=True)
class HeapStateBackend:
    """Keyed state in live Python objects (Flink: ``HashMapStateBackend``). An incremental checkpoint does not upload
    key groups whose bytes an earlier checkpoint has."""

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
