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


def with_period(rows: Sequence[Any], column: str, label: str) -> list[Any]:
    """Rows with the label of their period; those that are no rows stay as they are, for the error that names them."""
    return [_extended(row, column, label) for row in rows]


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


def results_by_period(
    results: Sequence[Any], column: str, labels: Sequence[str], name: str
) -> list[Sequence[dict[str, Any]]]:
    """The results of each period, without the column, in the order in which they are.

    Raises :class:`SparkBridgeError` when a result is of no period that was given. ``name``: of the operator.
    """
    found: dict[str, list[dict[str, Any]]] = {label: [] for label in labels}
    for row in results:
        label = row[column]
        if label not in found:
            raise SparkBridgeError(
                f"{name}: a result has {column}={label!r}, and the periods of this call are {joint_label(labels)}\n"
                f"  result  {shorten(row)}\n"
                f"  fix: let the function keep the column {column!r} as it is"
            )
        found[label].append({key: value for key, value in row.items() if key != column})
    return list(found.values())
