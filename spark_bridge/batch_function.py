"""Runs one function from DataFrame to DataFrame on one batch of rows, and explains it when it fails.

This is the whole contact between a stream and Spark: rows in, rows out, in canonical order. Other modules decide
when a batch is cut, how often it is retried and what its output means to a checkpoint.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from spark_bridge.batch_times import timed_batch
from spark_bridge.crossing import DEFAULT_PARQUET_THRESHOLD_ROWS, collect_canonical, parse_schema, rows_on_spark
from spark_bridge.errors import RowMisfitError, SparkBridgeError, SparkTransformError
from spark_bridge.jvm import is_connection_error, is_spark_error
from spark_bridge.period_column import COLUMN_TYPE
from spark_bridge.result_columns import Columns, See, shown_columns
from spark_bridge.session import get_session, session_has_died, session_log_tail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ResultT = TypeVar("ResultT")

# A dead process shows on its connection first and in the process table a moment later.
_DEATH_WAIT_SECONDS = 2.0
_CAUSE_LINES_MAX = 8
_CAUSE_LINE_CHARACTERS_MAX = 400
_LAST_WORDS_LINES = 3


def run_batch(
    fn: Callable[[DataFrame], DataFrame],
    rows: Any,
    schema: str,
    *,
    label: str = "batch",
    result_schema: str | None = None,
    period_column: str | None = None,
    session: SparkSession | None = None,
    parquet_threshold_rows: int = DEFAULT_PARQUET_THRESHOLD_ROWS,
    take: Callable[[DataFrame], Any] = collect_canonical,
    see: See | None = None,
) -> Any:
    """Runs `fn` on `rows` in Spark and returns the result as dicts in canonical order.

    Args:
        fn: takes and returns a DataFrame; runs on the driver, once per call.
        rows: dicts or sequences in column order, or a `pyarrow` Table or RecordBatch.
        schema: DDL string of `rows`.
        label: names the batch in errors, e.g. `"month 3"`.
        result_schema: DDL string the result must have, column by column; None accepts any schema.
        period_column: a column of text that the result must have besides.
        session: the session to use; None takes the process's own.
        parquet_threshold_rows: batches of at least this many rows cross as Parquet.
        take: runs the result and returns it in another form: `collect_table`.
        see: is given the columns of the result first, those of periods apart.

    Raises:
        SparkTransformError: `fn` failed, returned something else, or Spark failed on its result.
        RowMisfitError: a row does not fit `schema`; the message names the batch, too.
        SparkBridgeError: a table does not fit `schema`, or there is no Spark.
    """
    spark = session or get_session()
    try:
        with (
            timed_batch(label, len(rows)) as times,
            rows_on_spark(rows, schema, session=spark, parquet_threshold_rows=parquet_threshold_rows) as frame,
        ):
            times.has_crossed()
            return run_function(
                fn, frame, take, label=label, result_schema=result_schema, period_column=period_column, see=see
            )
    except RowMisfitError as error:
        raise error.in_batch(label) from None
    except Exception as error:
        # Rows that do not fit have their own error; any other error comes from Spark while they crossed.
        if is_spark_error(error):
            raise _transform_error(label, fn, error) from None
        raise


def run_function(
    fn: Callable[[DataFrame], DataFrame],
    frame: DataFrame,
    take: Callable[[DataFrame], ResultT],
    *,
    label: str,
    result_schema: str | None,
    period_column: str | None = None,
    see: See | None = None,
) -> ResultT:
    """Runs `fn` on a DataFrame, and `take` on its result. The other arguments are those of `run_batch`.

    Raises:
        SparkTransformError: `fn` failed, returned something else, or `take` failed on its result.
    """
    try:
        result = fn(frame)
        columns = _check_result(result, result_schema, period_column)
        if see is not None:
            see(columns)
        return take(result)
    except Exception as error:
        raise _transform_error(label, fn, error) from _short_cause(error)


def function_name(fn: Callable[..., Any]) -> str:
    """Module and name of a function, without addresses, so the same in every process."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{named.__module__}.{named.__qualname__}"


def _check_result(result: Any, result_schema: str | None, period_column: str | None) -> Columns:
    from pyspark.sql import DataFrame

    if not isinstance(result, DataFrame):
        raise SparkBridgeError(f"it returned {type(result).__name__}, not a DataFrame: return the DataFrame itself")
    found = _column_types(result.schema)
    if period_column is not None:
        if (period_column, COLUMN_TYPE) not in found:
            raise SparkBridgeError(
                f"it returned the columns ({shown_columns(found)}), without {period_column} {COLUMN_TYPE}: keep this "
                "column, by which its results are told apart (group by it)"
            )
        found.remove((period_column, COLUMN_TYPE))
    if result_schema is None:
        return found
    expected = _column_types(parse_schema(result_schema).spark)
    if expected != found:
        raise SparkBridgeError(
            f"it returned the columns ({shown_columns(found)}), declared are ({shown_columns(expected)}): "
            "select and cast them at the end of the function, or correct the declaration"
        )
    return found


def _column_types(schema: Any) -> list[tuple[str, str]]:
    # Nullability is left out: Spark infers it, and differently in different versions.
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


def _transform_error(label: str, fn: Callable[..., Any], error: Exception) -> SparkTransformError:
    lines = condensed_lines(error)
    if is_connection_error(error) and session_has_died(_DEATH_WAIT_SECONDS):
        death = "the Spark process has died; if it ran out of memory, give driver_memory more"
        lines = (*lines, death, *_last_words(session_log_tail()))
    return SparkTransformError(label, function_name(fn), lines, location=_location_in(fn, error), cause=error)


def _last_words(log: str) -> list[str]:
    """The last error lines in the log of a JVM that died."""
    telling = [line for line in log.splitlines() if "rror" in line or "ERROR" in line or "Exception" in line]
    return [line for line in telling if not _is_java_frame(line)][-_LAST_WORDS_LINES:]


def _short_cause(error: Exception) -> Exception | None:
    """The error to chain: a Python error keeps its traceback, Spark's would print pages of Java."""
    return None if is_spark_error(error) or isinstance(error, SparkBridgeError) else error


def condensed_lines(error: BaseException) -> tuple[str, ...]:
    """The first lines of an error without Java frames; of a Python worker's error, its last one."""
    if isinstance(error, SparkBridgeError):
        return (str(error),)
    text = _message_of(error).split("JVM stacktrace:")[0]
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not _is_java_frame(line)]
    worker_lines = _python_worker_lines(lines)
    kept = worker_lines or lines[:_CAUSE_LINES_MAX]
    shortened = [line[:_CAUSE_LINE_CHARACTERS_MAX] for line in kept]
    name = type(error).__name__
    if not shortened:
        return (name,)
    return (f"{name}: {shortened[0].lstrip()}", *shortened[1:])


def _message_of(error: BaseException) -> str:
    java_exception = getattr(error, "java_exception", None)
    if java_exception is not None:
        # The text of a Py4JJavaError holds the whole stack; the exception itself knows its message.
        try:
            return str(java_exception.toString())
        except Exception as nested:
            # The JVM is gone, and its message with it.
            return f"{type(nested).__name__} while asking the Spark process for its error"
    return str(error)


def _is_java_frame(line: str) -> bool:
    stripped = line.strip()
    return stripped.startswith(("at org.", "at java.", "at scala.", "at jdk.", "at py4j.", "at sun.", "... "))


def _python_worker_lines(lines: list[str]) -> list[str]:
    """Of a Python function that failed inside Spark: the user's last frame and the exception."""
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not starts:
        return []
    # Chained exceptions print several tracebacks; Spark received the last one.
    body = lines[starts[-1] + 1 :]
    final = next((line for line in body if not line.startswith(" ")), None)
    frames = [line.strip() for line in body if line.startswith("  File ") and "/pyspark/" not in line]
    kept = [line for line in (final, frames[-1] if frames else None) if line is not None]
    return [kept[0], *(f"    {line}" for line in kept[1:])] if kept else []


def _location_in(fn: Callable[..., Any], error: BaseException) -> str | None:
    """`file:line` of the deepest frame in the file of the user's function."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    # A bare function has the code itself; for an object it is in `__call__`.
    code = getattr(fn, "__code__", None) or getattr(getattr(fn, "__call__", None), "__code__", None)  # noqa: B004
    if code is None:
        return None
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == code.co_filename and code.co_filename != __file__
    ]
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{lines[-1]}" if lines else None
