"""Where the entries of a keyed state are: the port between the handles of :mod:`state_backends.api.states`, which are
the same for every backend, and what keeps the entries.

The heap keeps them in dicts, a store in rows. The changelog and time-to-live are tables over another table.

Rules:

* An entry belongs to a (key, namespace). Single access is about the current key and the namespace given; access by
  batches is about the key, and the namespace, of each record. ``None`` as a namespace, or for those of a whole batch,
  means none. A batch trusts the type of its keys: the caller has checked it with
  :func:`state_backends.base.check_keys`.
* ``None`` as a stored value means that there is no entry. A list or map without content is no entry either.
* What is handed over belongs to the table, and what a table hands out belongs to it, too: only what is put back is
  sure to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from state_backends.api.key_scope import KeyScope
from state_backends.codec import StateCodec

Namespaces = Sequence[Any] | None
"""Per record its namespace, or ``None`` when the whole batch has none."""

Finish = Callable[[bool, Iterable[Any] | None], tuple[int, Exception] | None]
"""Ends a batch that was folded into a table, given whether that failed, and what is stored after each record, if the
caller knows. Returns the index of the last record that went into a value that cannot be written, and the error to show;
the other values are stored all the same."""

First = Callable[[Any], Any]
Fold = Callable[[Any, Any], Any]

Batch = tuple[Iterable[Any], Iterable[Any], Finish | None]
"""For each record the key of its entry and the mutable mapping that holds the entry; both raise where a record's key is
refused. Then what ends the batch, if anything."""


class KeyedTable(Protocol):
    """What all tables have.

    :ivar scope: knows the current key
    :ivar name: of the state
    :ivar codec: encodes its values
    """

    scope: KeyScope
    name: str
    codec: StateCodec

    def delete(self, namespace: Any) -> None:
        """Remove the entry."""

    def delete_many(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        """Remove the entry of each record."""


class StoredEntries(KeyedTable, Protocol):
    """One stored value for each (key, namespace)."""

    def get(self, namespace: Any) -> Any:
        """The stored value, or ``None``."""

    def put(self, namespace: Any, value: Any) -> None:
        """Store a value."""

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces, default: Any = None) -> list[Any]:
        """The stored value of each record, or an immutable default."""

    def merge(self, target: Any, sources: Iterable[Any], merge: Fold) -> None:
        """Take the values of some namespaces of the current key out, and merge them into that of ``target``."""


class Entries(StoredEntries, Protocol):
    """What is stored is a value, a reduced value or an accumulator."""

    def put_many(self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any]) -> None:
        """Store the value of each record, in order: the last one of an entry stays."""

    def fold(self, namespace: Any, value: Any, first: First | None, fold: Fold) -> None:
        """Fold a value into the stored one; without one, store what ``first`` makes of it, or the value itself."""

    def begin(self, keys: Sequence[Any], namespaces: Namespaces) -> Batch:
        """The entries of a batch that is to be folded into them, record by record."""


class ListEntries(StoredEntries, Protocol):
    """What is stored is a list."""

    def append(self, namespace: Any, element: Any) -> None:
        """Append one element."""

    def extend(self, namespace: Any, elements: list[Any]) -> None:
        """Append some elements."""

    def append_many(self, keys: Sequence[Any], namespaces: Namespaces, elements: list[Any]) -> None:
        """Append the element of each record to its list."""


class BackendEntries(Entries, ListEntries, Protocol):
    """What backends offer: the state decides what of it is used."""


class MapEntries(KeyedTable, Protocol):
    """A map for each (key, namespace).

    Iteration is in the order of the encoded map keys: a function of the content alone, so that a restored job, or one
    on another backend, walks the map as the first run did.
    """

    def get(self, namespace: Any, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""

    def contains(self, namespace: Any, map_key: Any) -> bool:
        """Whether the map has the key."""

    def put(self, namespace: Any, map_key: Any, value: Any) -> None:
        """Store one entry."""

    def put_all(self, namespace: Any, entries: Mapping[Any, Any]) -> None:
        """Store some entries, at least one."""

    def remove(self, namespace: Any, map_key: Any) -> None:
        """Remove an entry if it is there; removing the last one removes the map."""

    def items(self, namespace: Any) -> list[tuple[Any, Any]]:
        """All map keys with their values."""

    def keys(self, namespace: Any) -> list[Any]:
        """All map keys."""

    def values(self, namespace: Any) -> list[Any]:
        """All values."""

    def is_empty(self, namespace: Any) -> bool:
        """Whether the map has no entry."""
