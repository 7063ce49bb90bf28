"""Compares what a job committed with what batch DataFrame code says the answer is.

The oracle reads a sink's directory the way any stranger would: part files of JSON lines in bucket
directories, names that start with `.` or `_` are not there (Hadoop's rule, which Spark and Hive follow too).
It runs no code of the engine, so it cannot share its mistakes; and it compares multisets, so that a row
committed twice shows.

Reading is stricter than Spark's JSON reader, which takes the first object of a line and ignores what
follows, and fills missing fields with nulls: both would hide a torn or doubled write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_bridge.canonical import python_rows, sort_canonically
from spark_bridge.crossing import RowSchema, arrow_table, new_session_directory, parse_schema, write_parquet
from spark_bridge.errors import OracleInputError, OracleSchemaError, SparkBridgeError
from spark_bridge.session import get_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_PER_CHUNK = 200_000
# Name of the column that holds a row's multiplicity; no user column is called this.
_COUNT = "__weir_count__"


@dataclass(frozen=True)
class RowDifference:
    """Rows of one key that differ: what was expected there and was not found, and the other way round.

    A row that is missing twice appears with `count` 2. Both sides filled is a wrong value, one side a lost
    or an extra row.
    """

    key: dict[str, Any]
    missing: tuple[tuple[dict[str, Any], int], ...]
    unexpected: tuple[tuple[dict[str, Any], int], ...]


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


def visible_part_files(root: str) -> list[str]:
    """Paths of the finished part files below `root`, sorted: `part-*` in any depth of visible directories.

    Raises:
        OracleInputError: `root` is no directory, or holds a visible file that is no part file.
    """
    if not os.path.isdir(root):
        raise OracleInputError(f"{root} is not a directory: has the job committed anything yet?")
    found = []
    for directory, names_below, file_names in os.walk(root):
        names_below[:] = sorted(name for name in names_below if not _is_hidden(name))
        for name in sorted(file_names):
            if _is_hidden(name):
                continue
            path = os.path.join(directory, name)
            if not name.startswith("part-"):
                raise OracleInputError(
                    f"{path} is visible to every reader of {root} and is no part file: a sink hides unfinished files "
                    "behind a leading '.' or '_'. Read the sink's own directory, or move the file away."
                )
            found.append(path)
    return sorted(found)


def read_committed(
    root: str, schema: str, *, bucket_column: str | None = None, session: SparkSession | None = None
) -> DataFrame:
    """Reads the committed part files of a sink (one JSON object per line) into a DataFrame.

    Every line must be one JSON object with exactly the columns of the schema. The rows are copied to Parquet
    files that live as long as the session, so later commits do not change the DataFrame.

    Args: root: the sink's directory; part files lie in it or in bucket directories of any depth. schema: DDL
        string of the JSON fields. JSON has no dates: declare them as they were written (string, bigint)
            and cast afterwards.
        bucket_column: adds a first column with each row's bucket path relative to `root` (`""` for the root).
        session: the session to use; None takes the process's own.

    Raises:
        OracleInputError: naming file, line and what is wrong there.
    """
    spark = session or get_session()
    row_schema = parse_schema(schema)
    if bucket_column is not None:
        row_schema = parse_schema(f"`{bucket_column}` string, {schema}")
    directory = new_session_directory(spark)
    for part, path in enumerate(visible_part_files(root)):
        bucket = None if bucket_column is None else _bucket_of(root, path)
        for chunk, (first_line, rows) in enumerate(_line_chunks(path)):
            table = _table_of_lines(rows, row_schema, bucket_column, bucket, path, first_line)
            write_parquet(table, directory, part * 1000 + chunk)
    return spark.read.schema(row_schema.spark).parquet(str(directory))


def compare_multisets(
    expected: DataFrame, actual: DataFrame, key_columns: Sequence[str], *, examples_max: int = 10
) -> OracleReport:
    """Compares two DataFrames as multisets of whole rows.

    Nulls equal nulls and `nan` equals `nan`; `0.0` and `-0.0` are one value (Spark's rules for grouping).
    Numbers are compared exactly, without a tolerance: a job and its oracle that both compute
    deterministically agree.

    Args:
        expected: the right answer.
        actual: what was committed; same columns and types, in any order.
        key_columns: columns that identify a row for a reader: differences are grouped and sorted by them.
        examples_max: how many keys with differences the report quotes.

    Raises:
        OracleSchemaError: the columns differ, or a key column does not exist.
    """
    _check_comparable(expected, actual, key_columns)
    from pyspark.sql import functions as f

    columns = expected.columns
    sides = expected.select(*columns, f.lit(1).cast("bigint").alias(_COUNT)).unionAll(
        actual.select(*columns, f.lit(-1).cast("bigint").alias(_COUNT))
    )
    # +1 for each expected row and -1 for each actual one: what does not cancel is the difference.
    groups = sides.groupBy(*columns).agg(
        f.sum(_COUNT).alias(_COUNT),
        f.sum(f.greatest(f.col(_COUNT), f.lit(0))).alias("__weir_expected__"),
        f.sum(f.greatest(-f.col(_COUNT), f.lit(0))).alias("__weir_actual__"),
    )
    groups = groups.cache()
    try:
        totals = groups.agg(
            f.sum("__weir_expected__"),
            f.sum("__weir_actual__"),
            f.sum(f.greatest(f.col(_COUNT), f.lit(0))),
            f.sum(f.greatest(-f.col(_COUNT), f.lit(0))),
        ).collect()[0]
        expected_rows, actual_rows, missing, unexpected = (int(total or 0) for total in totals)
        differing = groups.where(f.col(_COUNT) != 0).select(*columns, _COUNT)
        examples = _examples(differing, list(key_columns), examples_max) if missing or unexpected else ()
    finally:
        groups.unpersist()
    return OracleReport(expected_rows, actual_rows, missing, unexpected, examples)


def _examples(differing: DataFrame, key_columns: list[str], examples_max: int) -> tuple[RowDifference, ...]:
    keys = differing.select(*key_columns).distinct().orderBy(*key_columns).limit(examples_max)
    wanted = python_rows(sort_canonically(keys.toArrow()))
    # Null-safe: a key column may be null.
    condition = None
    for name in key_columns:
        same = differing[name].eqNullSafe(keys[name])
        condition = same if condition is None else condition & same
    rows = python_rows(sort_canonically(differing.join(keys, condition, "left_semi").toArrow()))
    return tuple(_difference_of(key, rows) for key in wanted)


def _difference_of(key: dict[str, Any], rows: list[dict[str, Any]]) -> RowDifference:
    missing = []
    unexpected = []
    for row in rows:
        if any(repr(row[name]) != repr(value) for name, value in key.items()):
            continue
        shown = {name: value for name, value in row.items() if name != _COUNT}
        count = row[_COUNT]
        (missing if count > 0 else unexpected).append((shown, abs(count)))
    return RowDifference(key, tuple(missing), tuple(unexpected))


def _check_comparable(expected: DataFrame, actual: DataFrame, key_columns: Sequence[str]) -> None:
    expected_types = {field.name: field.dataType.simpleString() for field in expected.schema.fields}
    actual_types = {field.name: field.dataType.simpleString() for field in actual.schema.fields}
    if len(expected_types) < len(expected.columns) or len(actual_types) < len(actual.columns):
        raise OracleSchemaError("a column name appears twice: rename or drop one before comparing")
    if expected_types != actual_types:
        different = [
            f"{name}: expected {expected_types.get(name, 'no such column')}, found {actual_types.get(name, 'none')}"
            for name in sorted(expected_types.keys() | actual_types.keys())
            if expected_types.get(name) != actual_types.get(name)
        ]
        raise OracleSchemaError(
            f"the columns differ ({'; '.join(different)}): select and cast one side first"
        )
    unknown = [name for name in key_columns if name not in expected_types]
    if unknown or not key_columns:
        raise OracleSchemaError(
            f"key columns must be some of {expected.columns}"
            + (f", not {unknown}" if unknown else "; none was given")
        )


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _bucket_of(root: str, path: str) -> str:
    bucket = os.path.relpath(os.path.dirname(path), root)
    return "" if bucket == "." else bucket.replace(os.sep, "/")


def _line_chunks(path: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The JSON objects of a file in chunks, each with the number of its first line."""
    rows: list[dict[str, Any]] = []
    first_line = 1
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, start=1):
            rows.append(_object_of(line, path, number))
            if len(rows) == _ROWS_PER_CHUNK:
                yield first_line, rows
                rows, first_line = [], number + 1
    if rows:
        yield first_line, rows


def _object_of(line: bytes, path: str, number: int) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise OracleInputError(
            f"{path}:{number}: the last line has no line end: the file is torn or still written"
        )
    try:
        value = json.loads(line)
    except ValueError as error:
        raise OracleInputError(f"{path}:{number}: not one JSON object: {error}: {line[:80]!r}") from None
    if not isinstance(value, dict):
        raise OracleInputError(
            f"{path}:{number}: {type(value).__name__} instead of a JSON object: {line[:80]!r}"
        )
    return value


def _table_of_lines(
    rows: list[dict[str, Any]],
    schema: RowSchema,
    bucket_column: str | None,
    bucket: str | None,
    path: str,
    first_line: int,
) -> Any:
    if bucket_column is not None:
        for row in rows:
            # A row that brings this column itself would be overwritten silently.
            if bucket_column in row:
                raise OracleInputError(
                    f"{path}: rows have a field {bucket_column!r}: give bucket_column another name"
                )
            row[bucket_column] = bucket
    try:
        return arrow_table(rows, schema, first_row=first_line)
    except OracleInputError:
        raise
    except SparkBridgeError as error:
        # Rows are numbered from the first line of the chunk, so a row's number is its line's.
        raise OracleInputError(f"{path}: {error} (rows are lines)") from None
