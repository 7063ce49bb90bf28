"""Value, list and map state of the heap backend.

Every handle offers single access for the current key and namespace, and access by whole batches.

Semantics are Flink's (StateBackendTestBase): state is scoped by (key, namespace); ``num_entries`` counts
keys with content; clearing or emptying removes the entry; a missing list, reducing or aggregating state
reads as ``None``.

Each handle has two tables: entries without a namespace are stored under the bare key, all others under
``(key, namespace)`` in the shard of the key. The batch methods are the hot path: one plain loop, no
Python call per record except the program's own function. They trust the type of the keys (the caller
checks a batch once with :func:`state_backends.base.check_keys`).

A value got from state may be changed in place, but only what is given back with ``update`` or ``put`` is
sure to be kept: other backends hand out copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from state_backends.api import KeyContext, Namespaces, checked_elements, sorted_map
from state_backends.base import IMMUTABLE_TYPES, Shard, ShardedTable, ValueStateDescriptor, check_lengths
from state_backends.codec import StateCodec

_MISSING: Any = object()


class StateTables(Protocol):
    """What a handle needs to know about its state."""

    name: str
    codec: StateCodec
    plain: ShardedTable
    namespaced: ShardedTable


class HeapState:
    """What all handles have: a namespace, and entries that can be found and cleared."""

    __slots__ = ("_context", "_namespace", "_tables")

    def __init__(self, context: KeyContext, tables: StateTables) -> None:
        self._context = context
        self._tables = tables
        self._namespace: Any = None

    def set_namespace(self, namespace: Any) -> None:
        """Scope single access to a namespace, such as a window; ``None`` = no namespace.

        All namespaces of one state have one type, as its keys do.
        """
        self._namespace = namespace

    def clear(self) -> None:
        """Remove the entry of the current key and namespace."""
        shard, stored_key = self._locate()
        shard.pop(stored_key, None)

    def clear_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Remove the entry of each key (and namespace)."""
        for stored_key, shard in self._entries(keys, namespaces):
            shard.pop(stored_key, None)

    def _locate(self, namespace: Any = _MISSING) -> tuple[Shard, Any]:
        """The shard and stored key of the current key, ready to be read or changed."""
        key = self._context.key
        if key is None:
            self._context.require()
        if namespace is _MISSING:
            namespace = self._namespace
        if namespace is None:
            table, stored_key = self._tables.plain, key
        else:
            table, stored_key = self._tables.namespaced, (key, namespace)
        shard = table.shard_of[key]
        if table.stale:
            table.touch(shard)
        return shard, stored_key

    def _entries(self, keys: Sequence[Any], namespaces: Namespaces) -> Iterator[tuple[Any, Shard]]:
        """Pairs of stored key and shard for a batch, each shard ready to be read or changed."""
        if namespaces is None:
            table, stored_keys = self._tables.plain, iter(keys)
        else:
            check_lengths(keys, namespaces)
            table, stored_keys = self._tables.namespaced, zip(keys, namespaces, strict=True)
        return zip(stored_keys, shards_of(table, keys), strict=True)

    def _namespace_values(self, namespaces: Iterable[Any]) -> list[Any]:
        """Take the non-empty values of some namespaces of the current key out of the state."""
        taken = []
        for namespace in namespaces:
            shard, stored_key = self._locate(namespace)
            value = shard.pop(stored_key, None)
            if value is not None:
                taken.append(value)
        return taken


def shards_of(table: ShardedTable, keys: Sequence[Any]) -> Iterator[Shard]:
    """The shard of each key, looked up lazily in C; while a snapshot is open, touched beforehand."""
    if not table.stale:
        return map(table.shard_of.__getitem__, keys)
    shards = list(map(table.shard_of.__getitem__, keys))
    table.touch_all(shards)
    return iter(shards)


class HeapValueState(HeapState):
    """One value per key and namespace."""

    __slots__ = ("_default", "_default_is_immutable")

    def __init__(self, context: KeyContext, tables: StateTables, descriptor: ValueStateDescriptor) -> None:
        super().__init__(context, tables)
        self._default = descriptor.default
        self._default_is_immutable = type(descriptor.default) in IMMUTABLE_TYPES
        if not self._default_is_immutable:
            tables.codec.encode(descriptor.default, f"default of state {tables.name!r}")

    def get(self) -> Any:
        """The value; when missing, a fresh copy of the default."""
        shard, stored_key = self._locate()
        value = shard.get(stored_key, _MISSING)
        return self._fresh_default() if value is _MISSING else value

    def update(self, value: Any) -> None:
        """Store a value; ``None`` clears."""
        shard, stored_key = self._locate()
        if value is None:
            shard.pop(stored_key, None)
        else:
            shard[stored_key] = value

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        entries = self._entries(keys, namespaces)
        if self._default_is_immutable:
            default = self._default
            return [shard.get(stored_key, default) for stored_key, shard in entries]
        return [
            shard[stored_key] if stored_key in shard else self._fresh_default() for stored_key, shard in entries
        ]

    def update_many(self, keys: Sequence[Any], values: Sequence[Any], namespaces: Namespaces = None) -> None:
        """:meth:`update` for each key of a batch, in order: the last value of a key stays."""
        check_lengths(keys, values)
        for (stored_key, shard), value in zip(self._entries(keys, namespaces), values, strict=True):
            if value is None:
                shard.pop(stored_key, None)
            else:
                shard[stored_key] = value

    def _fresh_default(self) -> Any:
        return self._default if self._default_is_immutable else self._tables.codec.copy(self._default)


class HeapListState(HeapState):
    """A list of elements per key and namespace; an empty list does not exist."""

    __slots__ = ()

    def get(self) -> list[Any] | None:
        """A copy of the list, in the order of adding; ``None`` when missing."""
        shard, stored_key = self._locate()
        elements = shard.get(stored_key)
        return None if elements is None else list(elements)

    def add(self, element: Any) -> None:
        """Append one element.

        :raises StateArgumentError: when it is ``None``
        """
        self.add_all([element])

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append elements; none at all changes nothing.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        checked = self._checked(elements)
        if checked:
            shard, stored_key = self._locate()
            existing = shard.get(stored_key)
            if existing is None:
                shard[stored_key] = checked
            else:
                existing += checked

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list; with no elements it is cleared.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        checked = self._checked(elements)
        shard, stored_key = self._locate()
        if checked:
            shard[stored_key] = checked
        else:
            shard.pop(stored_key, None)

    def add_many(self, keys: Sequence[Any], elements: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Append to each key's list the element of the same index.

        :raises StateArgumentError: when an element is ``None``, before any change
        """
        check_lengths(keys, elements)
        self._checked(elements)
        for (stored_key, shard), element in zip(self._entries(keys, namespaces), elements, strict=True):
            existing = shard.get(stored_key)
            if existing is None:
                shard[stored_key] = [element]
            else:
                existing.append(element)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[list[Any] | None]:
        """:meth:`get` for each key of a batch."""
        found = [shard.get(stored_key) for stored_key, shard in self._entries(keys, namespaces)]
        return [None if elements is None else list(elements) for elements in found]

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of the source namespaces of the current key to that of ``target``."""
        merged = [element for elements in self._namespace_values(sources) for element in elements]
        if merged:
            shard, stored_key = self._locate(target)
            shard[stored_key] = shard.get(stored_key, []) + merged

    def _checked(self, elements: Iterable[Any]) -> list[Any]:
        return checked_elements(self._tables.name, elements)


class HeapMapState(HeapState):
    """A map per key and namespace; an empty map does not exist.

    Iteration is in the order of the encoded map keys: a function of the content alone, so that a restored
    job, or one on another backend, walks the map as the first run did.
    """

    __slots__ = ()

    def get(self, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""
        return self._map().get(map_key)

    def contains(self, map_key: Any) -> bool:
        """Whether the map has the key."""
        return map_key in self._map()

    def put(self, map_key: Any, value: Any) -> None:
        """Store one entry."""
        self.put_all({map_key: value})

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Store several entries; none at all changes nothing."""
        if entries:
            shard, stored_key = self._locate()
            existing = shard.get(stored_key)
            if existing is None:
                shard[stored_key] = dict(entries)
            else:
                existing.update(entries)

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there; removing the last one removes the map."""
        shard, stored_key = self._locate()
        existing = shard.get(stored_key)
        if existing is not None:
            existing.pop(map_key, None)
            if not existing:
                del shard[stored_key]

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order of their encoded keys."""
        return list(sorted_map(self._map(), self._tables.codec).items())

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""
        return list(sorted_map(self._map(), self._tables.codec))

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""
        return list(sorted_map(self._map(), self._tables.codec).values())

    def is_empty(self) -> bool:
        """Whether the map has no entry."""
        return not self._map()

    def _map(self) -> dict[Any, Any]:
        shard, stored_key = self._locate()
        found: dict[Any, Any] = shard.get(stored_key, {})
        return found
