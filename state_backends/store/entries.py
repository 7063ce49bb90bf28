"""The entries of a state in an ordered store, as the handles of :mod:`state_backends.api.states` see them.

A value is encoded at once. So the method that stores a value refuses it if it cannot be encoded, and a read always
returns a fresh copy. A batch reads its rows in one call, works on the values read, and writes them in one call. So the
records of one key see each other, and each entry is decoded once and encoded once, however often its key comes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from state_backends.api import Batch, First, Fold, KeyScope, Namespaces
from state_backends.base import StateKind, check_lengths
from state_backends.codec import StateCodec
from state_backends.rows import COUNT_BYTES, encode_list, list_column_value, successor
from state_backends.store.parts import StoreAccess, StoreTable


class _StoreRows:
    """The common part of both kinds of table, see :class:`state_backends.api.KeyedTable`."""

    __slots__ = ("_access", "_table", "_what", "codec", "name", "scope")

    def __init__(self, scope: KeyScope, table: StoreTable, access: StoreAccess) -> None:
        self.scope = scope
        self.name = table.name
        self.codec: StateCodec = access.codec
        self._table = table
        self._access = access
        self._what = f"state {table.name!r}"

    def _row(self, namespace: Any) -> bytes:
        key = self.scope.key
        if key is None:
            self.scope.require()
        if namespace is None:
            return self._table.plain.prefix_of[key]
        return self._table.namespaced.prefix_of[key] + self._encode_namespace(namespace)

    def _rows(self, keys: Sequence[Any], namespaces: Namespaces) -> list[bytes]:
        if namespaces is None:
            return list(map(self._table.plain.prefix_of.__getitem__, keys))
        check_lengths(keys, namespaces)
        prefixes = list(map(self._table.namespaced.prefix_of.__getitem__, keys))
        pack = self.codec.pack
        try:
            return [prefix + pack(namespace) for prefix, namespace in zip(prefixes, namespaces, strict=True)]
        except Exception:
            # Find the culprit: the loop raises the error to show.
            encode = self._encode_namespace
            return [prefix + encode(namespace) for prefix, namespace in zip(prefixes, namespaces, strict=True)]

    def _encode_namespace(self, namespace: Any) -> bytes:
        return self.codec.encode(namespace, f"namespace of state {self.name!r}")

    def _encode(self, value: Any, key: Any, namespace: Any) -> bytes:
        """The bytes of a value of some key and namespace; the error names them."""
        try:
            return self.codec.pack(value)
        except Exception as problem:
            stored_key = key if namespace is None else (key, namespace)
            what = f"value of state {self.name!r} under {stored_key!r}"
            raise self.codec.refusal(value, what, problem) from problem

    def _encode_many(self, values: Sequence[Any], keys: Sequence[Any], namespaces: Namespaces) -> list[bytes]:
        """:meth:`_encode` for each record of a batch."""
        try:
            return list(map(self.codec.pack, values))
        except Exception:
            # Find the culprit: the loop raises the error to show.
            places = zip(values, keys, namespaces or [None] * len(keys), strict=True)
            return [self._encode(value, key, namespace) for value, key, namespace in places]

    def _decode(self, data: bytes) -> Any:
        return self.codec.decode(data, self._what)

    def _decode_many(self, found: Sequence[bytes | None]) -> list[Any]:
        """The values of rows, ``None`` for missing rows, with one call of the decoder."""
        nothing = self.codec.pack(None)
        values: list[Any] = self._decode(self.codec.joined([data or nothing for data in found]))
        return values


class StoreEntries(_StoreRows):
    """One stored value for each (key, namespace). Adding to a list appends bytes and decodes no earlier element."""

    __slots__ = ("_is_list",)

    def __init__(self, scope: KeyScope, table: StoreTable, access: StoreAccess) -> None:
        super().__init__(scope, table, access)
        self._is_list = table.kind is StateKind.LIST

    def delete(self, namespace: Any) -> None:
        self._access.store().delete(self._row(namespace))

    def delete_many(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        self._access.store().write_many(dict.fromkeys(self._rows(keys, namespaces)))

    def get(self, namespace: Any) -> Any:
        store = self._access.opened or self._access.store()
        data = store.get(self._row(namespace))
        if data is None:
            return None
        return self.codec.decode(list_column_value(self.codec, data) if self._is_list else data, self._what)

    def put(self, namespace: Any, value: Any) -> None:
        row = self._row(namespace)
        store = self._access.opened or self._access.store()
        if value is None:
            store.delete(row)
        elif self._is_list:
            store.put(row, self._encode_list(value, self.scope.key, namespace))
        else:
            store.put(row, self._encode(value, self.scope.key, namespace))

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces, default: Any = None) -> list[Any]:
        found = self._access.store().get_many(self._rows(keys, namespaces))
        if self._is_list:
            found = [None if data is None else list_column_value(self.codec, data) for data in found]
        values = self._decode_many(found)
        if default is not None:
            for index, data in enumerate(found):
                if data is None:
                    values[index] = default
        return values

    def put_many(self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any]) -> None:
        rows = self._rows(keys, namespaces)
        encoded: list[bytes | None] = list(self._encode_many(values, keys, namespaces))
        for index, value in enumerate(values):
            if value is None:
                encoded[index] = None
        self._access.store().write_many(dict(zip(rows, encoded, strict=True)))

    def append(self, namespace: Any, element: Any) -> None:
        self.extend(namespace, [element])

    def extend(self, namespace: Any, elements: list[Any]) -> None:
        row = self._row(namespace)
        added = self._encode_list(elements, self.scope.key, namespace)
        store = self._access.store()
        store.put(row, _appended(store.get(row), added))

    def append_many(self, keys: Sequence[Any], namespaces: Namespaces, elements: list[Any]) -> None:
        added: dict[bytes, list[bytes]] = {}
        encoded = self._encode_many(elements, keys, namespaces)
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

    def fold(self, namespace: Any, value: Any, first: First | None, fold: Fold) -> None:
        row = self._row(namespace)
        store = self._access.store()
        data = store.get(row)
        if data is not None:
            value = fold(self._decode(data), value)
        elif first is not None:
            value = first(value)
        store.put(row, self._encode(value, self.scope.key, namespace))

    def begin(self, keys: Sequence[Any], namespaces: Namespaces) -> Batch:
        """Reads the entries of a batch at once; they are written when it ends."""
        problem: Exception | None = None
        try:
            rows = self._rows(keys, namespaces)
        except Exception:
            rows, problem = self._rows_until_failure(keys, namespaces)
        distinct = list(dict.fromkeys(rows))
        values = self._decode_many(self._access.store().get_many(distinct))
        entries = dict(zip(distinct, values, strict=True))
        if None in values:
            entries = {row: value for row, value in entries.items() if value is not None}
        stored_keys = rows if problem is None else _then_raise(rows, problem)

        def finish(_failed: bool, _after: Iterable[Any] | None) -> tuple[int, Exception] | None:
            # A row without an entry at the end is removed.
            encoded: dict[bytes, bytes | None] = dict.fromkeys(distinct) if len(entries) < len(distinct) else {}
            pack, problem = self.codec.pack, None
            try:
                for row, value in entries.items():
                    encoded[row] = None if value is None else pack(value)
            except Exception:
                encoded, problem = self._encode_what_can_be(entries, rows, keys, namespaces)
            self._access.store().write_many(encoded)
            return problem

        return stored_keys, repeat(entries, len(keys)), finish

    def merge(self, target: Any, sources: Iterable[Any], merge: Fold) -> None:
        store = self._access.store()
        rows = list(map(self._row, sources))
        taken = {row: data for row, data in zip(rows, store.get_many(rows), strict=True) if data is not None}
        store.write_many(dict.fromkeys(taken))
        if not taken:
            return
        row = self._row(target)
        found = store.get(row)
        values = [*([] if found is None else [found]), *taken.values()]
        if self._is_list:
            merged = values[0]
            for data in values[1:]:
                merged = _appended(merged, data)
        else:
            value = self._decode(values[0])
            for data in values[1:]:
                value = merge(value, self._decode(data))
            merged = self._encode(value, self.scope.key, target)
        store.put(row, merged)

    def _rows_until_failure(self, keys: Sequence[Any], namespaces: Namespaces) -> tuple[list[bytes], Exception]:
        """The row of each record before the first that has none, and the error of that record."""
        # The records before the failing one count: the caller is told how many they were.
        rows: list[bytes] = []
        try:
            for index, key in enumerate(keys):
                rows += self._rows([key], None if namespaces is None else [namespaces[index]])
        except Exception as problem:
            return rows, problem
        raise AssertionError("a batch failed as a whole and not in its records")

    def _encode_what_can_be(
        self, entries: dict[bytes, Any], rows: list[bytes], keys: Sequence[Any], namespaces: Namespaces
    ) -> tuple[dict[bytes, bytes | None], tuple[int, Exception]]:
        """The rows of a batch that can be encoded, and the record (a row's last) and error of the first that cannot."""
        last = {row: index for index, row in enumerate(rows)}
        encoded: dict[bytes, bytes | None] = dict.fromkeys(rows)
        problems: dict[int, Exception] = {}
        for row, value in entries.items():
            index = last[row]
            namespace = None if namespaces is None else namespaces[index]
            try:
                encoded[row] = None if value is None else self._encode(value, keys[index], namespace)
            except Exception as problem:
                problems[index] = problem
                del encoded[row]
        first = min(problems)
        return encoded, (first, problems[first])

    def _encode_list(self, elements: list[Any], key: Any, namespace: Any) -> bytes:
        try:
            return encode_list(self.codec, elements)
        except Exception:
            # The error names the whole path, as if the list were one value.
            self._encode(elements, key, namespace)
            raise


def _appended(value: bytes | None, added: bytes) -> bytes:
    """The value of a list's row, with the elements of another list appended."""
    if value is None:
        return added
    count = int.from_bytes(value[:COUNT_BYTES], "big") + int.from_bytes(added[:COUNT_BYTES], "big")
    return count.to_bytes(COUNT_BYTES, "big") + value[COUNT_BYTES:] + added[COUNT_BYTES:]


def _then_raise(rows: list[bytes], problem: Exception) -> Iterator[bytes]:
    yield from rows
    raise problem


class StoreMapEntries(_StoreRows):
    """A map for each (key, namespace), one row per entry; rows are in the order of the encoded map keys."""

    __slots__ = ()

    def delete(self, namespace: Any) -> None:
        self._access.store().write_many(dict.fromkeys(self._entry_rows(self._row(namespace))))

    def delete_many(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        rows = [row for prefix in self._rows(keys, namespaces) for row in self._entry_rows(prefix)]
        self._access.store().write_many(dict.fromkeys(rows))

    def get(self, namespace: Any, map_key: Any) -> Any:
        data = self._access.store().get(self._row(namespace) + self._encode_map_key(map_key))
        return None if data is None else self._decode(data)

    def contains(self, namespace: Any, map_key: Any) -> bool:
        return self._access.store().get(self._row(namespace) + self._encode_map_key(map_key)) is not None

    def put(self, namespace: Any, map_key: Any, value: Any) -> None:
        row = self._row(namespace) + self._encode_map_key(map_key)
        self._access.store().put(row, self._encode_entry(map_key, value, namespace))

    def put_all(self, namespace: Any, entries: Mapping[Any, Any]) -> None:
        prefix = self._row(namespace)
        rows = {
            prefix + self._encode_map_key(map_key): self._encode_entry(map_key, value, namespace)
            for map_key, value in entries.items()
        }
        self._access.store().write_many(rows)

    def remove(self, namespace: Any, map_key: Any) -> None:
        self._access.store().delete(self._row(namespace) + self._encode_map_key(map_key))

    def items(self, namespace: Any) -> list[tuple[Any, Any]]:
        keys, values = self._columns(namespace)
        return list(zip(self._decode_many(keys), self._decode_many(values), strict=True))

    def keys(self, namespace: Any) -> list[Any]:
        return self._decode_many(self._columns(namespace)[0])

    def values(self, namespace: Any) -> list[Any]:
        return self._decode_many(self._columns(namespace)[1])

    def is_empty(self, namespace: Any) -> bool:
        row = self._row(namespace)
        return next(self._access.store().scan(row, successor(row)), None) is None

    def _entry_rows(self, prefix: bytes) -> list[bytes]:
        return [row for row, _ in self._access.store().scan(prefix, successor(prefix))]

    def _columns(self, namespace: Any) -> tuple[list[bytes], list[bytes]]:
        """Encoded map keys and values of the current key and a namespace."""
        prefix = self._row(namespace)
        start = len(prefix)
        keys, values = [], []
        for row, value in self._access.store().scan(prefix, successor(prefix)):
            keys.append(row[start:])
            values.append(value)
        return keys, values

    def _encode_map_key(self, map_key: Any) -> bytes:
        return self.codec.encode(map_key, f"map key of state {self.name!r}")

    def _encode_entry(self, map_key: Any, value: Any, namespace: Any) -> bytes:
        try:
            return self.codec.pack(value)
        except Exception:
            # The error names the whole path, as if the map were one value.
            return self._encode({map_key: value}, self.scope.key, namespace)
