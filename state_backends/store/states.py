"""Value, list and map state over an ordered store, and what all its state handles share.

Semantics are those of :mod:`state_backends.heap.states`. What differs is when a value is encoded: here at once, so a
value that cannot be written is refused by the method that stores it, and what is read is always a fresh copy. A batch
reads its rows in one call, works on what it has read, so that the records of one key see each other, and writes them in
one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from state_backends.api import Namespaces, checked_elements
from state_backends.base import IMMUTABLE_TYPES, ValueStateDescriptor, check_lengths
from state_backends.codec import StateCodec
from state_backends.rows import COUNT_BYTES, column, encode_list, list_column_value, successor
from state_backends.store.parts import KeyScope, StoreAccess, StoreTable

_NOT_GIVEN: Any = object()


class StoreState:
    """What all handles have: a namespace, and rows that can be found and cleared."""

    __slots__ = ("_access", "_codec", "_namespace", "_scope", "_table")

    def __init__(self, scope: KeyScope, table: StoreTable, access: StoreAccess) -> None:
        self._scope = scope
        self._table = table
        self._access = access
        self._codec: StateCodec = access.codec
        self._namespace: Any = None

    def set_namespace(self, namespace: Any) -> None:
        """Scope single access to a namespace, such as a window; ``None`` = no namespace."""
        self._namespace = namespace

    def clear(self) -> None:
        """Remove the entry of the current key and namespace."""
        self._access.store().delete(self._row())

    def clear_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Remove the entry of each key (and namespace)."""
        self._access.store().write_many(dict.fromkeys(self._rows(keys, namespaces)))

    def _row(self, namespace: Any = _NOT_GIVEN) -> bytes:
        """The row of the current key and namespace."""
        key = self._scope.key
        if key is None:
            self._scope.require()
        if namespace is _NOT_GIVEN:
            namespace = self._namespace
        if namespace is None:
            return self._table.plain.prefix_of[key]
        return self._table.namespaced.prefix_of[key] + self._encode_namespace(namespace)

    def _rows(self, keys: Sequence[Any], namespaces: Namespaces) -> list[bytes]:
        """The row of each record of a batch."""
        if namespaces is None:
            return list(map(self._table.plain.prefix_of.__getitem__, keys))
        check_lengths(keys, namespaces)
        prefixes = list(map(self._table.namespaced.prefix_of.__getitem__, keys))
        pack = self._codec.pack
        try:
            return [prefix + pack(namespace) for prefix, namespace in zip(prefixes, namespaces, strict=True)]
        except Exception:
            # Find the culprit: the loop raises the error to show.
            encode = self._encode_namespace
            return [prefix + encode(namespace) for prefix, namespace in zip(prefixes, namespaces, strict=True)]

    def _encode_namespace(self, namespace: Any) -> bytes:
        return self._codec.encode(namespace, f"namespace of state {self._table.name!r}")

    def _encode(self, value: Any, key: Any, namespace: Any) -> bytes:
        """The bytes of a value of some key and namespace.

        :raises StateSerializationError: naming them
        """
        try:
            return self._codec.pack(value)
        except Exception as problem:
            stored_key = key if namespace is None else (key, namespace)
            what = f"value of state {self._table.name!r} under {stored_key!r}"
            raise self._codec.refusal(value, what, problem) from problem

    def _encode_many(self, values: Sequence[Any], keys: Sequence[Any], namespaces: Namespaces) -> list[bytes]:
        """:meth:`_encode` for each record of a batch."""
        try:
            return list(map(self._codec.pack, values))
        except Exception:
            # Find the culprit: the loop raises the error to show.
            places = zip(values, keys, namespaces or [None] * len(keys), strict=True)
            return [self._encode(value, key, namespace) for value, key, namespace in places]

    def _decode(self, data: bytes) -> Any:
        return self._codec.decode(data, f"state {self._table.name!r}")

    def _decode_many(self, found: Sequence[bytes | None]) -> list[Any]:
        """The values of rows, ``None`` for those that are not there, in one call of the decoder."""
        nothing = self._codec.pack(None)
        values: list[Any] = self._decode(column(self._codec, [data or nothing for data in found]))
        return values

    def _take(self, namespaces: Iterable[Any]) -> list[bytes]:
        """Take the rows of some namespaces of the current key that are there out of the state."""
        store = self._access.store()
        rows = list(map(self._row, namespaces))
        taken = {row: data for row, data in zip(rows, store.get_many(rows), strict=True) if data is not None}
        store.write_many(dict.fromkeys(taken))
        return list(taken.values())


class StoreValueState(StoreState):
    """One value per key and namespace."""

    __slots__ = ("_default", "_default_is_immutable")

    def __init__(
        self, scope: KeyScope, table: StoreTable, access: StoreAccess, descriptor: ValueStateDescriptor
    ) -> None:
        super().__init__(scope, table, access)
        self._default = descriptor.default
        self._default_is_immutable = type(descriptor.default) in IMMUTABLE_TYPES
        if not self._default_is_immutable:
            self._codec.encode(descriptor.default, f"default of state {table.name!r}")

    def get(self) -> Any:
        """The value; when missing, a fresh copy of the default."""
        data = self._access.store().get(self._row())
        return self._fresh_default() if data is None else self._decode(data)

    def update(self, value: Any) -> None:
        """Store a value; ``None`` clears."""
        row = self._row()
        if value is None:
            self._access.store().delete(row)
        else:
            self._access.store().put(row, self._encode(value, self._scope.key, self._namespace))

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        found = self._access.store().get_many(self._rows(keys, namespaces))
        values = self._decode_many(found)
        if self._default is not None:
            for index, data in enumerate(found):
                if data is None:
                    values[index] = self._fresh_default()
        return values

    def update_many(self, keys: Sequence[Any], values: Sequence[Any], namespaces: Namespaces = None) -> None:
        """:meth:`update` for each key of a batch, in order: the last value of a key stays."""
        check_lengths(keys, values)
        rows = self._rows(keys, namespaces)
        encoded: list[bytes | None] = list(self._encode_many(values, keys, namespaces))
        for index, value in enumerate(values):
            if value is None:
                encoded[index] = None
        self._access.store().write_many(dict(zip(rows, encoded, strict=True)))

    def _fresh_default(self) -> Any:
        return self._default if self._default_is_immutable else self._codec.copy(self._default)


class StoreListState(StoreState):
    """A list of elements per key and namespace; an empty list does not exist.

    Adding appends bytes: nothing that is there is decoded.
    """

    __slots__ = ()

    def get(self) -> list[Any] | None:
        """A copy of the list, in the order of adding; ``None`` when missing."""
        data = self._access.store().get(self._row())
        if data is None:
            return None
        elements: list[Any] = self._decode(list_column_value(self._codec, data))
        return elements

    def add(self, element: Any) -> None:
        """Append one element.

        :raises StateArgumentError: when it is ``None``
        """
        self.add_all([element])

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append elements; none at all changes nothing.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        checked = checked_elements(self._table.name, elements)
        if checked:
            row = self._row()
            added = self._encode_elements(checked)
            store = self._access.store()
            store.put(row, _appended(store.get(row), added))

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list; with no elements it is cleared.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        checked = checked_elements(self._table.name, elements)
        row = self._row()
        if checked:
            self._access.store().put(row, self._encode_elements(checked))
        else:
            self._access.store().delete(row)

    def add_many(self, keys: Sequence[Any], elements: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Append to each key's list the element of the same index.

        :raises StateArgumentError: when an element is ``None``, before any change
        """
        check_lengths(keys, elements)
        checked = checked_elements(self._table.name, elements)
        added: dict[bytes, list[bytes]] = {}
        encoded = self._encode_many(checked, keys, namespaces)
        for row, element in zip(self._rows(keys, namespaces), encoded, strict=True):
            added.setdefault(row, []).append(element)
        store = self._access.store()
        found = store.get_many(list(added))
        store.write_many(
            {
                row: _appended(data, len(parts).to_bytes(COUNT_BYTES, "big") + b"".join(parts))
                for data, (row, parts) in zip(found, added.items(), strict=True)
            }
        )

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[list[Any] | None]:
        """:meth:`get` for each key of a batch."""
        found = self._access.store().get_many(self._rows(keys, namespaces))
        codec = self._codec
        return self._decode_many([None if data is None else list_column_value(codec, data) for data in found])

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of the source namespaces of the current key to that of ``target``."""
        merged = None
        for added in self._take(sources):
            merged = _appended(merged, added)
        if merged is not None:
            row = self._row(target)
            store = self._access.store()
            store.put(row, _appended(store.get(row), merged))

    def _encode_elements(self, elements: list[Any]) -> bytes:
        try:
            return encode_list(self._codec, elements)
        except Exception:
            # The error names the whole path, as if the list were one value.
            self._encode(elements, self._scope.key, self._namespace)
            raise


def _appended(value: bytes | None, added: bytes) -> bytes:
    """The value of a list's row with the elements of another behind its own."""
    if value is None:
        return added
    count = int.from_bytes(value[:COUNT_BYTES], "big") + int.from_bytes(added[:COUNT_BYTES], "big")
    return count.to_bytes(COUNT_BYTES, "big") + value[COUNT_BYTES:] + added[COUNT_BYTES:]


class StoreMapState(StoreState):
    """A map per key and namespace, one row per entry; an empty map does not exist.

    Iteration is in the order of the encoded map keys, which is that of the rows.
    """

    __slots__ = ()

    def clear(self) -> None:
        """Remove all entries of the current key and namespace."""
        self._access.store().write_many(dict.fromkeys(self._entry_rows(self._row())))

    def clear_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Remove all entries of each key (and namespace)."""
        rows = [row for prefix in self._rows(keys, namespaces) for row in self._entry_rows(prefix)]
        self._access.store().write_many(dict.fromkeys(rows))

    def get(self, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""
        data = self._access.store().get(self._entry_row(map_key))
        return None if data is None else self._decode(data)

    def contains(self, map_key: Any) -> bool:
        """Whether the map has the key."""
        return self._access.store().get(self._entry_row(map_key)) is not None

    def put(self, map_key: Any, value: Any) -> None:
        """Store one entry."""
        row = self._entry_row(map_key)
        self._access.store().put(row, self._encode_entry(map_key, value))

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Store several entries; none at all changes nothing."""
        if entries:
            prefix = self._row()
            rows = {
                prefix + self._encode_map_key(map_key): self._encode_entry(map_key, value)
                for map_key, value in entries.items()
            }
            self._access.store().write_many(rows)

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there; removing the last one removes the map."""
        self._access.store().delete(self._entry_row(map_key))

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order of their encoded keys."""
        keys, values = self._columns()
        return list(zip(self._decode_many(keys), self._decode_many(values), strict=True))

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""
        return self._decode_many(self._columns()[0])

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""
        return self._decode_many(self._columns()[1])

    def is_empty(self) -> bool:
        """Whether the map has no entry."""
        row = self._row()
        return next(self._access.store().scan(row, successor(row)), None) is None

    def _entry_rows(self, prefix: bytes) -> list[bytes]:
        return [row for row, _ in self._access.store().scan(prefix, successor(prefix))]

    def _columns(self) -> tuple[list[bytes], list[bytes]]:
        """Encoded map keys and values of the current key and namespace."""
        prefix = self._row()
        start = len(prefix)
        keys, values = [], []
        for row, value in self._access.store().scan(prefix, successor(prefix)):
            keys.append(row[start:])
            values.append(value)
        return keys, values

    def _entry_row(self, map_key: Any) -> bytes:
        return self._row() + self._encode_map_key(map_key)

    def _encode_map_key(self, map_key: Any) -> bytes:
        return self._codec.encode(map_key, f"map key of state {self._table.name!r}")

    def _encode_entry(self, map_key: Any, value: Any) -> bytes:
        try:
            return self._codec.pack(value)
        except Exception:
            # The error names the whole path, as if the map were one value.
            return self._encode({map_key: value}, self._scope.key, self._namespace)
