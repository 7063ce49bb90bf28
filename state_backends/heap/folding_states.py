"""Reducing and aggregating state of the heap backend: added values are folded into what is stored.

These two carry the hot loops of keyed sums and of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import length_hint
from typing import Any

from state_backends.api import KeyContext, Namespaces, lost_accumulator, no_merge_function
from state_backends.base import AggregatingStateDescriptor, ReducingStateDescriptor, Shard, check_lengths
from state_backends.heap.states import HeapState, StateTables, shards_of


class _FoldingState(HeapState):
    """What reducing and aggregating state share.

    :ivar failed_index: after the program's function failed in a batch: the index of its record
    """

    __slots__ = ("failed_index",)

    def __init__(self, context: KeyContext, tables: StateTables) -> None:
        super().__init__(context, tables)
        self.failed_index: int | None = None

    def _merge(self, target: Any, sources: Iterable[Any], merge: Callable[[Any, Any], Any]) -> None:
        values = self._namespace_values(sources)
        if not values:
            return
        shard, stored_key = self._locate(target)
        merged = shard.get(stored_key)
        for value in values:
            merged = value if merged is None else merge(merged, value)
        shard[stored_key] = merged

    def _note_failure(self, remaining: Iterator[Any], size: int) -> None:
        # A list iterator knows how many items it has left, so the loop itself need not count. It stands
        # first in the zip: whatever fails for a record, its own value has just been taken.
        self.failed_index = size - length_hint(remaining) - 1


class HeapReducingState(_FoldingState):
    """One value per key and namespace into which added values are folded."""

    __slots__ = ("_reduce",)

    def __init__(self, context: KeyContext, tables: StateTables, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(context, tables)
        self._reduce = descriptor.reduce_fn

    def get(self) -> Any:
        """The reduced value, or ``None`` when nothing was added."""
        shard, stored_key = self._locate()
        return shard.get(stored_key)

    def add(self, value: Any) -> None:
        """Fold a value in; the first one is stored as it is. ``None`` clears (HeapReducingState)."""
        shard, stored_key = self._locate()
        if value is None:
            shard.pop(stored_key, None)
        elif stored_key in shard:
            shard[stored_key] = self._reduce(shard[stored_key], value)
        else:
            shard[stored_key] = value

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        return [shard.get(stored_key) for stored_key, shard in self._entries(keys, namespaces)]

    def add_many(
        self, keys: Sequence[Any], values: Sequence[Any], out: list[Any], namespaces: Namespaces = None
    ) -> None:
        """:meth:`add` for each record of a batch, appending the value after each to ``out``.

        When the reduce function raises, the exception passes through; ``out`` has one item per record
        done, and ``failed_index`` is the index of the record it failed on.
        """
        # check_lengths, without a call on the way of every batch of a reduce
        assert len(values) == len(keys), f"a batch of {len(keys)} keys came with {len(values)} values"
        reduce_fn = self._reduce
        append = out.append
        remaining = iter(values)
        table = self._tables.plain if namespaces is None else self._tables.namespaced
        stored_keys: Iterable[Any] = keys
        if namespaces is not None:
            check_lengths(keys, namespaces)
            stored_keys = zip(keys, namespaces, strict=True)
        try:
            for value, stored_key, shard in zip(remaining, stored_keys, shards_of(table, keys), strict=True):
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
            raise

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Fold the values of the source namespaces of the current key into that of ``target``."""
        self._merge(target, sources, self._reduce)


class HeapAggregatingState(_FoldingState):
    """One accumulator per key and namespace."""

    __slots__ = ("_descriptor",)

    def __init__(
        self, context: KeyContext, tables: StateTables, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(context, tables)
        self._descriptor = descriptor

    def get(self) -> Any:
        """The result of the accumulator, or ``None`` when nothing was added."""
        shard, stored_key = self._locate()
        accumulator = shard.get(stored_key)
        return None if accumulator is None else self._descriptor.get_result(accumulator)

    def add(self, value: Any) -> None:
        """Add a value to the accumulator, making one when missing. ``None`` clears."""
        shard, stored_key = self._locate()
        self._add(shard, stored_key, value)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        found = [shard.get(stored_key) for stored_key, shard in self._entries(keys, namespaces)]
        get_result = self._descriptor.get_result
        return [None if accumulator is None else get_result(accumulator) for accumulator in found]

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
        create, add = self._descriptor.create, self._descriptor.add
        remaining = iter(values)
        try:
            for value, (stored_key, shard) in zip(remaining, self._entries(keys, namespaces), strict=True):
                try:
                    accumulator = shard[stored_key]
                except KeyError:
                    accumulator = None
                if value is None:
                    shard.pop(stored_key, None)
                    accumulator = None
                else:
                    accumulator = add(create() if accumulator is None else accumulator, value)
                    if accumulator is None:
                        raise lost_accumulator(self._tables.name)
                    shard[stored_key] = accumulator
                if out is not None:
                    out.append(None if accumulator is None else self._descriptor.get_result(accumulator))
        except Exception:
            self._note_failure(remaining, len(values))
            raise

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Merge the accumulators of the source namespaces of the current key into that of ``target``.

        :raises StateArgumentError: when the descriptor has no ``merge``
        """
        merge = self._descriptor.merge
        if merge is None:
            raise no_merge_function(self._tables.name)
        self._merge(target, sources, merge)

    def _add(self, shard: Shard, stored_key: Any, value: Any) -> None:
        if value is None:
            shard.pop(stored_key, None)
            return
        accumulator = shard.get(stored_key)
        if accumulator is None:
            accumulator = self._descriptor.create()
        accumulator = self._descriptor.add(accumulator, value)
        if accumulator is None:
            raise lost_accumulator(self._tables.name)
        shard[stored_key] = accumulator
