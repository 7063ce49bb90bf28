"""Compares the committed output of a job with the answer of batch DataFrame code.

The oracle runs no code of the engine, so it cannot share its mistakes. It compares multisets, so that a
row that was committed twice is visible.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_bridge.canonical import python_rows
from spark_bridge.errors import OracleSchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Columns of the comparison itself; no user column has these names.
_COUNT = "__weir_count__"
_EXPECTED = "__weir_expected__"
_ACTUAL = "__weir_actual__"
_KEY_RANK = "__weir_key_rank__"
_ROW_RANK = "__weir_row_rank__"

_ROWS_PER_EXAMPLE = 10

# A row and how many times it occurs.
CountedRow = tuple[dict[str, Any], int]


@dataclass(frozen=True)
class RowDifference:
    """Rows of one key that differ: rows expected but not found, and rows found but not expected.

    A row that is missing twice appears with `count` 2. With both sides filled a value is wrong; with one side
    filled a row is lost or extra.
    """

    key: dict[str, Any]
    missing: tuple[CountedRow, ...]
    unexpected: tuple[CountedRow, ...]


@dataclass(frozen=True)
class OracleReport:
    """The outcome of one comparison of multisets.

    Attributes:
        expected_rows, actual_rows: rows on each side, duplicates counted.
        missing: rows expected and not found, duplicates counted.
        unexpected: rows found and not expected, duplicates counted.
        examples: the first differences in the order of the key columns.
    """

    expected_rows: int
    actual_rows: int
    missing: int
    unexpected: int
    examples: tuple[RowDifference, ...]

    @property
    def equal(self) -> bool:
        """Whether both sides hold the same rows the same number of times."""
        return self.missing == 0 and self.unexpected == 0

    @property
    def matched(self) -> int:
        """Rows found as expected, duplicates counted."""
        return self.expected_rows - self.missing

    def explain(self) -> str:
        """The outcome in words, with the examples."""
        if self.equal:
            return f"equal: {self.matched} rows on both sides"
        lines = [
            f"different: {self.matched} rows agree, {self.missing} missing, {self.unexpected} unexpected "
            f"(expected {self.expected_rows} rows, found {self.actual_rows})"
        ]
        for example in self.examples:
            lines.append(f"  at {example.key}")
            lines += [f"    missing {count} x {row}" for row, count in example.missing]
            lines += [f"    unexpected {count} x {row}" for row, count in example.unexpected]
        return "\n".join(lines)


def compare_multisets(
    expected: DataFrame, actual: DataFrame, key_columns: Sequence[str], *, examples_max: int = 10
) -> OracleReport:
    """Compares two DataFrames as multisets of whole rows.

    Nulls equal nulls and `nan` equals `nan`; `0.0` and `-0.0` are one value (Spark's rules for grouping).
    Numbers are compared exactly, without a tolerance: a job and its oracle agree if both compute
    deterministically.

    Args:
        expected: the right answer.
        actual: the committed rows; same columns and types, in any order.
        key_columns: columns that identify a row for a reader: differences are grouped and sorted by them.
        examples_max: how many keys with differences the report quotes; without any the comparison takes less time.

    Raises:
        OracleSchemaError: the columns differ, or a key column does not exist.
    """
    _check_comparable(expected, actual, key_columns)
    from pyspark.sql import functions as f

    columns = expected.columns
    sides = expected.select(*columns, f.lit(1).cast("bigint").alias(_COUNT)).unionAll(
        actual.select(*columns, f.lit(-1).cast("bigint").alias(_COUNT))
    )
    # +1 for each expected row and -1 for each actual one: rows that do not cancel are the difference.
    groups = sides.groupBy(*columns).agg(
        f.sum(_COUNT).alias(_COUNT),
        f.sum(f.greatest(f.col(_COUNT), f.lit(0))).alias(_EXPECTED),
        f.sum(f.greatest(-f.col(_COUNT), f.lit(0))).alias(_ACTUAL),
    )
    if examples_max:
        # They are looked for only when rows differ, and then not computed again.
        groups = groups.cache()
    try:
        totals = groups.agg(
            f.sum(_EXPECTED),
            f.sum(_ACTUAL),
            f.sum(f.greatest(f.col(_COUNT), f.lit(0))),
            f.sum(f.greatest(-f.col(_COUNT), f.lit(0))),
        ).collect()[0]
        expected_rows, actual_rows, missing, unexpected = (int(total or 0) for total in totals)
        differing = groups.where(f.col(_COUNT) != 0).select(*columns, _COUNT)
        quoted = examples_max if missing or unexpected else 0
        examples = _examples(differing, list(key_columns), quoted) if quoted else ()
    finally:
        groups.unpersist()
    return OracleReport(expected_rows, actual_rows, missing, unexpected, examples)


def _examples(differing: DataFrame, key_columns: list[str], examples_max: int) -> tuple[RowDifference, ...]:
    from pyspark.sql import Window, functions as f

    keys_in_order = Window.orderBy(*key_columns)
    rows_in_order = Window.partitionBy(_KEY_RANK).orderBy(*differing.columns)
    quoted = (
        differing.withColumn(_KEY_RANK, f.dense_rank().over(keys_in_order))
        .where(f.col(_KEY_RANK) <= examples_max)
        # A coarse key may have millions of differing rows.
        .withColumn(_ROW_RANK, f.row_number().over(rows_in_order))
        .where(f.col(_ROW_RANK) <= _ROWS_PER_EXAMPLE)
        .orderBy(_KEY_RANK, _ROW_RANK)
        .drop(_ROW_RANK)
    )
    by_key = itertools.groupby(python_rows(quoted.toArrow()), key=lambda row: row[_KEY_RANK])
    return tuple(_difference_of(list(rows), key_columns) for _, rows in by_key)


def _difference_of(rows: list[dict[str, Any]], key_columns: list[str]) -> RowDifference:
    missing: list[CountedRow] = []
    unexpected: list[CountedRow] = []
    for row in rows:
        shown = {name: value for name, value in row.items() if name not in (_COUNT, _KEY_RANK)}
        (missing if row[_COUNT] > 0 else unexpected).append((shown, abs(row[_COUNT])))
    return RowDifference({name: rows[0][name] for name in key_columns}, tuple(missing), tuple(unexpected))


def _check_comparable(expected: DataFrame, actual: DataFrame, key_columns: Sequence[str]) -> None:
    expected_types = {field.name: field.dataType.simpleString() for field in expected.schema.fields}
    actual_types = {field.name: field.dataType.simpleString() for field in actual.schema.fields}
    if len(expected_types) < len(expected.columns) or len(actual_types) < len(actual.columns):
        raise OracleSchemaError("a column name appears twice: rename or drop one before comparing")
    if expected_types != actual_types:
        different = [
            f"{name}: expected {expected_types.get(name, 'none')}, found {actual_types.get(name, 'none')}"
            for name in sorted(expected_types.keys() | actual_types.keys())
            if expected_types.get(name) != actual_types.get(name)
        ]
        raise OracleSchemaError(f"the columns differ ({'; '.join(different)}): select and cast one side first")
    maps = sorted(name for name, kind in expected_types.items() if "map<" in kind)
    if maps:
        raise OracleSchemaError(f"maps have no order ({', '.join(maps)}): compare array_sort(map_entries(...))")
    unknown = [name for name in key_columns if name not in expected_types]
    if unknown or not key_columns:
        raise OracleSchemaError(
            f"key columns must be some of {expected.columns}" + (f", not {unknown}" if unknown else "; none was given")
        )
