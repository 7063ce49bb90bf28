"""Steps over columns, which get one record at a time here (docs/columnar.md): the result of a function over columns
must not depend on where the batches begin and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.explore.opinion.elements import EvaluatedStep, NotModelled, Record, Spec
from engine.explore.opinion.windows import WindowStep


def _column(value: Any) -> Any:
    import numpy as np

    if type(value) in (bool, int, float):
        return np.array([value], dtype={bool: np.bool_, int: np.int64, float: np.float64}[type(value)])
    column = np.empty(1, dtype=object)
    column[0] = value
    return column


def _value(name: str, column: Any) -> Any:
    listed = column.tolist() if hasattr(column, "tolist") else column
    if not isinstance(listed, list | tuple) or len(listed) != 1:
        raise NotModelled(f"column {name!r} of one record is {column!r}, which has not one value")
    return listed[0]


class MapColumns(EvaluatedStep):
    """The result has exactly the columns that the function returns."""

    def on_record(self, record: Record, which: int) -> None:
        made: Mapping[str, Any] = self.spec.given["fn"](_columns(record))
        self.emit({name: _value(name, column) for name, column in made.items()}, record.stamp)


class FilterColumns(EvaluatedStep):
    """The records for which the function's bool is true."""

    def on_record(self, record: Record, which: int) -> None:
        if _value("filter", self.spec.given["fn"](_columns(record))):
            self.emit(record.value, record.stamp)


def _columns(record: Record) -> dict[str, Any]:
    return {name: _column(value) for name, value in record.value.items()}


class ToColumns(EvaluatedStep):
    """Items of tuples, values of dicts, or plain values, by name; a DOUBLE takes ints too."""

    def on_record(self, record: Record, which: int) -> None:
        value, fields = record.value, self.spec.given["fields"]
        if type(value) is dict:
            found = {name: value[name] for name in fields or value}
        else:
            items = value if isinstance(value, tuple | list) else (value,)
            found = dict(zip(fields, items, strict=True))
        for name, declared in fields.items():
            if declared == "DOUBLE":
                found[name] = float(found[name])
        self.emit(found, record.stamp)


class ToRows(EvaluatedStep):
    """Dicts, plain values of the only field, or tuples of several fields."""

    def on_record(self, record: Record, which: int) -> None:
        fields = self.spec.given["fields"]
        values = tuple(record.value[name] for name in fields)
        self.emit(record.value if not fields else values[0] if len(fields) == 1 else values, record.stamp)


_FOLDS: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}


class ColumnAggregates(EvaluatedStep):
    """Every record with the aggregates of its key so far in further columns."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        self._so_far: dict[Any, Any] = {}

    def on_record(self, record: Record, which: int) -> None:
        value = dict(record.value)
        for into, aggregate in self.spec.given["aggregates"].items():
            cell = (record.key, into)
            if aggregate.column is None:
                self._so_far[cell] = self._so_far.get(cell, 0) + 1
            else:
                fold = aggregate.make_fold.__name__.removesuffix("Fold").lower()
                one = record.value[aggregate.column]
                self._so_far[cell] = _FOLDS[fold](self._so_far[cell], one) if cell in self._so_far else one
            value[into] = self._so_far[cell]
        self.emit(value, record.stamp)


class ColumnWindows(WindowStep):
    """Windows, with a record of several aggregates as the result of each."""

    def _added(self, before: Any, value: Any) -> Any:
        added: dict[str, Any] = {}
        for into, aggregate in self.spec.given["aggregates"].items():
            one = 1 if aggregate.column is None else value[aggregate.column]
            total, count = (one, 0) if before is None else before[into]
            fold = _FOLDS.get(aggregate.make_fold.__name__.removesuffix("Fold").lower(), _FOLDS["sum"])
            added[into] = (total if before is None else fold(total, one), count + 1)
        return added

    def _result(self, contents: Any) -> Any:
        means = {into: one.is_mean for into, one in self.spec.given["aggregates"].items()}
        return {into: total / count if means[into] else total for into, (total, count) in contents.items()}

    def _compute(self, key: Any, window: Any, result: Any) -> None:
        fields = self.spec.given["fields"]
        keys = dict(zip(fields, (key,) if len(fields) == 1 else key, strict=True))
        times = {"window_start": window.start, "window_end": window.end}
        self.emit({**keys, **times, **result}, window.max_timestamp)


STEPS: dict[str, Callable[[Spec], EvaluatedStep]] = {
    "operators.columns.stateless_columns.MapColumnsOperator": MapColumns,
    "operators.columns.stateless_columns.FilterColumnsOperator": FilterColumns,
    "operators.columns.stateless_columns.ToColumnsOperator": ToColumns,
    "operators.columns.stateless_columns.ToRowsOperator": ToRows,
    "operators.columns.keyed_columns.ColumnAggregateOperator": ColumnAggregates,
    "operators.columns.window_columns.ColumnWindowOperator": ColumnWindows,
}
