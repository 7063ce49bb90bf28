"""Keyed state of one subtask over an ordered store of any kind.

:mod:`state_backends.rows.layout` maps the entries of states to rows. A snapshot is either full, written from a pinned
view of the store, or consists of the store's own files (:mod:`state_backends.rows.incremental`). The type of the
snapshot and the settings of the backend decide.

The backend makes the working directory, and opens the store, when the first row is read or written. Until then every
snapshot of either form is empty.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from state_backends.api import BackendEnvironment, KeyedStateBackend, KeyScope, TimerQueue, TimerService, load_full
from state_backends.base import RESERVED_NAME_PREFIX, StateDescriptor, StateKind, StateTtlConfig
from state_backends.rows import (
    IncrementalSnapshotStrategy,
    OrderedStore,
    RestoredBase,
    Row,
    StoreKind,
    encode_block,
    encoded_length,
    occupied_parts,
    part_rows,
    rewrite_rows,
    scopes,
)
from state_backends.snapshots import (
    DecodedBlock,
    EncodedBlock,
    FullKeyedStateHandle,
    FullSnapshotStrategy,
    KeyedSnapshotStrategy,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateReader,
    StateSchemas,
    block_entries,
    content_digest,
    describe_stream,
    names_without_timers,
)
from state_backends.store.entries import StoreEntries, StoreMapEntries
from state_backends.store.meta import StoreMeta
from state_backends.store.native_restore import NativeTarget, restore_native
from state_backends.store.parts import StatePart, StoreAccess, StoreTables
from state_backends.store.pinned import StoreSnapshotResources, rows_of_blocks
from state_backends.store.timers import StoreTimerTable
from state_backends.ttl import TtlRowFilter, with_ttl


class StoreKeyedStateBackend(KeyedStateBackend):
    """Keyed state of one subtask, in an ordered store.

    :ivar kind: the kind of store
    :ivar incremental: whether a checkpoint consists of the store's files, and may refer to those of earlier checkpoints
    :ivar store_directory: the directory of the store, once there is one
    """

    def __init__(
        self,
        environment: BackendEnvironment,
        kind: StoreKind,
        *,
        incremental: bool,
        ttl_filter: TtlRowFilter | None = None,
    ) -> None:
        """An empty backend; it makes no file. ``ttl_filter``: for a store whose compaction calls it; the backend tells
        it which rows belong to states with time-to-live."""
        self.kind = kind
        self.incremental = incremental
        self.store_directory = posixpath.join(environment.working_dir, "store")
        self._environment = environment
        self._codec = environment.codec
        self.scope = KeyScope(environment.key_type, environment.max_parallelism, environment.key_group_range)
        self._access = StoreAccess(environment.codec, self._open_store)
        self._timer_services: dict[str, TimerService] = {}
        self._ttl_filter = TtlRowFilter(environment.now_ms) if ttl_filter is None else ttl_filter
        self._tables = StoreTables(self.scope, environment.codec, self._ttl_filter)
        self._schemas = StateSchemas(environment.codec)
        self._full = FullSnapshotStrategy(self._pin)
        self._native: IncrementalSnapshotStrategy | None = None
        self._disposed = False

    # --- keys and states ----------------------------------------------------------------------------------------------

    def table(self, descriptor: StateDescriptor) -> Any:
        stored = self.stored(descriptor.name, descriptor.kind, descriptor.ttl)
        return stored if descriptor.ttl is None else with_ttl(stored, descriptor, self._environment.now_ms)

    def stored(self, name: str, kind: StateKind, ttl: StateTtlConfig | None) -> Any:
        self._schemas.declare(name, ttl)
        entries = StoreMapEntries if kind is StateKind.MAP else StoreEntries
        return entries(self.scope, self._tables.declared(name, kind, ttl), self._access)

    def _timer_queue(self, name: str, domain: str) -> TimerQueue:
        table = self._tables.registered(f"{RESERVED_NAME_PREFIX}{domain}_{name}", StateKind.TIMERS)
        return TimerQueue(StoreTimerTable(self.scope, table.plain, self._access))

    def num_entries(self, state_name: str | None = None) -> int:
        """Counts all rows of the state: exact counters would need a read before each write."""
        tables = [table for table in self._tables if table.kind is not StateKind.TIMERS]
        if state_name is not None:
            named = self._tables.get(state_name)
            tables = [] if named is None else [named]
        return sum(
            sum(1 for _ in scopes(part.state, (key for key, _ in rows)))
            for table in tables
            for part in table.parts()
            for _, rows in self._rows_by_group(part)
        )

    def keys(self, state_name: str, namespace: Any = None) -> list[Any]:
        table = self._tables.get(state_name)
        if table is None:
            return []
        part = table.plain if namespace is None else table.namespaced
        suffix = b"" if namespace is None else self._codec.encode(namespace, f"namespace of state {state_name!r}")
        found = [
            scope[: len(scope) - len(suffix)]
            for _, rows in self._rows_by_group(part)
            for scope in scopes(part.state, (key for key, _ in rows))
            if _has_namespace(scope, suffix)
        ]
        return [self._codec.decode(key, "key") for key in found]

    def state_names(self) -> list[str]:
        return [table.name for table in self._tables]

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def snapshot_strategy(self, options: SnapshotOptions) -> KeyedSnapshotStrategy:
        """Canonical savepoints, and checkpoints of a backend that is not incremental, are in the full format. Native
        savepoints and all other checkpoints consist of the store's files."""
        is_native = options.type is SnapshotType.NATIVE_SAVEPOINT or (
            self.incremental and options.type is not SnapshotType.CANONICAL_SAVEPOINT
        )
        if is_native and self._native is not None:
            return self._native
        return self._full

    def meta(self) -> StoreMeta:
        """The present meaning of the rows."""
        states, schema = self._tables.states(), self._schemas.written()
        return StoreMeta(self.scope.key_type, self.scope.max_parallelism, self.scope.key_group_range, states, schema)

    def restore(self, handles: Iterable[KeyedStateHandle], reader: StateReader) -> None:
        assert self._is_empty(), "restore into a backend that has state"
        wanted = [one for one in handles if one.key_group_range.intersection(self.scope.key_group_range) is not None]
        full = [one for one in wanted if isinstance(one, FullKeyedStateHandle)]
        if len(full) < len(wanted):
            self._restore_native(wanted, reader)
        else:
            for handle in sorted(full, key=lambda one: one.key_group_range):
                load_full(handle, reader, self.scope, self._codec, self._schemas, self._load)
        for service in self._timer_services.values():
            service.rebuild_index()

    def dispose(self) -> None:
        if self._disposed:
            return
        self._disposed = True
        if self._access.opened is not None:
            self._access.opened.close()
        self._environment.file_system.delete_tree(self._environment.working_dir)

    def fingerprint(self) -> bytes:
        return content_digest(self._codec, self.content())

    def content(self) -> Iterator[tuple[int, EncodedBlock]]:
        for table in self._tables:
            for part in table.parts():
                for group, rows in self._rows_by_group(part):
                    yield group, encode_block(self._codec, part.state, rows)

    def entries_of(self, block: EncodedBlock) -> Iterator[tuple[Any, Any, Any]]:
        return block_entries(self._codec, block)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _rows_by_group(self, part: StatePart) -> Iterator[tuple[int, Iterator[Row]]]:
        """The rows of a part, by key group."""
        store = self._access.opened
        if store is not None:
            groups = self.scope.key_group_range
            for group, state_id in occupied_parts(store, groups.first, groups.last):
                if state_id == part.state_id:
                    yield group, part_rows(store, group, state_id)

    def _is_empty(self) -> bool:
        store = self._access.opened
        return store is None or next(store.scan(b"", None), None) is None

    def _open_store(self) -> OrderedStore:
        environment = self._environment
        assert not self._disposed, "a backend was used after it was disposed of"
        environment.file_system.make_dirs(environment.working_dir)
        store = self.kind.open(environment.file_system, self.store_directory, environment.unique)
        self._use_store(store, None)
        return store

    def _use_store(self, store: OrderedStore, base: RestoredBase | None) -> None:
        environment = self._environment
        self._access.opened = store
        self._native = IncrementalSnapshotStrategy(
            store,
            self.kind,
            environment.file_system,
            posixpath.join(environment.working_dir, "snapshots"),
            self.scope.key_group_range,
            environment.unique,
            self._encoded_meta,
            base,
        )
        self.history = self._native.history

    def _encoded_meta(self) -> bytes:
        return self.meta().to_bytes(self._codec)

    def _pin(self) -> StoreSnapshotResources:
        store = self._access.opened
        pinned = None if store is None else store.snapshot()
        return StoreSnapshotResources(self._codec, self.meta(), pinned, self._ttl_filter.for_full_snapshot())

    def _load(self, blocks: Iterator[DecodedBlock]) -> None:
        rows = rows_of_blocks(blocks, lambda state: self._tables.restored(state).state_id, self._codec)
        first = next(rows, None)
        if first is not None:
            self._access.store().ingest(chain((first,), rows))

    def _restore_native(self, handles: Sequence[KeyedStateHandle], reader: StateReader) -> None:
        environment, file_system = self._environment, self._environment.file_system
        if self._access.opened is not None:
            self._access.opened.close()
            self._access.opened = self._native = None
            file_system.delete_tree(self.store_directory)
        file_system.make_dirs(environment.working_dir)
        target = NativeTarget(
            self.kind,
            file_system,
            self.store_directory,
            posixpath.join(environment.working_dir, "restore"),
            environment.unique,
            self.scope.key_group_range,
            self._codec,
        )
        store, meta, base = restore_native(handles, reader, target)
        self._use_store(store, base)
        self.scope.check_restored(meta.key_type, meta.max_parallelism)
        path = describe_stream(next(handles[0].streams()))
        codec = self._schemas.restore(meta.schema, names_without_timers(state for _, state in meta.states), path)
        rewrite_rows(store, meta.states, codec, self._codec)
        self._tables.adopt(meta.states)


def _has_namespace(scope: bytes, namespace: bytes) -> bool:
    return not namespace or scope[encoded_length(scope, 0) :] == namespace
