"""Rows into Spark and results out of it.

Rows cross as one Arrow table: small ones inside the plan, large ones as a Parquet file that Spark reads
itself. Measured on two cores (the second of two runs on rows of four columns, one aggregation included,
without building the table): 1,000 rows take 0.09 s either way, 20,000 rows 0.16 s as Arrow and 0.21 s as
Parquet, 100,000 rows 0.31 s against 0.16 s, 1,000,000 rows 2.3 s against 0.6 s. Hence the default threshold.

Types are those of a DDL string ("carrier string, dep_delay double, ts timestamp"). A value of another type,
or one that its column cannot hold exactly, is an error with its row and column, never a silent conversion
(see `spark_bridge.strict_types`). Returned values equal the original ones, in the plain type of their column:
an int in a double column becomes a float, a tuple a list, and an instant has the zone UTC.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_bridge.canonical import python_rows, sort_canonically
from spark_bridge.errors import RowMisfitError, SparkBridgeError
from spark_bridge.session import get_session
from spark_bridge.strict_types import cast_misfit, first_misfit, unsupported_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEFAULT_PARQUET_THRESHOLD_ROWS = 20_000


@dataclass(frozen=True)
class RowSchema:
    """A schema in three forms: as written, as Spark's `StructType`, as a `pyarrow.Schema`."""

    ddl: str
    spark: Any
    arrow: Any

    @property
    def names(self) -> list[str]:
        return list(self.arrow.names)


@functools.lru_cache(maxsize=256)
def parse_schema(ddl: str) -> RowSchema:
    """Reads a DDL schema string. It starts the session if there is none, because the parser is Spark's own.

    Raises:
        SparkBridgeError: the string is not a schema, names a column twice, or has a type that cannot cross.
    """
    get_session()
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import DataType, StructType

    try:
        struct = DataType.fromDDL(ddl)
        if not isinstance(struct, StructType) or not struct.fields:
            raise SparkBridgeError(_not_a_schema(ddl, f"it describes {struct.simpleString()!r}, not columns"))
        for why in unsupported_types(struct):
            raise SparkBridgeError(f"{ddl!r} cannot cross between Python and Spark: {why}")
        arrow = to_arrow_schema(struct, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except PySparkException as error:
        first_line = str(error).strip().splitlines()[0]
        raise SparkBridgeError(_not_a_schema(ddl, first_line)) from None
    if len(set(struct.names)) < len(struct.names):
        raise SparkBridgeError(_not_a_schema(ddl, "a column name appears twice"))
    return RowSchema(ddl, struct, arrow)


def _not_a_schema(ddl: str, why: str) -> str:
    return f"{ddl!r} is not a schema: {why}. Write for example: 'carrier string, delay int, ts timestamp'."


@contextlib.contextmanager
def rows_on_spark(
    rows: Any,
    schema: str,
    *,
    session: SparkSession | None = None,
    parquet_threshold_rows: int = DEFAULT_PARQUET_THRESHOLD_ROWS,
) -> Iterator[DataFrame]:
    """Gives `rows` as a DataFrame, usable inside the `with` block only (its file is deleted at the end).

    Args:
        rows: dicts (exactly the columns of the schema), sequences in column order, or a `pyarrow` Table or
            RecordBatch.
        schema: DDL string.
        session: the session to use; None takes the process's own.
        parquet_threshold_rows: batches of at least this many rows cross as Parquet.

    Raises:
        SparkBridgeError: bad schema or threshold, or a row that does not fit; the message names row and
            column.
    """
    if parquet_threshold_rows < 0:
        raise SparkBridgeError(f"parquet_threshold_rows must not be negative, it is {parquet_threshold_rows}")
    spark = session or get_session()
    row_schema = parse_schema(schema)
    table = arrow_table(rows, row_schema)
    if table.num_rows < parquet_threshold_rows:
        yield spark.createDataFrame(table, row_schema.spark)
        return
    with batch_directory(spark) as directory:
        write_parquet(table, directory, 0)
        yield spark.read.schema(row_schema.spark).parquet(str(directory))


def collect_canonical(frame: DataFrame) -> list[dict[str, Any]]:
    """Runs a DataFrame and returns its rows as dicts in canonical order (see `spark_bridge.canonical`).

    Raises:
        SparkBridgeError: see `check_result_columns`.
    """
    return python_rows(collect_table(frame))


def collect_table(frame: DataFrame) -> Any:
    """The same rows, in the same order, as a `pyarrow.Table`."""
    check_result_columns(frame)
    return sort_canonically(frame.toArrow())


def check_result_columns(frame: DataFrame) -> None:
    """Checks that the rows of a DataFrame can become dicts, without running it.

    Raises:
        SparkBridgeError: two columns have the same name, so a dict cannot hold a row; or a column has a type
            that cannot cross.
    """
    for why in unsupported_types(frame.schema):
        raise SparkBridgeError(f"the result cannot cross between Spark and Python: {why}")
    repeated = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
    if repeated:
        raise SparkBridgeError(
            f"the result has more than one column named {', '.join(repeated)}: rename or drop them before returning"
        )


@contextlib.contextmanager
def batch_directory(spark: SparkSession) -> Iterator[Path]:
    """A directory for one batch's files, deleted at the end of the block.

    It lies inside Spark's own temporary directory, which the JVM deletes when it ends: no file remains,
    even when this process is killed in the middle of a batch.
    """
    directory = new_session_directory(spark)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def new_session_directory(spark: SparkSession) -> Path:
    """A fresh directory that lives as long as the session's JVM."""
    context: Any = spark.sparkContext
    return Path(tempfile.mkdtemp(prefix="rows-", dir=context._temp_dir))


def write_parquet(table: Any, directory: Path, part: int) -> None:
    """Writes one table as one uncompressed file: it is read once, at once, on the same machine."""
    from pyarrow import parquet

    parquet.write_table(table, directory / f"part-{part:05d}.parquet", compression="none", use_dictionary=False)


def arrow_table(rows: Any, schema: RowSchema) -> Any:
    """Builds the `pyarrow.Table` of `rows`, checking every value's type.

    Args:
        rows: as for `rows_on_spark`.
        schema: a parsed schema.

    Raises:
        RowMisfitError: naming row, column, value and expected type.
        SparkBridgeError: a table whose columns are not the schema's.
    """
    import pyarrow as pa

    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return _cast_table(rows, schema)
    columns = _columns_of(list(rows), schema)
    arrays = [arrow_array(field, values) for field, values in zip(schema.arrow, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def _cast_table(table: Any, schema: RowSchema) -> Any:
    import pyarrow as pa

    if sorted(table.column_names) != sorted(schema.names):
        raise SparkBridgeError(
            f"the table has the columns {table.column_names}, the schema says {schema.names}: select and rename first"
        )
    columns = []
    for wanted in schema.arrow:
        column = table.column(wanted.name)
        why = cast_misfit(column.type, wanted.type)
        try:
            columns.append(None if why is not None else column.cast(wanted.type))
        except (pa.ArrowException, ValueError) as error:
            why = str(error).splitlines()[0]
        if why is None and not wanted.nullable and column.null_count:
            why = "the column is NOT NULL"
        if why is not None:
            raise SparkBridgeError(f"the table does not fit the schema {schema.ddl!r}: column {wanted.name!r}: {why}")
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def _columns_of(rows: list[Any], schema: RowSchema) -> list[Sequence[Any]]:
    """Turns rows into columns; every row must have exactly the schema's columns."""
    names = schema.names
    if not rows:
        return [()] * len(names)
    if isinstance(rows[0], Mapping):
        return _columns_of_mappings(rows, names)
    for position, row in enumerate(rows):
        if isinstance(row, (Mapping, str, bytes)) or not isinstance(row, Sequence) or len(row) != len(names):
            raise RowMisfitError(
                position, f"{_shown(row)} is not a sequence of {len(names)} values ({', '.join(names)})"
            )
    return list(zip(*rows, strict=True))


def _columns_of_mappings(rows: list[Any], names: list[str]) -> list[Sequence[Any]]:
    wanted = set(names)
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise RowMisfitError(position, f"{_shown(row)} among rows that are dicts: give one kind of row")
        if row.keys() != wanted:
            missing = [name for name in names if name not in row]
            unknown = sorted(str(name) for name in row if name not in wanted)
            raise RowMisfitError(
                position,
                f"it does not have the schema's columns: missing {missing}, unknown {unknown}. "
                "Add, rename or drop them before the batch, or change the schema.",
            )
    return [[row[name] for row in rows] for name in names]


def arrow_array(field: Any, values: Sequence[Any]) -> Any:
    import pyarrow as pa

    misfit = first_misfit(field.type, values)
    if misfit is None:
        try:
            array = pa.array(values, type=field.type)
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            misfit = _first_refused(field.type, values)
        else:
            if field.nullable or not array.null_count:
                return array
            misfit = (next(index for index, value in enumerate(values) if value is None), "the column is NOT NULL")
    position, reason = misfit
    raise RowMisfitError(
        position,
        f"column {field.name!r}: {_shown(values[position])} does not fit type {field.type} ({reason}). "
        "Convert the value before the batch, or change the schema.",
    )


def _first_refused(arrow_type: Any, values: Sequence[Any]) -> tuple[int, str]:
    """The value that Arrow refused, and why; called only after it refused the column."""
    import pyarrow as pa

    for position, value in enumerate(values):
        try:
            pa.array([value], type=arrow_type)
        except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
            return position, str(error).splitlines()[0]
    raise AssertionError(f"Arrow refused a column of {arrow_type} whose values it takes one by one")


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} of type {type(value).__name__}"
