"""Tumbling and sliding event-time windows of columns: aggregates of each key and window, a batch at a time.

Which record is late, which window fires when, and the order of results are those of the row operator
(``operators.windows.window_operator``, where the rules are). A result has the key columns, ``window_start``,
``window_end`` and a column for each aggregate.

Windows are in memory (``open_windows``). Before each snapshot they are written to the state: for each part of an
aggregate a reducing state with one number per key and window, and the namespace is the start of the window. The state
"fired" says for which keys a window that is kept for late records has fired; it has nothing of other windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.columns import Column, ColumnBatch, ColumnError, column_of_values, concatenated
from engine.elements.errors import ConfigurationError, StateError, check_whole
from operators.columns.keyed_columns import ColumnAggregate, input_column
from operators.columns.open_windows import OpenWindow, WindowOverflowError, WindowPart, chosen, plain, windows_of
from operators.columns.stateless_columns import ColumnOperator, some_records
from operators.columns.window_state import StoredWindows, WindowRows, WindowState
from operators.time import EventClock, missing_timestamps
from operators.windows import SlidingEventTimeWindows, TumblingEventTimeWindows, check_window_spec
from state_backends.base import ReducingStateDescriptor, StateBackendError, list_of, np, number
from state_backends.codec import default_codec, in_encoded_order
from state_backends.columns import (
    MAX_RECORDS,
    CountFold,
    KeyColumn,
    KeyNumbers,
    MaxFold,
    Workspace,
    encoded_order,
    group_by_key,
    is_long_column,
)

WINDOW_START, WINDOW_END = "window_start", "window_end"

_TIME_LIMIT_MS = 2**62
"""Event times beyond are refused, and longer windows: window arithmetic would leave 64 bits."""

_MOST_WAITING = 4 * MAX_RECORDS
"""With more records waiting in all windows together they are folded: windows that overlap have a copy each."""


class ColumnWindowOperator(ColumnOperator):
    """One record per key and window that ends.

    ``aggregates``           by the column that gets the result;
    ``fields``               the columns that the key was made of;
    ``allowed_lateness_ms``  how long a window that has fired is kept for late records;
    ``late_tag``             side output for records that come even later; ``None`` drops them.
    """

    def __init__(
        self,
        assigner: TumblingEventTimeWindows | SlidingEventTimeWindows,
        aggregates: Mapping[str, ColumnAggregate],
        fields: Sequence[str],
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        check_whole("allowed_lateness_ms", allowed_lateness_ms, 0)
        slide_ms = assigner.slide_ms if isinstance(assigner, SlidingEventTimeWindows) else assigner.size_ms
        if max(assigner.size_ms, slide_ms) > _TIME_LIMIT_MS:
            raise ConfigurationError(f"windows of columns are at most 2**62 ms long and apart, got {assigner}")
        names = (*fields, WINDOW_START, WINDOW_END, *aggregates)
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise ConfigurationError(
                f"results of windows have the columns {', '.join(names)}: there are two of the name {doubled!r}\n"
                "  let the aggregate go into another column (into=...), or rename the column of the key before"
            )
        self._assigner = assigner
        self._fields = tuple(fields)
        self._allowed_lateness_ms = allowed_lateness_ms
        self._late_tag = late_tag
        self._aggregates = dict(aggregates)
        self._parts = [part for into, one in aggregates.items() for part in _parts(into, one)]
        self._types: list[Any] | None = None
        """Of the accumulators of each part; known from the first records, or restored."""
        self._windows: dict[int, OpenWindow] = {}
        self._next_ms = MAX_TIMESTAMP_MS
        """No window ends and none is forgotten before that watermark."""
        self._group = partial(group_by_key, numbers=KeyNumbers(), space=Workspace())

    # --- state --------------------------------------------------------------------------------------------

    def initialize_state(self) -> None:
        operator_backend = self.context.operator_backend()
        self._spec_state = operator_backend.union_list_state("window-spec")
        check_window_spec(self, self._spec_state.get(), self._spec())
        self._starts = operator_backend.union_list_state("window-starts", list_of(number))
        starts = sorted({start for of_subtask in self._starts.get() for start in of_subtask})
        self._states = [self._window_state(part.state, part.fold.combine, starts) for part in self._parts]
        self._fired = self._window_state("fired", MaxFold().combine, starts)
        self._clock = EventClock(self.context)
        try:
            self._restore([state.load() for state in self._states], self._fired.load())
        except ColumnError as error:
            raise StateError(f"operator {self.context.name!r}: windows in the state: {error}") from error

    def _window_state(self, name: str, combine: Callable[[Any, Any], Any], starts: Sequence[int]) -> WindowState:
        backend = self.context.keyed_backend()
        in_columns: Callable[[ReducingStateDescriptor], WindowState] | None
        in_columns = getattr(backend, "window_columns", None)
        descriptor = ReducingStateDescriptor(name, combine)
        return WindowRows(backend, descriptor, starts) if in_columns is None else in_columns(descriptor)

    def _restore(self, parts: Sequence[StoredWindows], fired: StoredWindows) -> None:
        for part, one in zip(self._parts, parts, strict=True):
            if _keys_by_window(one) != _keys_by_window(parts[0]):
                raise StateError(
                    f"operator {self.context.name!r}: its states {self._parts[0].state!r} and {part.state!r} have "
                    "windows of different keys\n  restore from another checkpoint or savepoint"
                )
        for start in sorted(parts[0]):
            totals = [column_of_values(part.state, one[start][1]) for part, one in zip(self._parts, parts, strict=True)]
            self._check_types([one.dtype for one in totals])
            key_column = self._key_column(parts[0][start][0])
            window = self._open(start, key_column)
            window.load(key_column, totals)
            if start in fired:
                keys, flags = fired[start]
                slots = window.slots.find(self._key_column(keys))
                # Otherwise it would fire a second time (mutant "fired windows forgotten").
                window.due[slots] = np.array(flags) == 0
                window.is_due = bool(window.due.any())
            self._note_end(start, window)

    def _key_column(self, keys: list[Any]) -> KeyColumn:
        key_type = self.context.keyed_backend().key_type
        return np.array(keys, dtype=np.int64) if key_type is not None and key_type.name in ("INT", "LONG") else keys

    def _spec(self) -> str:
        """What must not change while there are windows in the state."""
        return f"{self._assigner.spec()} with {', '.join(part.state for part in self._parts)}"

    def snapshot_state(self, checkpoint_id: int) -> None:
        windows = self._windows.items()
        for start, window in windows:
            # All that has come is in the snapshot (mutant "waiting records not in a snapshot").
            self._fold(start, window)
        for part, state in enumerate(self._states):
            # Copies: the snapshot is written while records come (test: a window after a snapshot is not in it).
            state.store({start: (one.keys, one.accumulators(part)) for start, one in windows})
        fired = {start: (one.keys, one.fired()) for start, one in windows}
        self._fired.store({start: stored for start, stored in fired.items() if stored[1].any()})
        self._starts.update([sorted(self._windows)])
        self._clock.snapshot()
        self._spec_state.update([self._spec()])

    def fingerprint(self) -> object:
        windows = tuple((start, self._windows[start].fingerprint()) for start in sorted(self._windows))
        return self._clock.watermark_ms, repr(windows)

    # --- records ------------------------------------------------------------------------------------------

    def process_columns(self, batch: ColumnBatch) -> None:
        stamps = batch.timestamp_column
        if stamps is None:
            raise missing_timestamps(self)
        first_ms, last_ms = int(stamps.min()), int(stamps.max())
        inputs = self._inputs(batch, stamps, first_ms, last_ms)
        watermark_ms, last = self._clock.watermark_ms, self._assigner.size_ms - 1
        late: list[ColumnBatch] = []
        order: list[tuple[Any, int]] = []
        taken = np.zeros(len(batch), dtype=np.bool_)
        for start, records in windows_of(self._assigner, stamps, first_ms, last_ms):
            if self._assigner.cleanup_time(start, self._allowed_lateness_ms) <= watermark_ms:
                continue
            taken[records] = True
            keys = batch.key_column[records]  # type: ignore[index]
            values = tuple(one[records] for one in inputs)
            if isinstance(records, slice) and 2 * len(keys) < len(batch):
                # A slice keeps the columns of the whole batch in memory for as long as its records wait.
                keys, values = keys[:] if isinstance(keys, list) else keys.copy(), tuple(one.copy() for one in values)
            window = self._windows.get(start) or self._open(start, keys)
            if start + last > watermark_ms:
                self._guarded(start, window.add, keys, values)
            else:
                late.append(self._fired_again(start, window, keys, values))
                order.append((records, start))
            self._note_end(start, window)
        if sum(window.waiting for window in self._windows.values()) > _MOST_WAITING:
            for start, window in self._windows.items():
                self._fold(start, window)
        if late:
            self._emit_late(late, order, len(batch))
        if not taken.all():
            late_from_ms = max(watermark_ms - self._allowed_lateness_ms, -_TIME_LIMIT_MS)
            self._drop(batch.select(np.flatnonzero(~taken & (stamps <= late_from_ms))))

    def _inputs(self, batch: ColumnBatch, stamps: Column, first_ms: int, last_ms: int) -> list[Column]:
        """The values to fold of each part."""
        try:
            if first_ms < -_TIME_LIMIT_MS or last_ms > _TIME_LIMIT_MS:
                raise ColumnError("an event time is more than 2**62 ms from the epoch; give ms, not ns")
            inputs = [stamps if part.column is None else input_column(batch, part.column) for part in self._parts]
            # Of a count only the number of records matters, and the accumulators are integers.
            self._check_types([one.dtype for one in inputs])
        except ColumnError as error:
            raise self.user_error("windows", some_records(batch), error) from error
        return inputs

    def _check_types(self, types: list[Any]) -> None:
        if self._types is None:
            self._types = types
        if types != self._types:
            at = next(index for index, one in enumerate(types) if one != self._types[index])
            raise ColumnError(
                f"{self._parts[at].state} of column {self._parts[at].column!r} has {self._types[at]} values in windows "
                f"that have begun, and {types[at]} now; a column has one type: convert it before"
            )

    def _open(self, start: int, keys: KeyColumn) -> OpenWindow:
        assert self._types is not None
        window = OpenWindow(self._parts, self._types, is_long_column(keys), self._group)
        self._windows[start] = window
        return window

    def _guarded(self, start: int, fold: Callable[..., Any], *arguments: Any) -> Any:
        """Call what may fold records into a window."""
        try:
            return fold(*arguments)
        except WindowOverflowError as error:
            where = {"key": error.key, "window": self._assigner.window(start)}
            raise self.user_error("sum of a window", where, error) from error
        except StateBackendError as error:
            raise self.user_error("windows", {"window": self._assigner.window(start)}, error) from error

    def _fold(self, start: int, window: OpenWindow) -> None:
        self._guarded(start, window.fold)

    def _fired_again(self, start: int, window: OpenWindow, keys: KeyColumn, values: Sequence[Column]) -> ColumnBatch:
        """Late records within the allowed lateness: each has a new result of its window."""
        pieces: list[list[Column]] = []
        for at in range(0, len(keys), MAX_RECORDS):
            some = slice(at, at + MAX_RECORDS)
            pieces.append(self._guarded(start, window.fold_late, keys[some], [one[some] for one in values]))
        return self._results(start, keys, [np.concatenate(one) for one in zip(*pieces, strict=True)])

    def _emit_late(self, late: Sequence[ColumnBatch], order: Sequence[tuple[Any, int]], count: int) -> None:
        """In the order of the records, those of one record from its latest window on."""
        positions = np.concatenate([np.arange(count)[records] for records, _ in order])
        starts = np.concatenate([np.full(len(one), start) for one, (_, start) in zip(late, order, strict=True)])
        self._emit(concatenated(late).select(np.lexsort((-starts, positions))))

    def _drop(self, late: ColumnBatch) -> None:
        if not len(late):
            return
        if self._late_tag is None:
            self.context.metrics.count("numLateRecordsDropped", len(late))
        else:
            self.output.emit_side(self._late_tag, late.with_columns(late.columns))

    # --- time ---------------------------------------------------------------------------------------------

    def _note_end(self, start: int, window: OpenWindow) -> None:
        """Wake up when the window ends, or is forgotten."""
        lateness_ms = 0 if window.is_due else self._allowed_lateness_ms
        end_ms = self._assigner.cleanup_time(start, lateness_ms)
        self._next_ms = min(self._next_ms, end_ms)

    def process_watermark(self, timestamp_ms: int) -> None:
        self._clock.advance(timestamp_ms)
        watermark_ms = self._clock.watermark_ms
        if self._windows and self._next_ms <= watermark_ms:
            self._fire(watermark_ms)
        self.output.emit_watermark(watermark_ms)

    def _fire(self, watermark_ms: int) -> None:
        results: list[ColumnBatch] = []
        for start in sorted(self._windows):
            if start + self._assigner.size_ms - 1 > watermark_ms:
                break
            window = self._windows[start]
            if window.is_due:
                self._fold(start, window)
                results.append(self._ended(start, window))
            if self._assigner.cleanup_time(start, self._allowed_lateness_ms) <= watermark_ms:
                del self._windows[start]
            else:
                window.due[:] = window.is_due = False
        self._next_ms = MAX_TIMESTAMP_MS
        for start, window in self._windows.items():
            self._note_end(start, window)
        if results:
            self._emit_ended(results[0] if len(results) == 1 else concatenated(results))

    def _ended(self, start: int, window: OpenWindow) -> ColumnBatch:
        """The results of the keys for which the window has not fired since their last record, by encoded key."""
        count = len(window.slots)
        keys, totals, due = window.keys, window.totals, window.due[:count]
        if due.all():
            order = _encoded_order(keys)
        else:
            due_slots = np.flatnonzero(due)
            order = due_slots[_encoded_order(chosen(keys, due_slots))]
        return self._results(start, chosen(keys, order), [one[order] for one in totals])

    def _results(self, start: int, keys: KeyColumn, totals: Sequence[Column]) -> ColumnBatch:
        """One record for each key."""
        columns = self._key_columns(keys)
        count, end = len(keys), start + self._assigner.size_ms
        columns[WINDOW_START] = np.full(count, start)
        columns[WINDOW_END] = np.full(count, end)
        remaining = iter(totals)
        for into, aggregate in self._aggregates.items():
            total = next(remaining)
            columns[into] = _means(total, next(remaining)) if aggregate.is_mean else total
        return ColumnBatch(columns, count, columns[WINDOW_END] - 1)

    def _key_columns(self, keys: KeyColumn) -> dict[str, Column]:
        if len(self._fields) == 1:
            (name,) = self._fields
            return {name: keys if is_long_column(keys) else column_of_values(name, plain(keys))}
        by_field = zip(*plain(keys), strict=True)
        return {name: column_of_values(name, one) for name, one in zip(self._fields, by_field, strict=True)}

    def _emit(self, results: ColumnBatch) -> None:
        for column in results.columns.values():
            column.flags.writeable = False
        self.output.emit(results)

    def _emit_ended(self, results: ColumnBatch) -> None:
        if self.lineage is None:
            self._emit(results)
            return
        for at in range(len(results)):
            one = results.between(at, at + 1)
            names = [one.columns[name].tolist()[0] for name in self._fields]
            start = int(one.columns[WINDOW_START][0])
            self.lineage.emitting(names[0] if len(names) == 1 else tuple(names), start)
            self._emit(one)
            self.lineage.emitted()


def _keys_by_window(windows: StoredWindows) -> dict[int, list[Any]]:
    return {start: keys for start, (keys, _) in windows.items()}


def _parts(into: str, aggregate: ColumnAggregate) -> list[WindowPart]:
    fold = aggregate.make_fold()
    parts = [WindowPart(f"{fold.name} {into}", fold, aggregate.column)]
    if aggregate.is_mean:
        parts.append(WindowPart(f"count {into}", CountFold(), None))
    return parts


def _encoded_order(keys: KeyColumn) -> Any:
    """The positions of keys, all different, in the order of their encodings."""
    if is_long_column(keys):
        return encoded_order(keys, np.zeros(len(keys), dtype=np.int64))
    ordered = in_encoded_order(keys)
    if ordered is None:
        ordered = sorted(keys, key=default_codec().encode)
    position_of = dict(zip(keys, range(len(keys)), strict=True))
    return np.array([position_of[one] for one in ordered], dtype=np.intp)


def _means(sums: Column, counts: Column) -> Column:
    """As Python divides: also sums beyond 2**53 are divided exactly, and rounded once."""
    if sums.dtype == np.int64 and len(sums) and max(int(sums.max()), -int(sums.min())) > 2**53:
        return np.array([total / count for total, count in zip(sums.tolist(), counts.tolist(), strict=True)])
    return sums / counts
