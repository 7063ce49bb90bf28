"""The windows of a columnar window operator in memory: accumulators of all keys of a window in arrays, and the
arithmetic of which records of a batch belong to which windows.

A window keeps records until there are many of them, or its results are needed; then they are grouped and folded at
once. Grouping costs per key and fold: folding each small batch by itself would cost more than all other work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from engine.elements.columns import Column
from operators.windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from state_backends.base import np
from state_backends.columns import (
    MAX_RECORDS,
    ColumnFold,
    Grouping,
    KeyColumn,
    LongOverflowError,
    LongSlots,
    ObjectSlots,
    Slots,
)

Chosen = Any
"""The records of a batch that belong to a window: a slice, or ascending positions."""

_LEAST_SLOTS = 16


class WindowOverflowError(LongOverflowError):
    """A sum of integers of one key has left 64 bits.

    :ivar key: the key
    """

    def __init__(self, key: Any, error: LongOverflowError) -> None:
        Exception.__init__(self, str(error))
        self.key = key


class WindowPart(NamedTuple):
    """One accumulator of each key and window.

    ``state``   the name of its reducing state;
    ``column``  the folded column; ``None``: records are counted.
    """

    state: str
    fold: ColumnFold
    column: str | None


class OpenWindow:
    """The accumulators of one window. Keys have slots, in the order of their first use.

    :ivar slots: the slot of each key
    :ivar totals: for each part the accumulators by slot; there may be room for more
    :ivar due: by slot, whether the key has records since the window fired for it
    :ivar is_due: whether any key has
    :ivar waiting: how many records are not in the accumulators yet
    """

    __slots__ = ("_group", "_inputs", "_keys", "_parts", "due", "is_due", "slots", "totals", "waiting")

    def __init__(
        self, parts: Sequence[WindowPart], types: Sequence[Any], is_long: bool, group: Callable[[KeyColumn], Grouping]
    ) -> None:
        """``types``: of the accumulators of each part; ``group``: groups records by key."""
        self._parts, self._group = parts, group
        self.slots: Slots = LongSlots() if is_long else ObjectSlots()
        self.totals = [np.zeros(_LEAST_SLOTS, dtype=one) for one in types]
        self.due = np.zeros(_LEAST_SLOTS, dtype=np.bool_)
        self.is_due = False
        self._keys: list[KeyColumn] = []
        self._inputs: list[tuple[Column, ...]] = []
        self.waiting = 0

    def load(self, keys: KeyColumn, totals: Sequence[Column]) -> None:
        """Take over accumulators of keys, all different, for which the window has not fired."""
        slots = self._new_slots(keys)
        for mine, one in zip(self.totals, totals, strict=True):
            mine[slots] = one
        self.due[slots] = self.is_due = True

    def add(self, keys: KeyColumn, inputs: tuple[Column, ...]) -> None:
        """Records that have come in time: a key column, and for each part the values to fold."""
        if self.waiting + len(keys) > MAX_RECORDS:
            self.fold()
        self._keys.append(keys)
        self._inputs.append(inputs)
        self.waiting += len(keys)
        self.is_due = True

    def fold(self) -> None:
        """Bring the waiting records into the accumulators.

        :raises WindowOverflowError: when a sum leaves 64 bits
        """
        if not self.waiting:
            return
        keys = _joined(self._keys)
        inputs = [_joined(one) for one in zip(*self._inputs, strict=True)]
        self._keys, self._inputs, self.waiting = [], [], 0
        for start in range(0, len(keys), MAX_RECORDS):
            some = slice(start, start + MAX_RECORDS)
            slots = self._folded(keys[some], [one[some] for one in inputs], None)
            self.due[slots] = True

    def fold_late(self, keys: KeyColumn, inputs: Sequence[Column]) -> list[Column]:
        """Fold in records, at most ``MAX_RECORDS``, each of which has a result of its own, after the window has fired.
        Returns the accumulators after each record, by part. They do not make a key due."""
        assert not self.waiting, "records of a window that fires are folded"
        results: list[Column] = []
        self._folded(keys, inputs, results)
        return results

    def _folded(self, keys: KeyColumn, inputs: Sequence[Column], results: list[Column] | None) -> Any:
        """Fold records in; returns the slots of their keys. ``results`` gets the accumulators after each record."""
        grouping = self._group(keys)
        slots = self.slots.find(grouping.keys)
        is_new = slots < 0
        after: list[Column] = []
        for part, mine, values in zip(self._parts, self.totals, inputs, strict=True):
            before = mine[slots]
            before[is_new] = 0
            try:
                if results is None:
                    after.append(part.fold.totals(grouping, values, before, is_new))
                else:
                    running, total = part.fold.fold(grouping, values, before, is_new)
                    results.append(grouping.to_batch_order(running))
                    after.append(total)
            except LongOverflowError as error:
                raise WindowOverflowError(plain(keys)[error.position], error) from error
        new = np.flatnonzero(is_new)
        if len(new):
            slots[new] = self._new_slots(chosen(grouping.keys, new))
        for mine, one in zip(self.totals, after, strict=True):
            mine[slots] = one
        return slots

    def _new_slots(self, keys: KeyColumn) -> Any:
        before, needed = len(self.slots), len(self.slots) + len(keys)
        if needed > len(self.due):
            self.totals = [_grown(one, needed) for one in self.totals]
            self.due = _grown(self.due, needed)
        self.slots.add(keys)
        return np.arange(before, needed)

    @property
    def keys(self) -> KeyColumn:
        """The keys by slot, without those of waiting records."""
        return self.slots.keys(len(self.slots))

    def accumulators(self, part: int) -> Column:
        """Those of one part by slot: a copy, without the waiting records."""
        copied: Column = self.totals[part][: len(self.slots)].copy()
        return copied

    def fired(self) -> Column:
        """By slot, 1 for a key without records since the window fired, else 0."""
        return (~self.due[: len(self.slots)]).astype(np.int64)

    def fingerprint(self) -> object:
        """Everything that decides what comes out of the window."""
        totals = [self.accumulators(part).tolist() for part in range(len(self.totals))]
        folded = plain(self.keys), totals, self.fired().tolist()
        waiting = [plain(one) for one in self._keys], [[plain(one) for one in inputs] for inputs in self._inputs]
        return folded, waiting


def _joined(columns: Sequence[Column]) -> Column:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _grown(array: Column, needed: int) -> Column:
    grown = np.zeros(max(needed, 2 * len(array)), dtype=array.dtype)
    grown[: len(array)] = array
    return grown


def chosen(keys: KeyColumn, positions: Any) -> KeyColumn:
    """The keys at some positions."""
    return keys[positions] if isinstance(keys, np.ndarray) else [keys[one] for one in positions.tolist()]


def plain(column: Any) -> list[Any]:
    """A column as a list of plain values."""
    listed: list[Any] = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return listed


def windows_of(
    assigner: TumblingEventTimeWindows | SlidingEventTimeWindows, stamps: Column, first_ms: int, last_ms: int
) -> list[tuple[int, Chosen]]:
    """The windows that records with these event times, the least and greatest of which are given, belong to: the start
    of each, ascending, and its records."""
    size = assigner.size_ms
    slide = assigner.slide_ms if isinstance(assigner, SlidingEventTimeWindows) else size
    offset = assigner.offset_ms
    first, last = (one - (one - offset) % slide for one in (first_ms, last_ms))
    panes = [(first, slice(0, len(stamps)))] if first == last else _panes(stamps, slide, offset)
    if size == slide:
        return panes
    by_window: dict[int, list[Chosen]] = {}
    for latest, records in panes:
        for start in range(latest, latest - size, -slide):
            some = records
            if start + size < latest + slide:
                # The window ends within the slide.
                some = _positions(records)[stamps[records] < start + size]
            if not isinstance(some, np.ndarray) or len(some):
                by_window.setdefault(start, []).append(some)
    return [(start, _together(by_window[start])) for start in sorted(by_window)]


def _panes(stamps: Column, slide: int, offset: int) -> list[tuple[int, Chosen]]:
    """The records by the latest multiple of the slide, ascending."""
    latest = stamps - (stamps - offset) % slide
    order = None
    if (latest[1:] < latest[:-1]).any():
        order = np.argsort(latest, kind="stable")
        latest = latest[order]
    bounds = [0, *(np.flatnonzero(latest[1:] != latest[:-1]) + 1).tolist(), len(latest)]
    slices = map(slice, bounds[:-1], bounds[1:])
    starts = latest[bounds[:-1]].tolist()
    return [(start, some if order is None else order[some]) for start, some in zip(starts, slices, strict=True)]


def _positions(records: Chosen) -> Any:
    return np.arange(records.start, records.stop) if isinstance(records, slice) else records


def _together(records: Sequence[Chosen]) -> Chosen:
    """The records of neighbouring panes, in the order of the batch."""
    if len(records) == 1:
        return records[0]
    if all(isinstance(one, slice) for one in records):
        # Panes in the order of the batch have no other records between them.
        return slice(min(one.start for one in records), max(one.stop for one in records))
    return np.sort(np.concatenate([_positions(one) for one in records]))
