"""Top-n: the n greatest records of each key, as they change (Flink: ``AppendOnlyTopNFunction``,
``RetractableTopNFunction``).

Rules.

* Records are ordered by their sort key, greatest first, or least first. Equal ones are ordered by their encoding. So
  the result is a function of the records, not of the order in which they came.
* With ranks: ``(kind, (rank, record))``, ranks from 1. A rank with another record is updated (``-U`` and ``+U``), a new
  rank is inserted, a vanished one deleted; ranks in ascending order.
* Without: a record that leaves the first n is deleted before the record that takes its place is inserted.
* If records are only added (``changes=False``), n are kept per key, because a lower one can never move up. If records
  are also removed, all are kept. Removing a record that is not there has no effect and is counted
  (``numUnknownRetractions``).

For the final n greatest records of a window use the aggregate :func:`greatest`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from math import isnan
from operator import itemgetter
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import check_whole
from engine.elements.operator import Operator
from operators.basic import AggregateFunction, item_in_hand
from operators.ranking.change_records import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, adds
from state_backends.base import StateTtlConfig, ValueStateDescriptor
from state_backends.codec import default_codec

Entry = tuple[Any, bytes, Any]
"""Sort key, encoded record, record: compared by the first two, for equal bytes are equal records."""


def _position(entry: Entry) -> tuple[Any, bytes]:
    return entry[0], entry[1]


class _Descending:
    """A sort key in reverse order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.key == other.key)

    __hash__ = None  # type: ignore[assignment]


class Ranking:
    """The order of records, and ordered lists of them (a pure machine)."""

    def __init__(self, n: int, by: Callable[[Any], Any], *, ascending: bool, keep_all: bool = False) -> None:
        check_whole("top_n: n", n)
        self._n = n
        self._by = by
        self._ascending = ascending
        self._keep_all = keep_all
        self._encode = default_codec().encode

    def entry(self, record: Any) -> Entry:
        """A record with its sort key."""
        key = self._by(record)
        if type(key) is float and isnan(key):
            raise ValueError("by(record) is not a number (nan), which has no place among numbers; give it one")
        return (key if self._ascending else _Descending(key)), self._encode(record, "record"), record

    def entries(self, records: list[Any] | None) -> list[Entry]:
        """Records from state, which are in order."""
        return [self.entry(record) for record in records or ()]

    def add(self, entries: list[Entry], record: Any) -> None:
        """Insert a record in order; if there are too many, remove the last one."""
        insort(entries, self.entry(record), key=_position)
        if not self._keep_all:
            del entries[self._n :]

    def remove(self, entries: list[Entry], record: Any) -> bool:
        """Remove a record; returns whether it was there."""
        entry = self.entry(record)
        at = bisect_left(entries, _position(entry), key=_position)
        if at == len(entries) or entries[at][1] != entry[1]:
            return False
        del entries[at]
        return True

    def top(self, entries: list[Entry]) -> list[Entry]:
        """The first n."""
        return entries[: self._n]


def _are_same(one: Entry, other: Entry) -> bool:
    # Not by ``==``: 1, 1.0 and True are equal and rank apart, and a value that is not a number (NaN) equals nothing.
    return one[1] == other[1]


def ranked_changes(before: list[Entry], after: list[Entry]) -> list[tuple[str, Any]]:
    """The changes that turn one list of ranked records into the other."""
    out: list[tuple[str, Any]] = []
    for index in range(max(len(before), len(after))):
        rank = index + 1
        if index >= len(after):
            out.append((DELETE, (rank, before[index][2])))
        elif index >= len(before):
            out.append((INSERT, (rank, after[index][2])))
        elif not _are_same(before[index], after[index]):
            out += [(UPDATE_BEFORE, (rank, before[index][2])), (UPDATE_AFTER, (rank, after[index][2]))]
    return out


def plain_changes(before: list[Entry], after: list[Entry]) -> list[tuple[str, Any]]:
    """The same without ranks: first the records that have left, then those that have come."""
    return [
        *((DELETE, record) for record in _missing(before, after)),
        *((INSERT, record) for record in _missing(after, before)),
    ]


def _missing(here: list[Entry], there: list[Entry]) -> list[Any]:
    counts = Counter([encoded for _, encoded, _ in there])
    missing = []
    for _, encoded, record in here:
        counts[encoded] -= 1
        if counts[encoded] < 0:
            missing.append(record)
    return missing


class TopNOperator(Operator):
    """The n greatest (or least) records of each key, as changes."""

    def __init__(
        self,
        n: int,
        by: Callable[[Any], Any],
        *,
        ascending: bool = False,
        with_rank: bool = True,
        changes: bool = False,
        ttl_ms: int | None = None,
    ) -> None:
        self._ranking = Ranking(n, by, ascending=ascending, keep_all=changes)
        self._difference = ranked_changes if with_rank else plain_changes
        self._changes = changes
        self._ttl = None if ttl_ms is None else StateTtlConfig(ttl_ms)

    def initialize_state(self) -> None:
        descriptor = ValueStateDescriptor("ranked", None, ttl=self._ttl)
        self._state = self.context.keyed_backend().value_state(descriptor)

    def process_batch(self, batch: Batch) -> None:
        keys, stamps = batch.keys, batch.timestamps
        if not batch:
            return
        assert keys is not None, "top_n needs key_by before it"
        ranking = self._ranking
        distinct = list(dict.fromkeys(keys))
        changed: dict[Any, list[Entry]] = {}
        out: list[Any] = []
        out_stamps: list[int] = []
        iterator = iter(batch.values)
        try:
            ranked = {
                key: ranking.entries(kept) for key, kept in zip(distinct, self._state.get_many(distinct), strict=True)
            }
            for position, (key, value) in enumerate(zip(keys, iterator, strict=False)):
                entries = ranked[key]
                before, were = ranking.top(entries), len(entries)
                if self._apply(entries, value):
                    after = ranking.top(entries)
                    out += self._difference(before, after)
                    if were != len(entries) or list(map(itemgetter(1), before)) != list(map(itemgetter(1), after)):
                        changed[key] = entries
                    if stamps is not None:
                        out_stamps += [stamps[position]] * (len(out) - len(out_stamps))
        except Exception as error:
            raise self.user_error("top_n", item_in_hand(batch.values, iterator), error) from error
        if changed:
            kept = [[record for _, _, record in entries] or None for entries in changed.values()]
            self._state.update_many(list(changed), kept)
        if out:
            self.output.emit(Batch(out, None if stamps is None else out_stamps))

    def _apply(self, entries: list[Entry], value: Any) -> bool:
        """Whether the record has an effect."""
        ranking = self._ranking
        if not self._changes:
            ranking.add(entries, value)
        elif adds(value):
            ranking.add(entries, value[1])
        elif not ranking.remove(entries, value[1]):
            self.context.metrics.count("numUnknownRetractions")
            return False
        return True


def greatest(n: int, by: Callable[[Any], Any], *, ascending: bool = False) -> AggregateFunction:
    """The ``n`` greatest records of a window by ``by(record)``, or the least; for ``window(...).aggregate``."""
    ranking = Ranking(n, by, ascending=ascending)

    def add(kept: list[Any], record: Any) -> list[Any]:
        entries = ranking.entries(kept)
        ranking.add(entries, record)
        return [record for _, _, record in entries]

    def merge(first: list[Any], second: list[Any]) -> list[Any]:
        for record in second:
            first = add(first, record)
        return first

    return AggregateFunction(list, add, list, merge)
