"""The handles of keyed state, the same for every backend. They give a meaning to the values that a table stores.

Every handle offers single access for the current key and namespace, and access by whole batches. Batches are the hot
path: one plain loop, and no Python call per record except the program's own function.

Semantics are Flink's (StateBackendTestBase): state is scoped by (key, namespace); ``num_entries`` counts keys with
content; clearing or emptying removes the entry; a missing list, reducing or aggregating state reads as ``None``.

A program may change a value from state in place, but must store it again with ``update`` or ``put`` to keep the change:
some backends return copies.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import length_hint
from typing import Any, Generic, TypeVar

from state_backends.api.tables import Entries, First, Fold, KeyedTable, ListEntries, MapEntries, Namespaces
from state_backends.base import (
    IMMUTABLE_TYPES,
    MISSING,
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    ShardedTable,
    StateArgumentError,
    ValueStateDescriptor,
    check_lengths,
)

TableT = TypeVar("TableT", bound=KeyedTable)

_FEW_RECORDS = 16
"""A smaller batch does not begin running values: runs that go record by record keep all values in the shards."""


class KeyedState(Generic[TableT]):
    """The common part of all handles: a namespace, and entries that can be cleared."""

    __slots__ = ("_namespace", "_table")

    def __init__(self, table: TableT) -> None:
        self._table = table
        self._namespace: Any = None

    def set_namespace(self, namespace: Any) -> None:
        """Scope single access to a namespace, such as a window; ``None`` = no namespace.

        All namespaces of one state have one type, as its keys do.
        """
        self._namespace = namespace

    def clear(self) -> None:
        """Remove the entry of the current key and namespace."""
        self._table.delete(self._namespace)

    def clear_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Remove the entry of each key (and namespace)."""
        self._table.delete_many(keys, namespaces)


class ValueState(KeyedState[Entries]):
    """One value per key and namespace."""

    __slots__ = ("_default", "_default_is_immutable")

    def __init__(self, table: Entries, descriptor: ValueStateDescriptor) -> None:
        super().__init__(table)
        self._default = descriptor.default
        self._default_is_immutable = type(descriptor.default) in IMMUTABLE_TYPES
        if not self._default_is_immutable:
            table.codec.encode(descriptor.default, f"default of state {table.name!r}")

    def get(self) -> Any:
        """The value; when missing, a fresh copy of the default."""
        value = self._table.get(self._namespace)
        return self._fresh_default() if value is None else value

    def update(self, value: Any) -> None:
        """Store a value; ``None`` clears."""
        self._table.put(self._namespace, value)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        if self._default_is_immutable:
            return self._table.get_many(keys, namespaces, self._default)
        found = self._table.get_many(keys, namespaces)
        return [self._fresh_default() if value is None else value for value in found]

    def update_many(self, keys: Sequence[Any], values: Sequence[Any], namespaces: Namespaces = None) -> None:
        """:meth:`update` for each key of a batch, in order: the last value of a key stays."""
        check_lengths(keys, values)
        self._table.put_many(keys, namespaces, values)

    def _fresh_default(self) -> Any:
        return self._default if self._default_is_immutable else self._table.codec.copy(self._default)


class ListState(KeyedState[ListEntries]):
    """A list of elements per key and namespace; an empty list does not exist."""

    __slots__ = ()

    def get(self) -> list[Any] | None:
        """A copy of the list, in the order of adding; ``None`` when missing."""
        elements = self._table.get(self._namespace)
        return None if elements is None else list(elements)

    def add(self, element: Any) -> None:
        """Append one element.

        :raises StateArgumentError: when it is ``None``
        """
        if element is None:
            self._checked((element,))
        self._table.append(self._namespace, element)

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append elements; none at all changes nothing.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        checked = self._checked(elements)
        if checked:
            self._table.extend(self._namespace, checked)

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list; with no elements it is cleared.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        self._table.put(self._namespace, self._checked(elements) or None)

    def add_many(self, keys: Sequence[Any], elements: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Append to each key's list the element of the same index.

        :raises StateArgumentError: when an element is ``None``, before any change
        """
        check_lengths(keys, elements)
        self._table.append_many(keys, namespaces, self._checked(elements))

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[list[Any] | None]:
        """:meth:`get` for each key of a batch."""
        found = self._table.get_many(keys, namespaces)
        return [None if elements is None else list(elements) for elements in found]

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of the source namespaces of the current key to that of ``target``."""
        self._table.merge(target, sources, operator.iadd)

    def _checked(self, elements: Iterable[Any]) -> list[Any]:
        """What is added, as a new list."""
        name = self._table.name
        if elements is None:
            raise StateArgumentError(f"list state {name!r} was given None: pass an empty list to mean nothing.")
        checked = list(elements)
        if any(element is None for element in checked):
            raise StateArgumentError(
                f"list state {name!r} was given an element that is None: store a value that stands for it."
            )
        return checked


class MapState(KeyedState[MapEntries]):
    """A map per key and namespace; an empty map does not exist. Iteration is in the order of the encoded map keys."""

    __slots__ = ()

    def get(self, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""
        return self._table.get(self._namespace, map_key)

    def contains(self, map_key: Any) -> bool:
        """Whether the map has the key."""
        return self._table.contains(self._namespace, map_key)

    def put(self, map_key: Any, value: Any) -> None:
        """Store one entry."""
        self._table.put(self._namespace, map_key, value)

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Store several entries; none at all changes nothing."""
        if entries:
            self._table.put_all(self._namespace, entries)

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there; removing the last one removes the map."""
        self._table.remove(self._namespace, map_key)

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order of their encoded keys."""
        return self._table.items(self._namespace)

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""
        return self._table.keys(self._namespace)

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""
        return self._table.values(self._namespace)

    def is_empty(self) -> bool:
        """Whether the map has no entry."""
        return self._table.is_empty(self._namespace)


class _FoldingState(KeyedState[Entries]):
    """The common part of reducing and aggregating state, with the hot loops of keyed sums and of windows.

    :ivar failed_index: after the program's function failed in a batch: the index of the failing record
    """

    __slots__ = ("failed_index",)

    def __init__(self, table: Entries) -> None:
        super().__init__(table)
        self.failed_index: int | None = None

    def stored_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """What is stored for each key of a batch: the reduced value or the accumulator, or ``None``."""
        return self._table.get_many(keys, namespaces)

    def store_many(self, keys: Sequence[Any], namespaces: Namespaces, stored: Sequence[Any]) -> None:
        """Store reduced values or accumulators; ``None`` clears."""
        self._table.put_many(keys, namespaces, stored)

    def _note_failure(self, remaining: Iterator[Any], size: int) -> None:
        # A list iterator knows how many items it has left, so the loop itself need not count. It stands
        # first in the zip: whatever fails for a record, its own value has just been taken.
        self.failed_index = size - length_hint(remaining) - 1

    def _refuse(self, unwritable: tuple[int, Exception], out: list[Any] | None, done: int) -> None:
        """Raise the error of a batch with a value that cannot be written.

        :param out: what was appended for each record; cut to those before the one that it is about
        :param done: how long it was before the batch
        """
        self.failed_index, problem = unwritable
        if out is not None:
            del out[done + self.failed_index :]
        raise problem


class ReducingState(_FoldingState):
    """One value per key and namespace into which added values are folded."""

    __slots__ = ("_has_rows", "_reduce")

    def __init__(self, table: Entries, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(table)
        self._reduce = descriptor.reduce_fn
        # Only the heap's own table has values that need not be written, logged or dated one by one.
        self._has_rows = hasattr(table, "plain")

    def get(self) -> Any:
        """The reduced value, or ``None`` when nothing was added."""
        return self._table.get(self._namespace)

    def add(self, value: Any) -> None:
        """Fold a value in; the first one is stored as it is. ``None`` clears (HeapReducingState)."""
        if value is None:
            self._table.put(self._namespace, None)
        else:
            self._table.fold(self._namespace, value, None, self._reduce)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        return self._table.get_many(keys, namespaces)

    def add_many(
        self, keys: Sequence[Any], values: Sequence[Any], out: list[Any], namespaces: Namespaces = None
    ) -> None:
        """:meth:`add` for each record of a batch, appending the value after each to ``out``.

        When the reduce function raises, the exception passes through; ``out`` has one item per record
        done, and ``failed_index`` is the index of the record it failed on.
        """
        # check_lengths, without a call on the way of every batch of a reduce
        assert len(values) == len(keys), f"a batch of {len(keys)} keys came with {len(values)} values"
        if self._has_rows and namespaces is None and len(keys) >= _FEW_RECORDS:
            # Asked for each time: the state may have been moved into columns, and then its rows refuse.
            rows: ShardedTable = self._table.plain  # type: ignore[attr-defined]
            running = rows.running(len(keys))
            if running is not None:
                self._fold_running(rows, running, keys, values, out)
                return
        stored_keys, shards, finish = self._table.begin(keys, namespaces)
        reduce_fn, append, done = self._reduce, out.append, len(out)
        remaining = iter(values)
        try:
            for value, stored_key, shard in zip(remaining, stored_keys, shards, strict=True):
                try:
                    before = shard[stored_key]
                except KeyError:
                    if value is not None:
                        shard[stored_key] = value
                    append(value)
                else:
                    if value is None:
                        del shard[stored_key]
                        append(None)
                    else:
                        after = shard[stored_key] = reduce_fn(before, value)
                        append(after)
        except Exception:
            self._note_failure(remaining, len(values))
            if finish is not None and (unwritable := finish(True, None)) is not None:
                self._refuse(unwritable, out, done)
            raise
        if finish is not None and (unwritable := finish(False, islice(out, done, None))) is not None:
            self._refuse(unwritable, out, done)

    def _fold_running(
        self, rows: ShardedTable, running: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any], out: list[Any]
    ) -> None:
        """The loop of :meth:`add_many` for keys that come again and again: one look-up finds the value before."""
        reduce_fn, remaining = self._reduce, iter(values)
        try:
            # Each look-up comes after the record before is done, which may have had the same key.
            for value, key, before in zip(remaining, keys, map(running.get, keys), strict=True):
                if before is None or value is None:
                    out.append(self._fold_other(rows, running, key, value))
                else:
                    running[key] = after = reduce_fn(before, value)
                    out.append(after)
        except Exception:
            self._note_failure(remaining, len(values))
            raise

    def _fold_other(self, rows: ShardedTable, running: dict[Any, Any], key: Any, value: Any) -> Any:
        """The fold of a key that has no running value yet, or of ``None``, which clears."""
        if value is None:
            rows.forget(key)
            return None
        before = running[key] if key in running else rows.begin_running(key, value)
        running[key] = after = value if before is MISSING else self._reduce(before, value)
        return after

    def fold_into(self, cells: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        """:meth:`add` for each record of a batch, to ``cells`` of their keys instead of the state.

        :raises StateArgumentError: when the reduce function returns ``None``
        """
        stored, reduce_fn = cells.get, self._reduce
        # The value is taken first: how many are left of an iterator tells on which record the function failed.
        for value, key in zip(values, keys, strict=True):
            before = stored(key)
            after = value if before is None else reduce_fn(before, value)
            if after is None:
                raise self._lost_value()
            cells[key] = after

    def check_reduced(self, reduced: Sequence[Any]) -> None:
        """Refuse what a reduce function gave for the records of a batch if it is ``None`` for one of them: then
        ``failed_index`` is the index of the first such record."""
        for index, value in enumerate(reduced):
            if value is None:
                self.failed_index = index
                raise self._lost_value()

    def _lost_value(self) -> StateArgumentError:
        return StateArgumentError(
            f"the reduce function of state {self._table.name!r} returned None. It must return the reduced value."
        )

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold the values of the source namespaces of the current key into that of ``target``."""
        self._table.merge(target, sources, self._reduce)


class AggregatingState(_FoldingState):
    """One accumulator per key and namespace."""

    __slots__ = ("_added", "_descriptor", "_first")

    def __init__(self, table: Entries, descriptor: AggregatingStateDescriptor) -> None:
        super().__init__(table)
        self._descriptor = descriptor
        self._first, self._added = _folds(descriptor)

    def get(self) -> Any:
        """The result of the accumulator, or ``None`` when nothing was added."""
        accumulator = self._table.get(self._namespace)
        return None if accumulator is None else self._descriptor.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value to the accumulator, making one when missing. ``None`` clears."""
        if value is None:
            self._table.put(self._namespace, None)
        else:
            self._table.fold(self._namespace, value, self._first, self._added)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        get_result = self._descriptor.get_result
        found = self._table.get_many(keys, namespaces)
        return [None if accumulator is None else get_result(accumulator) for accumulator in found]

    def add_many(
        self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any], out: list[Any] | None = None
    ) -> None:
        """:meth:`add` for each record of a batch; with ``out``, appends the result after each.

        When a function of the program raises, the exception passes through and ``failed_index`` is the
        index of the record it failed on.

        :raises StateArgumentError: when ``add`` returns ``None``
        """
        check_lengths(keys, values)
        stored_keys, shards, finish = self._table.begin(keys, namespaces)
        create, add, get_result = self._descriptor.create, self._descriptor.add, self._descriptor.get_result
        done = 0 if out is None else len(out)
        remaining = iter(values)
        try:
            for value, stored_key, shard in zip(remaining, stored_keys, shards, strict=True):
                try:
                    accumulator = shard[stored_key]
                except KeyError:
                    accumulator = None
                if value is None:
                    if accumulator is not None:
                        del shard[stored_key]
                        accumulator = None
                else:
                    accumulator = add(create() if accumulator is None else accumulator, value)
                    if accumulator is None:
                        raise _lost_accumulator(self._table.name)
                    shard[stored_key] = accumulator
                if out is not None:
                    out.append(None if accumulator is None else get_result(accumulator))
        except Exception:
            self._note_failure(remaining, len(values))
            if finish is not None and (unwritable := finish(True, None)) is not None:
                self._refuse(unwritable, out, done)
            raise
        if finish is not None and (unwritable := finish(False, None)) is not None:
            self._refuse(unwritable, out, done)

    def fold_into(self, cells: dict[Any, Any], keys: Iterable[Any], values: Iterable[Any]) -> None:
        """:meth:`add` for each record of a batch, to ``cells`` of their keys instead of the state.

        :raises StateArgumentError: when ``add`` returns ``None``
        """
        stored, create, add = cells.get, self._descriptor.create, self._descriptor.add
        # The value is taken first: how many are left of an iterator tells on which record the function failed.
        for value, key in zip(values, keys, strict=True):
            before = stored(key)
            after = add(create() if before is None else before, value)
            if after is None:
                raise _lost_accumulator(self._table.name)
            cells[key] = after

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the accumulators of the source namespaces of the current key into that of ``target``.

        :raises StateArgumentError: when the descriptor has no ``merge``
        """
        merge = self._descriptor.merge
        if merge is None:
            raise StateArgumentError(
                f"aggregating state {self._table.name!r} has no merge function, which merging windows need: "
                "give its descriptor merge=(accumulator, accumulator) -> accumulator."
            )
        self._table.merge(target, sources, merge)


def _lost_accumulator(name: str) -> StateArgumentError:
    return StateArgumentError(
        f"the add function of aggregating state {name!r} returned None. It must return the accumulator, also when it "
        "changed it in place."
    )


def _folds(descriptor: AggregatingStateDescriptor) -> tuple[First, Fold]:
    """How a value becomes an accumulator, and how it is added to one."""
    name, create, add = descriptor.name, descriptor.create, descriptor.add

    def added(accumulator: Any, value: Any) -> Any:
        accumulator = add(accumulator, value)
        if accumulator is None:
            raise _lost_accumulator(name)
        return accumulator

    return lambda value: added(create(), value), added
