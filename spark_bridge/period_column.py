"""A Spark transform whose function takes several periods at once, and tells them apart by a column.

Rules.
1. The column has the label of a row's period. So the labels of periods that close together must differ.
2. The function keeps the column in its result, and the transform takes it off: the records that leave are those of a
   function that is called once per period.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.elements.errors import shorten
from spark_bridge.errors import SparkBridgeError

COLUMN_TYPE = "string"

Rows = Any
"""Dicts or sequences, or a ``pyarrow.Table``."""


def is_table(rows: Rows) -> bool:
    """Whether rows are in columns."""
    return hasattr(rows, "column_names")


def with_period(rows: Rows, column: str, label: str) -> Rows:
    """Rows with the label of their period; those that are no rows stay as they are, for the error that names them."""
    if not is_table(rows):
        return [_extended(row, column, label) for row in rows]
    import pyarrow as pa

    return rows.append_column(column, pa.repeat(label, len(rows)))


def together(parts: Sequence[Rows]) -> Rows:
    """The rows of several periods, in columns if all are."""
    if len(parts) == 1:
        return parts[0]
    if all(map(is_table, parts)) and len({part.schema for part in parts}) == 1:
        import pyarrow as pa

        return pa.concat_tables(parts)
    return [row for part in parts for row in (part.to_pylist() if is_table(part) else part)]


def _extended(row: Any, column: str, label: str) -> Any:
    if isinstance(row, Mapping):
        return {**row, column: label}
    return (*row, label) if isinstance(row, (list, tuple)) else row


def joint_label(labels: Sequence[str]) -> str:
    """How an error names all the periods of one call."""
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


def check_labels(labels: Sequence[str], name: str) -> None:
    """Raises :class:`SparkBridgeError` when two periods have one label. ``name``: of the operator."""
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise SparkBridgeError(
            f"{name}: several periods have the label {twice[0]!r}, and the function is to tell them apart by it\n"
            "  fix: give each period a label of its own (event_time_cut), or leave out period_column="
        )


def results_by_period(results: Rows, column: str, labels: Sequence[str], name: str) -> list[Rows]:
    """The results of each period, without the column, in the order in which they are.

    Raises :class:`SparkBridgeError` when a result is of no period that was given. ``name``: of the operator.
    """
    if is_table(results):
        return _tables_by_period(results, column, labels, name)
    found: dict[str, list[dict[str, Any]]] = {label: [] for label in labels}
    for row in results:
        if row[column] not in found:
            raise _of_no_period(row, column, labels, name)
        found[row[column]].append({key: value for key, value in row.items() if key != column})
    return list(found.values())


def _tables_by_period(results: Any, column: str, labels: Sequence[str], name: str) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    periods = results.column(column)
    strays = pc.invert(pc.is_in(periods, value_set=pa.array(labels, periods.type)))
    if pc.any(strays).as_py():
        raise _of_no_period(results.filter(strays).slice(0, 1).to_pylist()[0], column, labels, name)
    rest = results.drop_columns([column])
    return [rest.filter(pc.equal(periods, label)) for label in labels]


def _of_no_period(row: Mapping[str, Any], column: str, labels: Sequence[str], name: str) -> SparkBridgeError:
    return SparkBridgeError(
        f"{name}: a result has {column}={row[column]!r}, and the periods of this call are {joint_label(labels)}\n"
        f"  result  {shorten(row)}\n"
        f"  fix: let the function keep the column {column!r} as it is"
    )
