"""A table of plain values that other tools take: Arrow, pandas, Spark, a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from engine.elements.errors import ConfigurationError, MissingDependencyError
from engine.elements.suggestions import nearest
from engine.report.units import format_bytes, format_ns, plural

if TYPE_CHECKING:
    import pyarrow

_SHOWN_ROWS, _SHOWN_COLUMNS = 20, 6


class ResultTable:
    """Rows with the same columns; numbers, texts and ``None``."""

    def __init__(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.name = name
        self.columns = tuple(columns)
        self._rows = [tuple(row) for row in rows]
        assert all(len(row) == len(self.columns) for row in self._rows), name

    @classmethod
    def of_records(cls, name: str, columns: Sequence[str], records: Sequence[Mapping[str, Any]]) -> ResultTable:
        """One row for each record; a column that a record lacks is ``None``."""
        return cls(name, columns, [[record.get(column) for column in columns] for record in records])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, each by the names of its columns."""
        return (dict(zip(self.columns, row, strict=True)) for row in self._rows)

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column. Raises :class:`ConfigurationError` when there is none of that name."""
        if column not in self.columns:
            close = nearest(column, self.columns)
            hint = f"; did you mean {close!r}? Choose" if close else "; choose"
            raise ConfigurationError(
                f"table {self.name} has no column {column!r}{hint} one of {', '.join(self.columns)}"
            )
        at = self.columns.index(column)
        return [row[at] for row in self._rows]

    def __repr__(self) -> str:
        """One line: the rows would fill screens."""
        rows = plural(len(self), "row")
        shown = ", ".join(self.columns[:_SHOWN_COLUMNS])
        more = f", … ({len(self.columns)} columns)" if len(self.columns) > _SHOWN_COLUMNS else ""
        return f"<{self.name}: {rows} of {shown}{more}>"

    def __str__(self) -> str:
        """The first rows, as :meth:`text` has them."""
        return "\n".join([self._aligned(self._head), *self._left_out])

    def text(self) -> str:
        """All rows, aligned; times and sizes in units that fit."""
        return self._aligned(self._rows)

    def _aligned(self, rows: Sequence[tuple[Any, ...]]) -> str:
        shown = [self.columns, *([_shown(*pair) for pair in zip(self.columns, row, strict=True)] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in shown]
        return "\n".join(lines)

    @property
    def _head(self) -> list[tuple[Any, ...]]:
        return self._rows[:_SHOWN_ROWS]

    @property
    def _left_out(self) -> list[str]:
        left_out = len(self) - _SHOWN_ROWS
        return [f"and {plural(left_out, 'more row')}"] if left_out > 0 else []

    def _repr_html_(self) -> str:
        """For notebooks: the first rows."""
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        rows = [
            "".join(f"<td>{escape(_shown(*pair))}</td>" for pair in zip(self.columns, row, strict=True))
            for row in self._head
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = "".join(f"<p>{text}</p>" for text in self._left_out)
        caption = f"<caption>{escape(self.name)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def to_arrow(self) -> pyarrow.Table:
        """As an Arrow table. A column with texts and numbers has texts; one without a value has them, too, unless its
        name has a unit. Raises :class:`MissingDependencyError` without pyarrow."""
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"table {self.name} as Arrow needs pyarrow; run: pip install 'weirstream[parquet]'"
            ) from error
        return pyarrow.table({column: _array(pyarrow, column, self[column]) for column in self.columns})

    def to_pandas(self) -> Any:
        """As a pandas ``DataFrame``. Raises :class:`MissingDependencyError` without pyarrow or pandas."""
        table = self.to_arrow()
        try:
            return table.to_pandas()
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"table {self.name} as a DataFrame needs pandas; run: pip install 'pandas>=2.2,<3'"
            ) from error

    def to_spark(self) -> Any:
        """As a Spark ``DataFrame``, in the session of this process. Raises :class:`MissingDependencyError` without
        PySpark."""
        from spark_bridge import get_session

        return get_session().createDataFrame(self.to_arrow())


def _array(arrow: Any, column: str, values: list[Any]) -> Any:
    try:
        found = arrow.array(values)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError):
        return arrow.array([None if value is None else str(value) for value in values])
    # A column of no type can neither be appended to another table nor written by Spark.
    return found.cast("double" if column.endswith(("_ns", "_bytes")) else "string") if found.type == "null" else found


def _shown(column: str, value: Any) -> str:
    if value is None:
        return ""
    if column.endswith("_ns") and not isinstance(value, str):
        return format_ns(value)
    if column.endswith("_bytes") and not isinstance(value, str):
        return format_bytes(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
