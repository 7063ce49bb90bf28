"""Tables that log their changes: each stands over a table of the backend below.

Rules:

* A read returns the value from the table below unchanged. A write is encoded first, then done below, then logged. So a
  value that cannot be encoded changes nothing, and a write that the backend below refuses is not logged.
* Folds and merges are done below. Then the log gets the stored value, once per key of a batch. So a replay needs none
  of the program's functions, and an accumulator that is changed in place is logged with its value at that moment.
* When a batch fails in the middle, the part that was done is logged, key by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from state_backends.api import BackendEntries, Batch, First, Fold, KeyedTable, MapEntries, Namespaces
from state_backends.base import StateBackendError
from state_backends.changelog.changes import APPEND, CLEAR, EXTEND, PUT, PUT_ENTRIES, REMOVE_ENTRIES
from state_backends.changelog.log import ChangeLog

TableT = TypeVar("TableT", bound=KeyedTable)


class _LoggedTable(Generic[TableT]):
    """The common part of both kinds of table, see :class:`state_backends.api.KeyedTable`."""

    __slots__ = ("_index", "_inner", "_log", "codec", "get", "name", "scope")

    def __init__(self, inner: TableT, log: ChangeLog, index: int) -> None:
        """A table over another. ``index``: the index of its state in the log."""
        self._inner = inner
        self._log = log
        self._index = index
        self.scope = inner.scope
        self.name = inner.name
        self.codec = inner.codec

    def delete(self, namespace: Any) -> None:
        record = self._record(CLEAR, namespace, None)
        self._inner.delete(namespace)
        self._log.append(record)

    def delete_many(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        if not keys:
            return
        record = self._batch_record(CLEAR, keys, namespaces, None)
        try:
            self._inner.delete_many(keys, namespaces)
        except Exception:
            # Some keys may be cleared already; clearing them again changes nothing.
            for key, places in _one_by_one(keys, namespaces):
                self._inner.delete_many([key], places)
                self._log.append(self._batch_record(CLEAR, [key], places, None))
            raise
        self._log.append(record)

    def _record(self, operation: int, namespace: Any, payload: list[Any] | None) -> bytes:
        """The record of a change for the current key and a namespace."""
        namespaces = None if namespace is None else [namespace]
        return self._log.encode(operation, self._index, [self.scope.require()], namespaces, payload)

    def _batch_record(
        self, operation: int, keys: Sequence[Any], namespaces: Namespaces, payload: Sequence[Any] | None
    ) -> bytes:
        places = None if namespaces is None else list(namespaces)
        values = None if payload is None else list(payload)
        return self._log.encode(operation, self._index, list(keys), places, values)


class LoggedEntries(_LoggedTable[BackendEntries]):
    """One stored value for each (key, namespace)."""

    __slots__ = ("_cleared", "get_many")

    def __init__(self, inner: BackendEntries, log: ChangeLog, index: int, *, is_list: bool) -> None:
        """A table over another. ``is_list``: whether the stored values are lists."""
        super().__init__(inner, log, index)
        self.get = inner.get
        self.get_many = inner.get_many
        # How the log says that an entry is left without a value.
        self._cleared: Any = [] if is_list else None

    def put(self, namespace: Any, value: Any) -> None:
        record = self._record(PUT, namespace, [self._cleared if value is None else value])
        self._inner.put(namespace, value)
        self._log.append(record)

    def put_many(self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any]) -> None:
        record = self._batch_record(PUT, keys, namespaces, values)
        try:
            self._inner.put_many(keys, namespaces, values)
        except Exception:
            # The same writes once more, in the same order, give the same result up to the failure.
            for value, (key, places) in zip(values, _one_by_one(keys, namespaces), strict=False):
                self._inner.put_many([key], places, [value])
                self._log.append(self._batch_record(PUT, [key], places, [value]))
            raise
        if keys:
            self._log.append(record)

    def append(self, namespace: Any, element: Any) -> None:
        record = self._record(APPEND, namespace, [element])
        self._inner.append(namespace, element)
        self._log.append(record)

    def extend(self, namespace: Any, elements: list[Any]) -> None:
        record = self._record(EXTEND, namespace, [elements])
        self._inner.extend(namespace, elements)
        self._log.append(record)

    def append_many(self, keys: Sequence[Any], namespaces: Namespaces, elements: list[Any]) -> None:
        record = self._batch_record(APPEND, keys, namespaces, elements)
        try:
            self._inner.append_many(keys, namespaces, elements)
        except Exception:
            self._log_what_is_there(keys, namespaces)
            raise
        if keys:
            self._log.append(record)

    def fold(self, namespace: Any, value: Any, first: First | None, fold: Fold) -> None:
        try:
            self._inner.fold(namespace, value, first, fold)
        finally:
            self._log_what_is_there([self.scope.require()], None if namespace is None else [namespace])

    def begin(self, keys: Sequence[Any], namespaces: Namespaces) -> Batch:
        """The entries of a batch. At its end the stored values are logged."""
        stored_keys, shards, finish_below = self._inner.begin(keys, namespaces)

        def finish(failed: bool, after: Iterable[Any] | None) -> tuple[int, Exception] | None:
            unwritable = None if finish_below is None else finish_below(failed, None)
            if failed or unwritable is not None:
                self._log_what_is_there(keys, namespaces)
            elif keys:
                places = keys if namespaces is None else zip(keys, namespaces, strict=True)
                last = dict.fromkeys(places) if after is None else dict(zip(places, after, strict=True))
                touched, at = (list(last), None) if namespaces is None else map(list, zip(*last, strict=True))
                found = self.get_many(touched, at) if after is None else list(last.values())
                self._log.append_made(PUT, self._index, touched, at, found)
            return unwritable

        return stored_keys, shards, finish

    def merge(self, target: Any, sources: Iterable[Any], merge: Fold) -> None:
        """Merge some namespaces of the current key into another, and log the stored values, also when the merge fails
        half-way."""
        emptied = list(sources)
        try:
            self._inner.merge(target, emptied, merge)
        finally:
            # Sources and target have changed (mutant "merge not logged").
            for namespace in dict.fromkeys([*emptied, target]):
                self._log_what_is_there([self.scope.require()], None if namespace is None else [namespace])

    def _log_what_is_there(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        """Log for each key the value stored now.

        A key that cannot be read made the call fail; it has no stored value.
        """
        for key, places in _one_by_one(keys, namespaces):
            try:
                found = self.get_many([key], places)
            except StateBackendError:
                continue
            self._log.append_made(PUT, self._index, [key], places, found)


class LoggedMapEntries(_LoggedTable[MapEntries]):
    """A map for each (key, namespace)."""

    __slots__ = ("contains", "is_empty", "items", "keys", "values")

    def __init__(self, inner: MapEntries, log: ChangeLog, index: int) -> None:
        super().__init__(inner, log, index)
        self.get = inner.get
        self.contains = inner.contains
        self.items = inner.items
        self.keys = inner.keys
        self.values = inner.values
        self.is_empty = inner.is_empty

    def put(self, namespace: Any, map_key: Any, value: Any) -> None:
        record = self._record(PUT_ENTRIES, namespace, [{map_key: value}])
        self._inner.put(namespace, map_key, value)
        self._log.append(record)

    def put_all(self, namespace: Any, entries: Mapping[Any, Any]) -> None:
        record = self._record(PUT_ENTRIES, namespace, [dict(entries)])
        self._inner.put_all(namespace, entries)
        self._log.append(record)

    def remove(self, namespace: Any, map_key: Any) -> None:
        record = self._record(REMOVE_ENTRIES, namespace, [[map_key]])
        self._inner.remove(namespace, map_key)
        self._log.append(record)


def _one_by_one(keys: Sequence[Any], namespaces: Namespaces) -> Iterator[tuple[Any, list[Any] | None]]:
    """The keys of a batch, each with its namespaces as a batch of one has them."""
    if namespaces is None:
        return ((key, None) for key in keys)
    return ((key, [namespace]) for key, namespace in zip(keys, namespaces, strict=True))
