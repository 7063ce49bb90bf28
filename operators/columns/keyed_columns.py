"""Running aggregates of keyed columns: for every record the sum, least, greatest or number of its key so far.

They are Flink SQL's OVER aggregates (``PARTITION BY key ROWS UNBOUNDED PRECEDING``): a record keeps its fields and gets
one more for each aggregate. Each is reducing state with one number per key, as ``reduce`` on rows keeps, so a job may
change from one to the other.

On the heap backend a whole batch is folded at once into state held in columns. On other backends records are folded one
by one through the common interface of state: the same results, at the speed of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from engine.elements.columns import Column, ColumnBatch, ColumnError, column_of_values, column_type
from engine.elements.errors import ConfigurationError
from operators.columns.stateless_columns import ColumnOperator, some_records
from state_backends.base import ReducingStateDescriptor, StateBackendError, np
from state_backends.columns import (
    MAX_RECORDS,
    ColumnFold,
    CountFold,
    Grouping,
    KeyNumbers,
    LongOverflowError,
    MaxFold,
    MinFold,
    SumFold,
    Workspace,
    group_by_key,
)

if TYPE_CHECKING:
    from state_backends.api import ReducingState

REDUCED_STATE = "reduced"
"""The name of the state of a single aggregate, the same as for ``reduce``, which may replace it."""


@dataclass(frozen=True, slots=True)
class ColumnAggregate:
    """One aggregate. Make it with :func:`sum_of`, :func:`min_of`, :func:`max_of`, :func:`mean_of` or
    :func:`record_count`.

    ``column``   the folded column; ``None``: records are counted;
    ``is_mean``  the result is divided by the number of records.
    """

    make_fold: Callable[[], ColumnFold]
    column: str | None
    is_mean: bool = False


def sum_of(column: str) -> ColumnAggregate:
    """The sum so far of a column of numbers. Integers stay within 64 bits: a sum beyond them is an error."""
    return ColumnAggregate(SumFold, column)


def min_of(column: str) -> ColumnAggregate:
    """The least value so far of a column of numbers."""
    return ColumnAggregate(MinFold, column)


def max_of(column: str) -> ColumnAggregate:
    """The greatest value so far of a column of numbers."""
    return ColumnAggregate(MaxFold, column)


def mean_of(column: str) -> ColumnAggregate:
    """The mean of a column of numbers, of windows only. The sum below it is that of :func:`sum_of`."""
    return ColumnAggregate(SumFold, column, is_mean=True)


def record_count() -> ColumnAggregate:
    """The number of records so far."""
    return ColumnAggregate(CountFold, None)


class _FoldedState(Protocol):
    """One reducing state into which batches are folded (``HeapReducingColumns``)."""

    def add_groups(self, grouping: Grouping, values: Column, fold: ColumnFold) -> Column:
        """Fold a batch in; the result for each record, in the order of the batch."""


class _RowByRow:
    """The same for reducing state that takes records one by one."""

    def __init__(self, state: ReducingState) -> None:
        self._state = state

    def add_groups(self, grouping: Grouping, values: Column, fold: ColumnFold) -> Column:
        group_of = np.empty(len(values), dtype=np.intp)
        group_of[grouping.order] = np.repeat(np.arange(len(grouping.starts)), grouping.counts)
        keys = grouping.keys.tolist() if isinstance(grouping.keys, np.ndarray) else grouping.keys
        added = list(map(fold.value_of, values.tolist()))
        results: list[Any] = []
        self._state.add_many(list(map(keys.__getitem__, group_of.tolist())), added, results)
        if values.dtype != np.float64:
            for position, result in enumerate(results):
                if not -(2**63) <= result < 2**63:
                    raise LongOverflowError(position, result)
        return column_of_values("result", results)


class ColumnAggregateOperator(ColumnOperator):
    """Emits every record with the aggregates of its key so far in further columns."""

    def __init__(self, aggregates: Mapping[str, ColumnAggregate], states: Sequence[str]) -> None:
        """``aggregates``: by the column that gets the result; ``states``: the name of the state of each."""
        self._aggregates = dict(aggregates)
        self._state_names = tuple(states)
        assert len(self._state_names) == len(self._aggregates) > 0
        self._folds = {into: aggregate.make_fold() for into, aggregate in self._aggregates.items()}
        self._numbers, self._space = KeyNumbers(), Workspace()

    def initialize_state(self) -> None:
        backend = self.context.keyed_backend()
        in_columns: Callable[[ReducingStateDescriptor], _FoldedState] | None
        in_columns = getattr(backend, "reducing_columns", None)
        self._states: dict[str, _FoldedState] = {}
        for (into, fold), name in zip(self._folds.items(), self._state_names, strict=True):
            descriptor = ReducingStateDescriptor(name, fold.combine)
            if in_columns is None:
                self._states[into] = _RowByRow(backend.reducing_state(descriptor))
            else:
                self._states[into] = in_columns(descriptor)

    def process_columns(self, batch: ColumnBatch) -> None:
        parts = [self._folded(part) for part in _parts(batch)]
        columns = dict(batch.columns)
        for into in self._aggregates:
            pieces = [part[into] for part in parts]
            columns[into] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
            columns[into].flags.writeable = False
        self.output.emit(batch.with_columns(columns))

    def _folded(self, batch: ColumnBatch) -> dict[str, Column]:
        """The results for the records of one part of a batch."""
        keys = batch.key_column
        assert keys is not None, "an aggregate needs a key"
        grouping = group_by_key(keys, self._numbers, self._space)
        results: dict[str, Column] = {}
        for into, aggregate in self._aggregates.items():
            what = f"{self._folds[into].name} of column {aggregate.column!r}"
            try:
                values = _ones(batch) if aggregate.column is None else input_column(batch, aggregate.column)
                results[into] = self._states[into].add_groups(grouping, values, self._folds[into])
            except LongOverflowError as error:
                record = batch.between(error.position, error.position + 1).values[0]
                raise self.user_error(what, record, error) from error
            except (ColumnError, StateBackendError) as error:
                raise self.user_error(what, some_records(batch), error) from error
        return results


def _parts(batch: ColumnBatch) -> list[ColumnBatch]:
    total = len(batch)
    if total <= MAX_RECORDS:
        return [batch]
    return [batch.between(start, min(start + MAX_RECORDS, total)) for start in range(0, total, MAX_RECORDS)]


def _ones(batch: ColumnBatch) -> Column:
    return np.ones(len(batch), dtype=np.int64)


def input_column(batch: ColumnBatch, name: str) -> Column:
    """The column of numbers of that name; ``ColumnError`` when there is none."""
    if name not in batch.columns:
        raise ColumnError(f"there is no column {name!r}; there are {', '.join(batch.columns)}")
    column = batch.columns[name]
    if column.dtype not in (np.int64, np.float64):
        raise ColumnError(f"column {name!r} is {column_type(column)}, neither BIGINT nor DOUBLE")
    return column


def check_aggregates(method: str, aggregates: Mapping[str, object], *, of_windows: bool = False) -> None:
    """Raise ``ConfigurationError`` unless these are aggregates, at least one."""
    for into, aggregate in aggregates.items():
        if not isinstance(aggregate, ColumnAggregate):
            raise ConfigurationError(
                f"{method}: {into!r}: {aggregate!r} is no aggregate; give sum_of(column), min_of(column), "
                "max_of(column) or record_count(), and for windows also mean_of(column)"
            )
        if aggregate.is_mean and not of_windows:
            raise ConfigurationError(
                f"{method}: {into!r}: mean_of is for windows; take sum_of and record_count, and divide in map_columns"
            )
    if not aggregates:
        raise ConfigurationError(f"{method}: nothing to aggregate; give for instance {{'total': sum_of('value')}}")
