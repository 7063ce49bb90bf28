"""Reducing and aggregating state over an ordered store: added values are folded into what is stored.

A batch decodes each entry once, folds all its records into it, and encodes it once at the end: a key that comes up
often in a batch costs hardly more than one that comes up once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import length_hint
from typing import Any

from state_backends.api import Namespaces, lost_accumulator, no_merge_function
from state_backends.base import AggregatingStateDescriptor, ReducingStateDescriptor, check_lengths
from state_backends.store.parts import KeyScope, StoreAccess, StoreTable
from state_backends.store.states import StoreState


class FoldingBatch:
    """The entries that a batch is folded into.

    :ivar rows: the row of each record, up to the first whose row cannot be told
    :ivar problem: why it cannot
    :ivar entries: row to decoded value, ``None`` = not there
    """

    __slots__ = ("entries", "problem", "rows")

    def __init__(self, rows: list[bytes], problem: Exception | None) -> None:
        self.rows = rows
        self.problem = problem
        self.entries: dict[bytes, Any] = {}


class _FoldingState(StoreState):
    """What reducing and aggregating state share.

    :ivar failed_index: after the program's function failed in a batch: the index of its record
    """

    __slots__ = ("failed_index",)

    def __init__(self, scope: KeyScope, table: StoreTable, access: StoreAccess) -> None:
        super().__init__(scope, table, access)
        self.failed_index: int | None = None

    def _read(self, row: bytes) -> Any:
        data = self._access.store().get(row)
        return None if data is None else self._decode(data)

    def _write(self, row: bytes, value: Any, namespace: Any) -> None:
        self._access.store().put(row, self._encode(value, self._scope.key, namespace))

    def _read_many(self, keys: Sequence[Any], namespaces: Namespaces) -> list[Any]:
        return self._decode_many(self._access.store().get_many(self._rows(keys, namespaces)))

    def _start(self, keys: Sequence[Any], namespaces: Namespaces) -> FoldingBatch:
        """Read the entries of a batch."""
        try:
            batch = FoldingBatch(self._rows(keys, namespaces), None)
        except Exception:
            batch = self._start_until_failure(keys, namespaces)
        distinct = list(dict.fromkeys(batch.rows))
        found = self._access.store().get_many(distinct)
        batch.entries = dict(zip(distinct, self._decode_many(found), strict=True))
        return batch

    def _start_until_failure(self, keys: Sequence[Any], namespaces: Namespaces) -> FoldingBatch:
        # The records before the one that fails count: the caller hears how many they were.
        rows: list[bytes] = []
        try:
            for index, key in enumerate(keys):
                rows += self._rows([key], None if namespaces is None else [namespaces[index]])
        except Exception as problem:
            return FoldingBatch(rows, problem)
        raise AssertionError("a batch failed as a whole and not in its records")

    def _write_back(
        self, batch: FoldingBatch, keys: Sequence[Any], namespaces: Namespaces, out: list[Any] | None, before: int
    ) -> None:
        """Write what a batch has folded; when a value cannot be encoded, the others are written all the same.

        :param out: what was appended for each record; cut to the records before one whose value cannot be encoded
        :param before: how long it was before the batch
        :raises StateSerializationError: naming key and path; ``failed_index`` is the last record that went into it
        """
        pack = self._codec.pack
        encoded: dict[bytes, bytes | None] = {}
        problem: Exception | None = None
        try:
            for row, value in batch.entries.items():
                encoded[row] = None if value is None else pack(value)
        except Exception:
            encoded, self.failed_index, problem = self._encode_what_can_be(batch, keys, namespaces)
            if out is not None:
                del out[before + self.failed_index :]
        self._access.store().write_many(encoded)
        if problem is not None:
            raise problem

    def _encode_what_can_be(
        self, batch: FoldingBatch, keys: Sequence[Any], namespaces: Namespaces
    ) -> tuple[dict[bytes, bytes | None], int, Exception]:
        """What can be encoded, and the first record whose value cannot."""
        last = {row: index for index, row in enumerate(batch.rows)}
        encoded: dict[bytes, bytes | None] = {}
        problems: dict[int, Exception] = {}
        for row, value in batch.entries.items():
            index = last[row]
            namespace = None if namespaces is None else namespaces[index]
            try:
                encoded[row] = None if value is None else self._encode(value, keys[index], namespace)
            except Exception as problem:
                problems[index] = problem
        first = min(problems)
        return encoded, first, problems[first]

    def _merge(self, target: Any, sources: Iterable[Any], merge: Callable[[Any, Any], Any]) -> None:
        taken = self._take(sources)
        if not taken:
            return
        row = self._row(target)
        merged = self._read(row)
        for data in taken:
            value = self._decode(data)
            merged = value if merged is None else merge(merged, value)
        self._write(row, merged, target)

    def _note_failure(self, remaining: Iterator[Any], size: int) -> None:
        # A list iterator knows how many items it has left, so the loop itself need not count. It stands
        # first in the zip: whatever fails for a record, its own value has just been taken.
        self.failed_index = size - length_hint(remaining) - 1


class StoreReducingState(_FoldingState):
    """One value per key and namespace into which added values are folded."""

    __slots__ = ("_reduce",)

    def __init__(
        self, scope: KeyScope, table: StoreTable, access: StoreAccess, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(scope, table, access)
        self._reduce = descriptor.reduce_fn

    def get(self) -> Any:
        """The reduced value, or ``None`` when nothing was added."""
        return self._read(self._row())

    def add(self, value: Any) -> None:
        """Fold a value in; the first one is stored as it is. ``None`` clears (HeapReducingState)."""
        row = self._row()
        if value is None:
            self._access.store().delete(row)
            return
        before = self._read(row)
        self._write(row, value if before is None else self._reduce(before, value), self._namespace)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        return self._read_many(keys, namespaces)

    def add_many(
        self, keys: Sequence[Any], values: Sequence[Any], out: list[Any], namespaces: Namespaces = None
    ) -> None:
        """:meth:`add` for each record of a batch, appending the value after each to ``out``.

        When the reduce function raises, the exception passes through; ``out`` has one item per record
        done, and ``failed_index`` is the index of the record it failed on.
        """
        check_lengths(keys, values)
        batch = self._start(keys, namespaces)
        entries, reduce_fn, append = batch.entries, self._reduce, out.append
        before_batch = len(out)
        remaining = iter(values)
        try:
            for value, row in zip(remaining, batch.rows, strict=False):
                before = entries[row]
                if before is not None and value is not None:
                    value = reduce_fn(before, value)
                entries[row] = value
                append(value)
            if batch.problem is not None:
                raise batch.problem
        except Exception:
            self._note_failure(remaining, len(values))
            self._write_back(batch, keys, namespaces, out, before_batch)
            raise
        self._write_back(batch, keys, namespaces, out, before_batch)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold the values of the source namespaces of the current key into that of ``target``."""
        self._merge(target, sources, self._reduce)


class StoreAggregatingState(_FoldingState):
    """One accumulator per key and namespace."""

    __slots__ = ("_descriptor",)

    def __init__(
        self, scope: KeyScope, table: StoreTable, access: StoreAccess, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(scope, table, access)
        self._descriptor = descriptor

    def get(self) -> Any:
        """The result of the accumulator, or ``None`` when nothing was added."""
        accumulator = self._read(self._row())
        return None if accumulator is None else self._descriptor.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value to the accumulator, making one when missing. ``None`` clears."""
        row = self._row()
        if value is None:
            self._access.store().delete(row)
        else:
            self._write(row, self._added(self._read(row), value), self._namespace)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        get_result = self._descriptor.get_result
        accumulators = self._read_many(keys, namespaces)
        return [None if accumulator is None else get_result(accumulator) for accumulator in accumulators]

    def add_many(
        self,
        keys: Sequence[Any],
        namespaces: Namespaces,
        values: Sequence[Any],
        out: list[Any] | None = None,
    ) -> None:
        """:meth:`add` for each record of a batch; with ``out``, appends the result after each.

        When a function of the program raises, the exception passes through and ``failed_index`` is the
        index of the record it failed on.

        :raises StateArgumentError: when ``add`` returns ``None``
        """
        check_lengths(keys, values)
        batch = self._start(keys, namespaces)
        entries, get_result = batch.entries, self._descriptor.get_result
        create, add = self._descriptor.create, self._descriptor.add
        before_batch = 0 if out is None else len(out)
        remaining = iter(values)
        try:
            for value, row in zip(remaining, batch.rows, strict=False):
                accumulator = None
                if value is not None:
                    before = entries[row]
                    accumulator = add(create() if before is None else before, value)
                    if accumulator is None:
                        raise lost_accumulator(self._table.name)
                entries[row] = accumulator
                if out is not None:
                    out.append(None if accumulator is None else get_result(accumulator))
            if batch.problem is not None:
                raise batch.problem
        except Exception:
            self._note_failure(remaining, len(values))
            self._write_back(batch, keys, namespaces, out, before_batch)
            raise
        self._write_back(batch, keys, namespaces, out, before_batch)

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the accumulators of the source namespaces of the current key into that of ``target``.

        :raises StateArgumentError: when the descriptor has no ``merge``
        """
        merge = self._descriptor.merge
        if merge is None:
            raise no_merge_function(self._table.name)
        self._merge(target, sources, merge)

    def _added(self, accumulator: Any, value: Any) -> Any:
        accumulator = self._descriptor.add(self._descriptor.create() if accumulator is None else accumulator, value)
        if accumulator is None:
            raise lost_accumulator(self._table.name)
        return accumulator
