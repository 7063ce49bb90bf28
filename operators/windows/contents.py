"""The state of a window operator per key and window: an accumulator, a reduced value, or all records.

The window is the namespace of the state, given by its start.

:class:`FoldedContents` keeps windows *open* in memory until they fire: for each start a dict from key to accumulator.
Before each snapshot they are written to the state, and their timers are registered. So a checkpoint has the same
content as without them. A window that opens and fires between two checkpoints never comes into the state and needs
no timers; a record then costs only the look-up of its key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice, repeat
from operator import itemgetter, length_hint
from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError
from operators.basic import AggregateFunction
from state_backends.api import AggregatingState, KeyedStateBackend, ListState, ReducingState
from state_backends.base import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    values_are_immutable,
)

STATE_NAME = "window-contents"

Keys = Sequence[Any]
Starts = Sequence[int]

_FEW_RECORDS = 16
"""A smaller batch does not open a window: runs that go record by record keep all contents in the state."""

_MOST_CELLS = 1 << 17
"""With more accumulators in open windows, all are written to the state, which may be larger than memory."""


class WindowContents:
    """Contents of windows in keyed state: here all their records, in lists.

    :ivar what: the user's function, for errors
    :ivar failed_index: after an error in a user's function, the index of the record in its batch
    """

    what = "window"
    failed_index = 0

    def __init__(self, state: ListState) -> None:
        self._state: Any = state

    def add_many(self, keys: Keys, starts: Starts, values: Sequence[Any]) -> None:
        """Add each value to its window in the state, which is not open."""
        self._state.add_many(keys, values, starts)

    def add_in_time(self, keys: Keys, starts: Starts, values: Sequence[Any]) -> tuple[Keys, Starts]:
        """Add each value to its window, which has not fired. Returns the windows that need timers and may have none."""
        self.add_many(keys, starts, values)
        windows = dict.fromkeys(zip(keys, starts, strict=True))
        window_keys, window_starts = zip(*windows, strict=True)
        return window_keys, window_starts

    def add_to_each(self, keys: Keys, windows: Starts, values: Sequence[Any]) -> tuple[Keys, Starts]:
        """The same, each value to each of these windows."""
        times = len(windows)
        repeated = [[one for one in column for _ in range(times)] for column in (keys, values)]
        try:
            return self.add_in_time(repeated[0], [*windows] * len(keys), repeated[1])
        except Exception:
            self.failed_index //= times
            raise

    def get_many(self, keys: Keys, starts: Starts) -> list[Any]:
        """The result of each window."""
        results: list[Any] = self._state.get_many(keys, starts)
        return results

    def clear_many(self, keys: Keys, starts: Starts) -> None:
        """Forget each window."""
        self._state.clear_many(keys, starts)

    @property
    def is_full(self) -> bool:
        """Whether the open windows should be written to the state."""
        return False

    def open_windows(self, until: int) -> list[tuple[int, Keys, bool]]:
        """Open windows with a start up to ``until``: the start, the keys, and whether the state has no others of the
        window."""
        return []

    def write_out(self, starts: Iterable[int] | None = None, *, close: bool = True) -> tuple[Keys, Starts]:
        """Write open windows to the state, these or all, and close them if that is asked for or necessary. Returns the
        written windows, which may have no timers."""
        return (), ()

    def fingerprint(self) -> object:
        """The open windows."""
        return ()


class _OpenWindow:
    """Accumulators of a window.

    :ivar cells: key to accumulator
    :ivar is_whole: whether the state has no other keys of this window
    :ivar written: the accumulators that this window has in the state; their keys have timers
    """

    __slots__ = ("cells", "is_whole", "written")

    def __init__(self, is_whole: bool) -> None:
        self.cells: Counter[Any] = Counter()
        self.is_whole = is_whole
        self.written: dict[Any, Any] = {}

    def unwritten(self) -> dict[Any, Any]:
        """The accumulators that the state does not have."""
        written = self.written
        # What has not changed is the same object, for only immutable accumulators are in both.
        return {key: one for key, one in self.cells.items() if written.get(key) is not one} if written else self.cells


class FoldedContents(WindowContents):
    """One accumulator or reduced value for each key and window.

    ``aggregate``       the aggregate, or ``None`` when values are reduced;
    ``restored_until``  the greatest start of a window that an earlier attempt may have left in the state, if any.
    """

    def __init__(
        self, state: AggregatingState | ReducingState, aggregate: AggregateFunction | None, restored_until: int | None
    ) -> None:
        self._state: Any = state
        self._aggregate = aggregate
        self.what = "reduce function" if aggregate is None else "aggregate function"
        self._restored_until = MIN_TIMESTAMP_MS if restored_until is None else restored_until
        self._open: dict[int, _OpenWindow] = {}
        self._cells = 0
        self._stored: dict[int, None] = {}
        """Starts of windows that this attempt has written to the state, at least in part."""

    def add_many(self, keys: Keys, starts: Starts, values: Sequence[Any]) -> None:
        try:
            if self._aggregate is None:
                reduced: list[Any] = []
                self._state.add_many(keys, values, reduced, starts)
                self._state.check_reduced(reduced)
            else:
                self._state.add_many(keys, starts, values)
        except Exception:
            self.failed_index = self._state.failed_index or 0
            raise
        self._stored.update(dict.fromkeys(starts))

    def add_in_time(self, keys: Keys, starts: Starts, values: Sequence[Any]) -> tuple[Keys, Starts]:
        if len(keys) < _FEW_RECORDS and not self._open:
            return super().add_in_time(keys, starts, values)
        return self._add_to_windows(keys, values, _by_window(starts))

    def add_to_each(self, keys: Keys, windows: Starts, values: Sequence[Any]) -> tuple[Keys, Starts]:
        if len(keys) < _FEW_RECORDS and not self._open:
            return super().add_to_each(keys, windows, values)
        return self._add_to_windows(keys, values, zip(windows, repeat(None)))

    def _add_to_windows(
        self, keys: Keys, values: Sequence[Any], windows: Iterable[tuple[int, Sequence[int] | None]]
    ) -> tuple[Keys, Starts]:
        """Add to each window the values at some positions, or all."""
        failed_at, failure = len(keys), None
        for start, positions in windows:
            if failure is not None:
                # Report the earliest record on which a function fails, as runs record by record do.
                positions = [one for one in (range(len(keys)) if positions is None else positions) if one < failed_at]
            some_keys, some_values = keys, values
            if positions is not None:
                some_keys, some_values = [keys[one] for one in positions], [values[one] for one in positions]
            remaining = iter(some_values)
            try:
                self._add_to_open(start, some_keys, remaining)
            except Exception as error:
                at = len(some_keys) - length_hint(remaining) - 1
                at, failure = self._refusal(some_keys, start) or (max(at, 0), error)
                failed_at = at if positions is None else positions[at]
        if failure is not None:
            self.failed_index = failed_at
            raise failure
        return (), ()

    def _refusal(self, keys: Keys, start: int) -> tuple[int, Exception] | None:
        """The first record whose key the state refuses, and why."""
        for at, key in enumerate(keys):
            try:
                self._state.stored_many((key,), (start,))
            except Exception as error:
                return at, error
        return None

    @property
    def is_full(self) -> bool:
        return self._cells > _MOST_CELLS

    def _add_to_open(self, start: int, keys: Keys, values: Iterable[Any]) -> None:
        """Add values to one window, which is opened if it is not."""
        window = self._open.get(start)
        if window is None:
            is_whole = start > self._restored_until and start not in self._stored
            window = self._open[start] = _OpenWindow(is_whole)
        cells = window.cells
        if not window.is_whole:
            self._fetch(cells, start, keys)
        before = len(cells)
        if self._aggregate is not None and self._aggregate.add_all is not None:
            self._aggregate.add_all(cells, keys, values)
        else:
            self._state.fold_into(cells, keys, values)
        new = len(cells) - before
        self._cells += new
        if new and window.is_whole:
            # The state refuses impossible keys: those of another subtask, and ints that are too wide.
            self._state.stored_many(list(islice(reversed(cells), new)), [start] * new)

    def _fetch(self, cells: Counter[Any], start: int, keys: Keys) -> None:
        """Read from the state the accumulators of these keys that the open window lacks."""
        unseen = [key for key in dict.fromkeys(keys) if key not in cells]
        found = self._state.stored_many(unseen, [start] * len(unseen))
        before = len(cells)
        dict.update(cells, {key: one for key, one in zip(unseen, found, strict=True) if one is not None})
        self._cells += len(cells) - before

    def get_many(self, keys: Keys, starts: Starts) -> list[Any]:
        results: list[Any] = []
        for start, pairs in groupby(zip(starts, keys, strict=True), itemgetter(0)):
            some = [key for _, key in pairs]
            window = self._open.get(start)
            if window is None:
                results += super().get_many(some, [start] * len(some))
                continue
            if not window.is_whole:
                self._fetch(window.cells, start, some)
            accumulators = map(window.cells.get, some)
            if self._aggregate is None:
                results += accumulators
            else:
                get_result = self._aggregate.get_result
                results += [None if one is None else get_result(one) for one in accumulators]
        return results

    def clear_many(self, keys: Keys, starts: Starts) -> None:
        in_state: list[tuple[Any, int]] = []
        for start, positions in _by_window(starts):
            cleared = keys if positions is None else [keys[one] for one in positions]
            window = self._open.get(start)
            if window is None or not window.is_whole:
                in_state += zip(cleared, repeat(start))
            elif window.written:
                in_state += [(key, start) for key in cleared if key in window.written]
            if window is not None:
                self._clear_open(start, window.cells, cleared)
        if in_state:
            super().clear_many([key for key, _ in in_state], [start for _, start in in_state])
            # Windows before one that is forgotten have been forgotten, too.
            last = max(start for _, start in in_state)
            self._stored = {start: None for start in self._stored if start > last}

    def _clear_open(self, start: int, cells: Counter[Any], cleared: Keys) -> None:
        """Forget keys of an open window: perhaps not all of them, for single timers, or timers that forget other
        windows, come between."""
        before = len(cells)
        if cells.keys() <= set(cleared):
            cells.clear()
        for key in cleared if cells else ():
            cells.pop(key, None)
        self._cells -= before - len(cells)
        if not cells:
            del self._open[start]

    def open_windows(self, until: int) -> list[tuple[int, Keys, bool]]:
        return [(one, list(self._open[one].cells), self._open[one].is_whole) for one in self._open if one <= until]

    def write_out(self, starts: Iterable[int] | None = None, *, close: bool = True) -> tuple[Keys, Starts]:
        written_keys: list[Any] = []
        written_starts: list[int] = []
        for start in list(self._open) if starts is None else starts:
            window = self._open.get(start)
            if window is None:
                continue
            cells = window.unwritten()
            self._state.store_many(list(cells), [start] * len(cells), list(cells.values()))
            self._stored[start] = None
            written_keys += cells
            written_starts += [start] * len(cells)
            if close or not values_are_immutable(cells.values()):
                # The snapshot may share accumulators that the user's function changes in place.
                del self._open[start]
                self._cells -= len(window.cells)
            else:
                window.written = dict(window.cells)
        return written_keys, written_starts

    def fingerprint(self) -> object:
        return tuple((start, tuple(window.cells.items())) for start, window in self._open.items())


def _by_window(starts: Starts) -> Iterable[tuple[int, Sequence[int] | None]]:
    """Each start with its positions, or ``None`` when all are the same."""
    if starts and starts.count(starts[0]) == len(starts):
        return ((starts[0], None),)
    positions: dict[int, list[int]] = {}
    for index, start in enumerate(starts):
        positions.setdefault(start, []).append(index)
    return positions.items()


def window_contents(
    backend: KeyedStateBackend,
    aggregate: AggregateFunction | Callable[[Any, Any], Any] | None,
    restored_until: int | None,
) -> WindowContents:
    """The contents that fit ``aggregate``: an aggregate, a reduce function, or ``None`` for all records."""
    check_aggregate(aggregate)
    if aggregate is None:
        return WindowContents(backend.list_state(ListStateDescriptor(STATE_NAME)))
    if isinstance(aggregate, AggregateFunction):
        accumulators = AggregatingStateDescriptor(
            STATE_NAME, aggregate.create, aggregate.add, aggregate.get_result, aggregate.merge
        )
        return FoldedContents(backend.aggregating_state(accumulators), aggregate, restored_until)
    return FoldedContents(backend.reducing_state(ReducingStateDescriptor(STATE_NAME, aggregate)), None, restored_until)


def check_aggregate(aggregate: object) -> None:
    """Refuse objects that cannot compute a window."""
    if aggregate is not None and not isinstance(aggregate, AggregateFunction) and not callable(aggregate):
        raise ConfigurationError(
            f"a window takes an AggregateFunction, a function (a, b) -> a, or None for all records, got {aggregate!r}"
        )
