"""Value, list and map states that log what they do: each stands over a state of the same kind of the backend below.

Rules:

* What is read comes from below as it is. What is written is encoded first, so that what cannot be written changes
  nothing, then done below, then logged: what the backend below refuses is not logged either.
* When a batch fails in the middle, the part that was done is logged, key by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from state_backends.api import KeyedState, KeyedStateBackend, ListState, MapState, Namespaces, ValueState
from state_backends.base import StateBackendError
from state_backends.changelog.changes import APPEND, CLEAR, EXTEND, PUT, PUT_ENTRIES, REMOVE_ENTRIES
from state_backends.changelog.log import ChangeLog

StateT = TypeVar("StateT", bound=KeyedState)


class StoredValues(Protocol):
    """A state as seen by someone who wants what is stored; ``None`` where nothing is."""

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """What is stored under each key."""


class MergingState(Protocol):
    """A state whose namespaces can be merged."""

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Put what some namespaces of the current key hold into that of ``target``."""


class LoggedState(Generic[StateT]):
    """What all of them have."""

    __slots__ = ("_backend", "_index", "_inner", "_log", "_namespace")

    def __init__(self, inner: StateT, backend: KeyedStateBackend, log: ChangeLog, index: int) -> None:
        """A state over another.

        :param backend: the one below, which knows the current key
        :param index: how the log calls this state
        """
        self._inner = inner
        self._backend = backend
        self._log = log
        self._index = index
        self._namespace: Any = None

    def set_namespace(self, namespace: Any) -> None:
        """Scope single access to a namespace; ``None`` = no namespace."""
        self._namespace = namespace
        self._inner.set_namespace(namespace)

    def clear(self) -> None:
        """Remove the entry of the current key and namespace."""
        record = self._record(CLEAR, None)
        self._inner.clear()
        self._log.append(record)

    def clear_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Remove the entry of each key (and namespace)."""
        if not keys:
            return
        record = self._batch_record(CLEAR, keys, namespaces, None)
        try:
            self._inner.clear_many(keys, namespaces)
        except Exception:
            # What was cleared before the failure stays cleared when it is cleared again.
            for key, places in one_by_one(keys, namespaces):
                self._inner.clear_many([key], places)
                self._log.append(self._batch_record(CLEAR, [key], places, None))
            raise
        self._log.append(record)

    def _record(self, operation: int, payload: Any) -> bytes:
        """The record of a change for the current key and namespace."""
        namespaces = None if self._namespace is None else [self._namespace]
        return self._log.encode(
            operation, self._index, [self._backend.current_key], namespaces, None if payload is None else [payload]
        )

    def _batch_record(
        self, operation: int, keys: Sequence[Any], namespaces: Namespaces, payload: Sequence[Any] | None
    ) -> bytes:
        places = None if namespaces is None else list(namespaces)
        values = None if payload is None else list(payload)
        return self._log.encode(operation, self._index, list(keys), places, values)


class LoggedValueState(LoggedState[ValueState]):
    """One value."""

    __slots__ = ()

    def get(self) -> Any:
        """The value, or a fresh copy of the default."""
        return self._inner.get()

    def update(self, value: Any) -> None:
        """Store a value; ``None`` clears."""
        namespaces = None if self._namespace is None else [self._namespace]
        record = self._log.encode(PUT, self._index, [self._backend.current_key], namespaces, [value])
        self._inner.update(value)
        self._log.append(record)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key."""
        return self._inner.get_many(keys, namespaces)

    def update_many(self, keys: Sequence[Any], values: Sequence[Any], namespaces: Namespaces = None) -> None:
        """:meth:`update` for each key, in order."""
        record = self._batch_record(PUT, keys, namespaces, values)
        try:
            self._inner.update_many(keys, values, namespaces)
        except Exception:
            # Doing the same once more, in the same order, gives the same up to where it fails.
            for value, (key, places) in zip(values, one_by_one(keys, namespaces), strict=False):
                self._inner.update_many([key], [value], places)
                self._log.append(self._batch_record(PUT, [key], places, [value]))
            raise
        if keys:
            self._log.append(record)


class LoggedListState(LoggedState[ListState]):
    """A list of elements."""

    __slots__ = ()

    def get(self) -> list[Any] | None:
        """A copy of the list; ``None`` when missing."""
        return self._inner.get()

    def add(self, element: Any) -> None:
        """Append one element."""
        namespaces = None if self._namespace is None else [self._namespace]
        record = self._log.encode(APPEND, self._index, [self._backend.current_key], namespaces, [element])
        self._inner.add(element)
        self._log.append(record)

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append elements."""
        if elements is not None:
            elements = list(elements)
        record = self._record(EXTEND, elements)
        self._inner.add_all(elements)
        if elements:
            self._log.append(record)

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list."""
        if elements is not None:
            elements = list(elements)
        record = self._record(PUT, elements)
        self._inner.update(elements)
        self._log.append(record)

    def add_many(self, keys: Sequence[Any], elements: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Append to each key's list the element of the same index."""
        record = self._batch_record(APPEND, keys, namespaces, elements)
        try:
            self._inner.add_many(keys, elements, namespaces)
        except Exception:
            log_what_is_there(self._inner, self._log, self._index, keys, namespaces)
            raise
        if keys:
            self._log.append(record)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[list[Any] | None]:
        """:meth:`get` for each key."""
        return self._inner.get_many(keys, namespaces)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of some namespaces of the current key to that of ``target``."""
        log_merged(self._inner, self._inner, self._log, self._index, self._backend.current_key, target, sources)


class LoggedMapState(LoggedState[MapState]):
    """A map."""

    __slots__ = ()

    def get(self, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""
        return self._inner.get(map_key)

    def contains(self, map_key: Any) -> bool:
        """Whether the map has the key."""
        return self._inner.contains(map_key)

    def put(self, map_key: Any, value: Any) -> None:
        """Store one entry."""
        record = self._record(PUT_ENTRIES, {map_key: value})
        self._inner.put(map_key, value)
        self._log.append(record)

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Store several entries."""
        record = self._record(PUT_ENTRIES, dict(entries))
        self._inner.put_all(entries)
        if entries:
            self._log.append(record)

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there."""
        record = self._record(REMOVE_ENTRIES, [map_key])
        self._inner.remove(map_key)
        self._log.append(record)

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order of their encoded keys."""
        return self._inner.entries()

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""
        return self._inner.keys()

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""
        return self._inner.values()

    def is_empty(self) -> bool:
        """Whether the map has no entry."""
        return self._inner.is_empty()


def one_by_one(keys: Sequence[Any], namespaces: Namespaces) -> list[tuple[Any, list[Any] | None]]:
    """The keys of a batch, each with its namespaces as a batch of one has them."""
    if namespaces is None:
        return [(key, None) for key in keys]
    return [(key, [namespace]) for key, namespace in zip(keys, namespaces, strict=True)]


def log_what_is_there(
    stored: StoredValues, log: ChangeLog, index: int, keys: Sequence[Any], namespaces: Namespaces
) -> None:
    """Log for each key what is stored under it now.

    Keys that cannot even be read have made the call fail, and nothing is stored under them.
    """
    for key, places in one_by_one(keys, namespaces):
        try:
            found = stored.get_many([key], places)
        except StateBackendError:
            continue
        log.append_made(PUT, index, [key], places, found)


def log_merged(
    inner: MergingState,
    stored: StoredValues,
    log: ChangeLog,
    index: int,
    key: Any,
    target: Any,
    sources: Iterable[Any],
) -> None:
    """Merge some namespaces of a key into another, and log what that came to, also when it fails half-way."""
    emptied = list(sources)
    try:
        inner.merge_namespaces(target, emptied)
    finally:
        for namespace in dict.fromkeys([*emptied, target]):
            log_what_is_there(stored, log, index, [key], None if namespace is None else [namespace])
