"""Rows of a table, checked against the types of its columns, on their way into files and out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine.elements.batch import Batch
from operators.files.compaction import merge_of
from operators.files.formats import LineError, RowFormat
from operators.files.writing import RecordError
from operators.table.types import DataType

Types = Mapping[str, DataType]
"""The types of columns, in the order of the schema."""


class RowCheck:
    """Called with a row, a dict with exactly the columns of a table, it returns the row with checked values, in the
    schema's order. Raises ``ValueError`` that names the column.

    ``more``  is called with each checked value and its type, and may refuse it.
    """

    def __init__(self, types: Types, more: Callable[[Any, DataType], None] | None = None) -> None:
        self._types, self._more = dict(types), more

    def __call__(self, record: Any) -> dict[str, Any]:
        types = self._types
        if not isinstance(record, Mapping) or record.keys() != types.keys():
            found = f"is {type(record).__name__}"
            if isinstance(record, Mapping):
                found = f"has {', '.join(map(str, record))}"
            raise ValueError(f"a row of the table is a dict with {', '.join(types)}; this one {found}")
        row: dict[str, Any] = {}
        for name, kind in types.items():
            value = record[name]
            try:
                row[name] = value if value is None else kind.checked(value)
                if self._more is not None:
                    self._more(row[name], kind)
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from None
        return row


class CheckedRowFormat:
    """Writes checked rows as lines. ``converters``: what a line has in place of the values of some columns."""

    def __init__(self, rows: RowFormat, types: Types, converters: Mapping[str, Callable[[Any], Any]]) -> None:
        self._rows, self._check, self._converters = rows, RowCheck(types), dict(converters)

    def encode(self, record: Any) -> str:
        row = self._check(record)
        for name, convert in self._converters.items():
            if row[name] is not None:
                row[name] = convert(row[name])
        return self._rows.encode(row)


class CheckedBulkFormat:
    """Writes checked rows with a bulk format. ``more``: as of :class:`RowCheck`."""

    is_bulk = True

    def __init__(self, rows: Any, types: Types, more: Callable[[Any, DataType], None] | None = None) -> None:
        self._rows, self._check = rows, RowCheck(types, more)
        self.select, self.open_writer, self.lines_of = rows.select, rows.open_writer, rows.lines_of

    def encode_batch(self, batch: Batch) -> Any:
        """The encoded records. Raises :class:`RecordError`."""
        rows: list[dict[str, Any]] = []
        try:
            rows.extend(map(self._check, batch.values))
        except ValueError as error:
            raise RecordError(len(rows), batch.values[len(rows)], error) from error
        return self._rows.encode_batch(Batch(rows))

    def encode(self, record: Any) -> str:
        """The record as ``lines_of`` shows it. Raises ``ValueError``."""
        line: str = self._rows.encode(self._check(record))
        return line

    def merge_files(self, contents: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Write one file with the records of all, for compaction."""
        merge_of(self._rows)(contents, write)


def typed_column(name: str, values: Sequence[Any], kind: DataType, *, iso: bool = False) -> list[Any]:
    """Values of a column out of JSON, in its type. Raises ``LineError`` that names column and value."""
    if kind.holds_as_they_are(values):
        return list(values)
    column = []
    for value in values:
        try:
            column.append(None if value is None else kind.of_json(value, iso=iso))
        except ValueError as error:
            raise LineError(f"column {name!r}: {error}") from None
    return column
