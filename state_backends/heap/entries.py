"""The entries of a state on the heap, as the handles of :mod:`state_backends.api.states` see them.

Each state has two tables: entries without a namespace are stored under the bare key, all others under
``(key, namespace)`` in the shard of the key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from state_backends.api import Batch, First, Fold, KeyScope, Namespaces
from state_backends.base import Shard, ShardedTable, check_lengths
from state_backends.heap.state_table import StateTable


class _HeapTable:
    """The common part of both kinds of table, see :class:`state_backends.api.KeyedTable`."""

    __slots__ = ("_state", "codec", "name", "scope")

    def __init__(self, scope: KeyScope, state: StateTable) -> None:
        self._state = state
        self.scope = scope
        self.name = state.name
        self.codec = state.codec

    def delete(self, namespace: Any) -> None:
        shard, stored_key = self._locate(namespace)
        shard.pop(stored_key, None)

    def delete_many(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        for stored_key, shard in self._entries(keys, namespaces):
            shard.pop(stored_key, None)

    def _locate(self, namespace: Any) -> tuple[Shard, Any]:
        """The shard and stored key of the current key, ready to be read or changed."""
        key = self.scope.key
        if key is None:
            self.scope.require()
        if namespace is None:
            table, stored_key = self._state.plain, key
        else:
            table, stored_key = self._state.namespaced, (key, namespace)
        shard = table.shard_of[key]
        if table.stale:
            table.touch(shard)
        return shard, stored_key

    def begin(self, keys: Sequence[Any], namespaces: Namespaces) -> Batch:
        """The entries of a batch. Shards are looked up lazily in C, and touched first while a snapshot is open."""
        stored_keys: Iterable[Any] = keys
        if namespaces is None:
            table = self._state.plain
        else:
            check_lengths(keys, namespaces)
            table, stored_keys = self._state.namespaced, zip(keys, namespaces, strict=True)
        shards = map(table.shard_of.__getitem__, keys)
        if not table.stale:
            return stored_keys, shards, None
        touched = list(shards)
        table.touch_all(touched)
        return stored_keys, touched, None

    def _entries(self, keys: Sequence[Any], namespaces: Namespaces) -> Iterator[tuple[Any, Shard]]:
        """Pairs of stored key and shard for a batch, each shard ready to be read or changed."""
        stored_keys, shards, _ = self.begin(keys, namespaces)
        return zip(stored_keys, shards, strict=True)


class HeapEntries(_HeapTable):
    """One stored value for each (key, namespace)."""

    __slots__ = ()

    def get(self, namespace: Any) -> Any:
        # _locate, inlined: a call would slow down each access
        key = self.scope.key
        if key is None:
            self.scope.require()
        if namespace is None:
            table, stored_key = self._state.plain, key
        else:
            table, stored_key = self._state.namespaced, (key, namespace)
        shard = table.shard_of[key]
        if table.stale:
            table.touch(shard)
        return shard.get(stored_key)

    def put(self, namespace: Any, value: Any) -> None:
        # _locate, as in get
        key = self.scope.key
        if key is None:
            self.scope.require()
        if namespace is None:
            table, stored_key = self._state.plain, key
        else:
            table, stored_key = self._state.namespaced, (key, namespace)
        shard = table.shard_of[key]
        if table.stale:
            table.touch(shard)
        if value is None:
            shard.pop(stored_key, None)
        else:
            shard[stored_key] = value

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces, default: Any = None) -> list[Any]:
        return [shard.get(stored_key, default) for stored_key, shard in self._entries(keys, namespaces)]

    def put_many(self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any]) -> None:
        for (stored_key, shard), value in zip(self._entries(keys, namespaces), values, strict=True):
            if value is None:
                shard.pop(stored_key, None)
            else:
                shard[stored_key] = value

    @property
    def plain(self) -> ShardedTable:
        """The entries without a namespace."""
        return self._state.plain

    def fold(self, namespace: Any, value: Any, first: First | None, fold: Fold) -> None:
        # _locate, as in get
        key = self.scope.key
        if key is None:
            self.scope.require()
        if namespace is None:
            table, stored_key = self._state.plain, key
        else:
            table, stored_key = self._state.namespaced, (key, namespace)
        shard = table.shard_of[key]
        if table.stale:
            table.touch(shard)
        before = shard.get(stored_key)
        if before is not None:
            shard[stored_key] = fold(before, value)
        else:
            shard[stored_key] = value if first is None else first(value)

    def append(self, namespace: Any, element: Any) -> None:
        self.extend(namespace, (element,))

    def extend(self, namespace: Any, elements: Sequence[Any]) -> None:
        shard, stored_key = self._locate(namespace)
        shard.setdefault(stored_key, []).extend(elements)

    def append_many(self, keys: Sequence[Any], namespaces: Namespaces, elements: list[Any]) -> None:
        for (stored_key, shard), element in zip(self._entries(keys, namespaces), elements, strict=True):
            existing = shard.get(stored_key)
            if existing is None:
                shard[stored_key] = [element]
            else:
                existing.append(element)

    def merge(self, target: Any, sources: Iterable[Any], merge: Fold) -> None:
        values = []
        for namespace in sources:
            shard, stored_key = self._locate(namespace)
            values.append(shard.pop(stored_key, None))
        shard, stored_key = self._locate(target)
        merged = shard.get(stored_key)
        for value in values:
            if value is not None:
                merged = value if merged is None else merge(merged, value)
        if merged is not None:
            shard[stored_key] = merged


class HeapMapEntries(_HeapTable):
    """A map for each (key, namespace)."""

    __slots__ = ()

    def get(self, namespace: Any, map_key: Any) -> Any:
        # _map, inlined: a call would slow down each access
        shard, stored_key = self._locate(namespace)
        found = shard.get(stored_key)
        return None if found is None else found.get(map_key)

    def contains(self, namespace: Any, map_key: Any) -> bool:
        return map_key in self._map(namespace)

    def put(self, namespace: Any, map_key: Any, value: Any) -> None:
        self.put_all(namespace, {map_key: value})

    def put_all(self, namespace: Any, entries: Mapping[Any, Any]) -> None:
        shard, stored_key = self._locate(namespace)
        shard.setdefault(stored_key, {}).update(entries)

    def remove(self, namespace: Any, map_key: Any) -> None:
        shard, stored_key = self._locate(namespace)
        existing = shard.get(stored_key)
        if existing is not None:
            existing.pop(map_key, None)
            if not existing:
                del shard[stored_key]

    def items(self, namespace: Any) -> list[tuple[Any, Any]]:
        return list(self.codec.sorted_map(self._map(namespace)).items())

    def keys(self, namespace: Any) -> list[Any]:
        return list(self.codec.sorted_map(self._map(namespace)))

    def values(self, namespace: Any) -> list[Any]:
        return list(self.codec.sorted_map(self._map(namespace)).values())

    def is_empty(self, namespace: Any) -> bool:
        return not self._map(namespace)

    def _map(self, namespace: Any) -> dict[Any, Any]:
        shard, stored_key = self._locate(namespace)
        found: dict[Any, Any] = shard.get(stored_key, {})
        return found
