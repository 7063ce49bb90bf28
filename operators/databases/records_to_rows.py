"""Turns records into rows of a table: a dict gives its columns by name, a tuple or list its values in order, and a
function converts any other record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from operators.basic import apply_to_all
from operators.databases.database_session import Row

RowFunction = Callable[[Any], Sequence[Any]]
"""Record -> one value for each column."""


def row_of(record: Any, function: RowFunction | None, columns: Sequence[str]) -> Row:
    """Raises the errors of ``function``, and :class:`ValueError` for a result that is not a row."""
    if function is not None:
        row = tuple(function(record))
    elif isinstance(record, dict):
        missing = [name for name in columns if name not in record]
        if missing:
            has = ", ".join(map(repr, record)) or "nothing"
            raise ValueError(f"the record has no column {', '.join(map(repr, missing))}; it has {has}")
        row = tuple([record[name] for name in columns])
    elif isinstance(record, tuple | list):
        row = tuple(record)
    else:
        raise ValueError(f"{type(record).__name__} is no dict, tuple or list: say with row= what its values are")
    if len(row) != len(columns):
        raise ValueError(f"{len(row)} values for {len(columns)} columns ({', '.join(columns)})")
    return row


class RecordsToRows:
    """Makes rows of whole batches."""

    def __init__(self, operator: Operator, function: RowFunction | None, columns: Sequence[str]) -> None:
        self._operator, self._function, self._columns = operator, function, columns
        getter = itemgetter(*columns)
        self._of_dict: Callable[[Any], Row] = getter if len(columns) > 1 else lambda record: (getter(record),)

    def __call__(self, batch: Batch) -> list[Row]:
        """One row for each record. Raises :class:`engine.elements.errors.UserFunctionError` with the first record that
        cannot become a row."""
        values = batch.values
        width = len(self._columns)
        try:
            rows = self._made(values)
        except Exception:
            rows = []
        if len(rows) == len(values) and set(map(len, rows)) <= {width}:
            return rows
        what = "columns" if self._function is None else "row function"
        row = partial(row_of, function=self._function, columns=self._columns)
        return apply_to_all(self._operator, what, row, values)

    def _made(self, values: list[Any]) -> list[Row]:
        if self._function is not None:
            return list(map(tuple, map(self._function, values)))
        kinds = dict.fromkeys(map(type, values))
        if list(kinds) == [dict]:
            return list(map(self._of_dict, values))
        return list(map(tuple, values)) if all(kind in (tuple, list) for kind in kinds) else []
