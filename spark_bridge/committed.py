"""Reads the committed output of a file sink like a foreign reader, and more strictly than most.

Part files of JSON lines lie in bucket directories; names that start with `.` or `_` are invisible (Hadoop's
rule, which Spark and Hive follow too). Spark's own JSON reader takes the first object of a line, ignores
the rest, and fills missing fields with nulls: both would hide a torn or doubled write. Here a line must be
one object with exactly the declared fields; otherwise an error names file and line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from spark_bridge.crossing import RowSchema, arrow_table, new_session_directory, parse_schema, write_parquet
from spark_bridge.errors import OracleInputError, RowMisfitError
from spark_bridge.session import get_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows held in memory at once. Part files may be many and small, so a chunk can span several files.
_ROWS_PER_CHUNK = 200_000

_DECODER = json.JSONDecoder()
# A committed row and its place: path, line number, value.
_PlacedRow = tuple[str, int, dict[str, Any]]


def visible_part_files(root: str) -> list[str]:
    """Paths of the finished part files below `root`, sorted: `part-*` in any depth of visible directories.

    Raises:
        OracleInputError: `root` is not a directory, or holds a visible file that is not a part file.
    """
    if not os.path.isdir(root):
        raise OracleInputError(f"{root} is not a directory: has the job committed anything yet?")
    found = []
    for directory, directory_names, file_names in os.walk(root):
        directory_names[:] = [name for name in directory_names if not _is_hidden(name)]
        for name in file_names:
            if _is_hidden(name):
                continue
            path = os.path.join(directory, name)
            if not name.startswith("part-"):
                raise OracleInputError(
                    f"{path} is visible to every reader of {root} and is no part file: a sink hides what is "
                    "unfinished behind a leading '.' or '_'. Read the sink's own directory, or move it away."
                )
            found.append(path)
    return sorted(found)


def read_committed(
    root: str, schema: str, *, bucket_column: str | None = None, session: SparkSession | None = None
) -> DataFrame:
    """Reads the committed part files of a sink, one JSON object per line, into a DataFrame.

    The rows are copied to files that live as long as the session: later commits do not change the DataFrame.

    Args:
        root: the sink's directory; part files lie in it or in bucket directories of any depth.
        schema: DDL string of the JSON fields. JSON has no dates: declare them as they were written (string,
            bigint) and cast afterwards.
        bucket_column: adds a last column with each row's bucket path relative to `root` (`""` for the root).
        session: the session to use; None takes the process's own.

    Raises:
        OracleInputError: a torn line, a field too many or too few, a value of another type; with file
            and line.
    """
    spark = session or get_session()
    row_schema = parse_schema(schema)
    if bucket_column in row_schema.names:
        raise OracleInputError(f"rows have a field {bucket_column!r} already: give bucket_column another name")
    whole_schema = row_schema if bucket_column is None else parse_schema(f"{schema}, `{bucket_column}` string")
    directory = new_session_directory(spark)
    for number, chunk in enumerate(_chunks(_placed_rows(visible_part_files(root)))):
        table = _table_of(chunk, row_schema)
        if bucket_column is not None:
            table = table.append_column(whole_schema.arrow.field(bucket_column), [_buckets(root, chunk)])
        write_parquet(table, directory, number)
    return spark.read.schema(whole_schema.spark).parquet(str(directory))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _placed_rows(paths: list[str]) -> Iterator[_PlacedRow]:
    for path in paths:
        with open(path, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield path, number, _object_of(line, path, number)


def _object_of(line: bytes, path: str, number: int) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise OracleInputError(f"{path}:{number}: no line end: the file is torn or still being written")
    try:
        text = line.decode().strip()
        value, end = _DECODER.raw_decode(text)
        if end < len(text):
            raise ValueError(f"more follows at character {end}")
    except ValueError as error:
        raise OracleInputError(f"{path}:{number}: not one JSON object: {error}: {line[:80]!r}") from None
    if not isinstance(value, dict):
        raise OracleInputError(f"{path}:{number}: not a JSON object: {line[:80]!r}")
    return value


def _chunks(rows: Iterator[_PlacedRow]) -> Iterator[list[_PlacedRow]]:
    chunk: list[_PlacedRow] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == _ROWS_PER_CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _table_of(chunk: list[_PlacedRow], schema: RowSchema) -> Any:
    try:
        return arrow_table([row for _, _, row in chunk], schema)
    except RowMisfitError as error:
        path, number, _ = chunk[error.row]
        raise OracleInputError(f"{path}:{number}: {error.problem}") from None


def _buckets(root: str, chunk: list[_PlacedRow]) -> list[str]:
    bucket_of = {path: _bucket_of(root, path) for path, _, _ in chunk}
    return [bucket_of[path] for path, _, _ in chunk]


def _bucket_of(root: str, path: str) -> str:
    bucket = os.path.relpath(os.path.dirname(path), root)
    return "" if bucket == os.curdir else bucket.replace(os.sep, "/")
