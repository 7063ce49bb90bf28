"""Operators that take a batch as columns: a function gets numpy arrays, once for each batch.

A batch may be cut anywhere, so a function must work record by record: its result must not depend on where the columns
begin and end. Timestamps travel with the records. Keys do not, because the fields that gave them may have changed.

Each of these operators takes rows too, if they are dicts: they are turned into columns first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

from engine.elements.batch import Batch
from engine.elements.columns import (
    Column,
    ColumnBatch,
    ColumnError,
    as_columns,
    checked_columns,
    column_of_values,
    column_type,
)
from engine.elements.errors import ConfigurationError
from engine.elements.operator import Operator
from state_backends.base import np

COLUMN_TYPES = ("BIGINT", "DOUBLE", "BOOLEAN", "STRING", "BYTES")
"""The possible declared types of a column, in the words of Flink's SQL."""

_PYTHON_TYPES: dict[str, type] = {"BIGINT": int, "DOUBLE": float, "BOOLEAN": bool, "STRING": str, "BYTES": bytes}


@dataclass(frozen=True, slots=True)
class SomeRecords:
    """Stands for the records of a batch in an error: their number, and the first of them as a row."""

    count: int
    first: Any

    def __repr__(self) -> str:
        return f"{self.first!r}, the first of a batch of {self.count}"


def some_records(batch: Batch) -> SomeRecords:
    """The stand-in for the records of a batch, at least one, in an error."""
    first = batch.between(0, 1) if isinstance(batch, ColumnBatch) else batch
    return SomeRecords(len(batch), first.values[0])


class ColumnOperator(Operator):
    """Base of operators over columns."""

    def process_batch(self, batch: Batch) -> None:
        if len(batch):
            try:
                columns = as_columns(batch)
            except ColumnError as error:
                raise self.user_error("turning rows into columns", some_records(batch), error) from error
            self.process_columns(columns)

    def process_columns(self, batch: ColumnBatch) -> None:
        """Handle the records of ``batch``, at least one, in order."""
        raise TypeError(f"{type(self).__name__} takes no columns")


class MapColumnsOperator(ColumnOperator):
    """One record out for each record in: it has only the columns that the function returns."""

    def __init__(self, fn: Callable[[dict[str, Column]], Mapping[str, Any]]) -> None:
        self._fn = fn

    def process_columns(self, batch: ColumnBatch) -> None:
        try:
            columns, _ = checked_columns(self._fn(dict(batch.columns)), len(batch))
        except Exception as error:
            raise self.user_error("map_columns function", some_records(batch), error) from error
        self.output.emit(batch.with_columns(columns))


class FilterColumnsOperator(ColumnOperator):
    """The records for which the function's array of bools is true."""

    def __init__(self, fn: Callable[[dict[str, Column]], Any]) -> None:
        self._fn = fn

    def process_columns(self, batch: ColumnBatch) -> None:
        try:
            mask = np.asarray(self._fn(dict(batch.columns)))
            if mask.dtype != np.bool_ or mask.shape != (len(batch),):
                raise ColumnError(
                    f"a filter returns {len(batch)} bools, one for each record, not {mask.dtype} of shape {mask.shape}"
                )
        except Exception as error:
            raise self.user_error("filter_columns function", some_records(batch), error) from error
        chosen = np.flatnonzero(mask)
        if len(chosen):
            self.output.emit(batch if len(chosen) == len(batch) else batch.select(chosen))


class ToColumnsOperator(Operator):
    """Rows as columns of declared names and, where given, types."""

    def __init__(self, fields: Mapping[str, str | None]) -> None:
        """``fields``: names in order, with a type or ``None``. Without any, rows are dicts and keep their fields."""
        self._fields = dict(fields)

    def process_batch(self, batch: Batch) -> None:
        if len(batch):
            try:
                self.output.emit(self._converted(batch))
            except ColumnError as error:
                raise self.user_error("to_columns", some_records(batch), error) from error

    def _converted(self, batch: Batch) -> ColumnBatch:
        if not self._fields:
            whole = as_columns(batch)
            return whole.with_columns(whole.columns)
        if isinstance(batch, ColumnBatch):
            sources: list[Sequence[Any]] = [_column(batch, name) for name in self._fields]
            stamps = batch.timestamp_column
        else:
            sources = self._fields_of(batch.values)
            stamps = None if batch.timestamps is None else np.array(batch.timestamps, dtype=np.int64)
        columns = {
            name: _declared(name, values, declared)
            for (name, declared), values in zip(self._fields.items(), sources, strict=True)
        }
        return ColumnBatch(columns, len(batch), stamps)

    def _fields_of(self, rows: list[Any]) -> list[Sequence[Any]]:
        first, names = rows[0], list(self._fields)
        if type(first) is dict:
            try:
                return [list(map(itemgetter(name), rows)) for name in names]
            except (KeyError, TypeError) as error:
                raise ColumnError(f"some record has no field {error}") from error
        if isinstance(first, (tuple, list)):
            try:
                by_row = list(zip(*rows, strict=True))
            except (ValueError, TypeError) as error:
                raise ColumnError(f"records are of different length ({error})") from error
            if len(by_row) != len(names):
                raise ColumnError(f"records have {len(by_row)} items where {len(names)} are named: {', '.join(names)}")
            return [list(items) for items in by_row]
        if len(names) != 1:
            raise ColumnError(f"a {type(first).__name__} is one item, and {len(names)} are named: {', '.join(names)}")
        return [rows]


def check_declared(fields: Mapping[str, object]) -> None:
    """Raise ``ConfigurationError`` unless every field has one of the types of columns, or ``None``."""
    for name, declared in fields.items():
        if declared is not None and declared not in COLUMN_TYPES:
            raise ConfigurationError(
                f"to_columns: {name!r} is declared {declared!r}; a column is one of {', '.join(COLUMN_TYPES)}"
            )


def _column(batch: ColumnBatch, name: str) -> Column:
    if name not in batch.columns:
        raise ColumnError(f"there is no column {name!r}; there are {', '.join(batch.columns)}")
    return batch.columns[name]


def _declared(name: str, values: Any, declared: str | None) -> Column:
    """The values (perhaps a column already) as a column of the declared type. A DOUBLE takes ints too."""
    column = values
    if not isinstance(values, np.ndarray):
        if declared == "DOUBLE":
            values = [float(value) if type(value) is int else value for value in values]
        column = column_of_values(name, values)
    if declared == "DOUBLE" and column.dtype == np.int64:
        return column.astype(np.float64)
    if declared is not None and column_type(column) != declared:
        wanted = _PYTHON_TYPES[declared].__name__
        raise ColumnError(f"column {name!r} is declared {declared} ({wanted}) and has {column_type(column)}")
    return column


class ToRowsOperator(Operator):
    """Columns as rows: dicts, or with ``fields`` the value of one field, or tuples of several."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)

    def process_batch(self, batch: Batch) -> None:
        if len(batch):
            try:
                rows = self._rows(batch)
            except (ColumnError, KeyError, TypeError) as error:
                raise self.user_error("to_rows", some_records(batch), error) from error
            self.output.emit(Batch(rows, batch.timestamps))

    def _rows(self, batch: Batch) -> list[Any]:
        fields = self._fields
        if not fields:
            return batch.values
        if isinstance(batch, ColumnBatch):
            lists = [_column(batch, name).tolist() for name in fields]
            return lists[0] if len(fields) == 1 else list(zip(*lists, strict=True))
        return list(map(itemgetter(*fields), batch.values))


def column_operator(kind: Callable[..., Operator], *arguments: Any) -> Callable[[], Operator]:
    """A factory of operators of one kind, after a check that columns can be used here.

    Raises ``ModuleNotFoundError`` that names the extra when numpy is missing.
    """
    np.ndarray  # noqa: B018 - the look-up imports numpy: without it a job cannot be built
    return partial(kind, *arguments)
