"""Sources that give columns: arrays or a table in memory, and a function that makes columns on demand.

A position is an index, and each split is a contiguous range of the records, so that a batch is a view on the arrays or
one call. A named column gives the event times; it stays a field of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from engine.elements.batch import Batch
from engine.elements.columns import Column, ColumnBatch, ColumnError, checked_columns
from engine.elements.errors import ConfigurationError, UserFunctionError, check_whole
from engine.elements.source import SourceContext
from operators.sources import RangeSource
from state_backends.base import np


class ColumnSource(RangeSource):
    """The records of some columns, in order (Flink's Table: ``fromValues``).

    ``columns`` is a dict of numpy arrays or lists, or a table of pyarrow; ``timestamps`` the name of the column with
    event times in ms since the epoch.
    """

    def __init__(self, columns: Mapping[str, Any] | Any, splits: int = 1, *, timestamps: str | None = None) -> None:
        try:
            self._columns, count = checked_columns(columns)
            _check_timestamps(self._columns, timestamps)
        except ColumnError as error:
            raise ConfigurationError(f"ColumnSource: {error}") from error
        super().__init__("columns", 0, count, splits)
        self._timestamps = timestamps

    def _reading(self, context: SourceContext) -> Callable[[int, int], Batch]:
        return ColumnBatch(self._columns, self._stop, _stamps(self._columns, self._timestamps)).between


class ColumnGeneratorSource(RangeSource):
    """Records ``0 .. count - 1``, made by ``make_columns(start, stop) -> columns`` on demand.

    ``make_columns`` must be a pure function of its arguments and give the same records for every way to cut the range;
    each split is a contiguous range.
    """

    def __init__(
        self,
        make_columns: Callable[[int, int], Mapping[str, Any]],
        count: int,
        splits: int = 1,
        *,
        timestamps: str | None = None,
    ) -> None:
        check_whole("count", count, 0)
        super().__init__("column-generator", 0, count, splits)
        np.ndarray  # noqa: B018 - without numpy this raises, and says what to install
        self._make_columns, self._timestamps = make_columns, timestamps

    def _reading(self, context: SourceContext) -> Callable[[int, int], Batch]:
        return partial(_made, self._make_columns, self._timestamps, context)


def _made(
    make_columns: Callable[[int, int], Mapping[str, Any]],
    timestamps: str | None,
    context: SourceContext,
    start: int,
    stop: int,
) -> ColumnBatch:
    try:
        columns, _ = checked_columns(make_columns(start, stop), stop - start)
        _check_timestamps(columns, timestamps)
    except Exception as error:
        raise UserFunctionError(context.name, "make_columns", range(start, stop), context.attempt, error) from error
    return ColumnBatch(columns, stop - start, _stamps(columns, timestamps))


def _check_timestamps(columns: Mapping[str, Column], name: str | None) -> None:
    if name is not None and (name not in columns or columns[name].dtype != np.int64):
        found = f"is of {columns[name].dtype}" if name in columns else f"is not among {', '.join(columns)}"
        raise ColumnError(f"timestamps={name!r} must be a column of whole ms since the epoch (int64); it {found}")


def _stamps(columns: Mapping[str, Column], name: str | None) -> Column | None:
    return None if name is None else columns[name]
