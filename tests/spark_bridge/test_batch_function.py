"""A function runs on a batch; its result has one order, its failure is one short, complete sentence."""

from __future__ import annotations

import functools
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from spark_bridge import batch_function
from spark_bridge.batch_function import condensed_lines, function_name, run_batch
from spark_bridge.errors import RowMisfitError, SparkTransformError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

SCHEMA = "carrier string, delay int"
ROWS = [("UA", 5), ("AA", None), ("UA", -2), ("B6", 0), ("AA", 7)]


def total_delays(flights: DataFrame) -> DataFrame:
    return flights.groupBy("carrier").agg({"delay": "sum"}).withColumnRenamed("sum(delay)", "total")


def failure_of(fn: Any, **options: Any) -> SparkTransformError:
    with pytest.raises(SparkTransformError) as caught:
        run_batch(fn, ROWS, SCHEMA, label="month 3", **options)
    return caught.value


def test_result_comes_as_dicts_in_canonical_order(spark: Any) -> None:
    """Rows in, rows out, sorted by their columns from the left."""
    assert run_batch(total_delays, ROWS, SCHEMA) == [
        {"carrier": "AA", "total": 7},
        {"carrier": "B6", "total": 0},
        {"carrier": "UA", "total": 3},
    ]


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_order_does_not_depend_on_partitions_or_input_order(spark: Any, partitions: int) -> None:
    """However Spark spreads the rows, and in whatever order they came, the result is the same list."""
    rows = [(f"C{number % 7}", number) for number in range(50)]
    expected = run_batch(lambda frame: frame, sorted(rows), SCHEMA)

    shuffled = run_batch(lambda frame: frame.repartition(partitions), rows[::-1], SCHEMA)

    assert shuffled == expected
    assert [(row["carrier"], row["delay"]) for row in expected] == sorted(rows)


def test_a_python_error_names_batch_function_and_line(spark: Any) -> None:
    """An exception of the user's function keeps its type, text, line and traceback."""

    def divide(frame: DataFrame) -> DataFrame:
        return frame.limit(1 // 0)

    error = failure_of(divide)

    line = divide.__code__.co_firstlineno + 1
    assert error.label == "month 3"
    name = "test_a_python_error_names_batch_function_and_line.<locals>.divide"
    assert error.function.endswith(f"test_batch_function.{name}")
    assert error.location == f"test_batch_function.py:{line}"
    assert error.cause_lines == ("ZeroDivisionError: integer division or modulo by zero",)
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_an_analysis_error_is_short(spark: Any) -> None:
    """A column that does not exist: Spark's suggestion and the user's line, and no Java frame anywhere."""

    def select_nothing(frame: DataFrame) -> DataFrame:
        return frame.select("delai")

    error = failure_of(select_nothing)
    printed = "".join(traceback.format_exception(error))

    assert error.cause_lines[0].startswith("AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
    assert "`delay`" in error.cause_lines[0]
    assert error.location == f"test_batch_function.py:{select_nothing.__code__.co_firstlineno + 1}"
    assert "at org.apache" not in printed
    assert len(printed.splitlines()) < 30


def test_an_error_during_execution_is_short(spark: Any) -> None:
    """An error that only the data cause is raised by Spark later, and reported just as briefly."""
    error = failure_of(lambda frame: frame.selectExpr("cast(carrier as int) as number"))
    printed = "".join(traceback.format_exception(error))

    assert error.cause_lines[0].startswith("NumberFormatException: [CAST_INVALID_INPUT]")
    assert "at org.apache" not in printed
    assert len(printed.splitlines()) < 30


def test_an_error_inside_a_python_worker_is_short(spark: Any) -> None:
    """For a Python function inside Spark, the exception and the user's line are kept."""

    def with_udf(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        @f.udf("int")
        def broken(value):  # type: ignore[no-untyped-def]  # hints would choose another kind of function
            raise LookupError(f"no delay for {value!r}")

        return frame.select(broken("carrier"))

    error = failure_of(with_udf)

    assert error.cause_lines[0].startswith("PythonException: LookupError: no delay for '")
    assert "test_batch_function.py" in error.cause_lines[1]
    assert "in broken" in error.cause_lines[1]
    assert len(error.cause_lines) == 2


@pytest.mark.parametrize(
    ("fn", "options", "problem"),
    [
        (lambda frame: None, {}, "it returned NoneType, not a DataFrame"),
        (lambda frame: frame.selectExpr("1 as x", "2 as x"), {}, "more than one column named x"),
        (
            lambda frame: frame.selectExpr("delay", "carrier"),
            {"result_schema": "carrier string, delay int"},
            r"it returned the columns \(delay int, carrier string\), declared are \(carrier string, delay int\)",
        ),
        (
            lambda frame: frame.selectExpr("carrier", "cast(delay as bigint) as delay"),
            {"result_schema": "carrier string, delay int"},
            r"delay bigint\), declared are",
        ),
    ],
)
def test_a_wrong_result_is_refused(spark: Any, fn: Any, options: dict[str, Any], problem: str) -> None:
    """The function must return a DataFrame with the declared columns."""
    with pytest.raises(SparkTransformError, match=problem):
        run_batch(fn, ROWS, SCHEMA, **options)


def test_a_declared_result_passes(spark: Any) -> None:
    """A result of the declared columns and types is returned; whether they may be null does not matter."""
    rows = run_batch(
        lambda frame: frame.selectExpr("delay", "1 as one"), [("UA", 5)], SCHEMA, result_schema="delay int, one int"
    )

    assert rows == [{"delay": 5, "one": 1}]


def test_rows_that_do_not_fit_are_not_the_functions_fault(spark: Any) -> None:
    """A bad row is reported as such, before the function runs."""
    with pytest.raises(RowMisfitError, match=r"batch 'month 3', row 1: column 'delay': 'late'"):
        run_batch(lambda frame: pytest.fail("must not run"), [("UA", 5), ("AA", "late")], SCHEMA, label="month 3")


def test_a_lost_connection_is_explained_by_the_death_of_spark(monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    """When the connection broke and the process is dead, the error says so and quotes its last output."""
    monkeypatch.setattr(batch_function, "session_has_died", lambda wait_seconds: True)
    log = "WARN nothing\njava.lang.OutOfMemoryError: heap\n\tat java.base/java.lang.Error.x"
    monkeypatch.setattr(batch_function, "session_log_tail", lambda: log)

    def lose_connection(frame: DataFrame) -> DataFrame:
        try:
            raise ConnectionRefusedError("111")
        except ConnectionRefusedError as error:
            # PySpark does this to errors that it meets while it parses a schema.
            raise ValueError("cannot parse datatype") from error

    assert failure_of(lose_connection).cause_lines == (
        "ValueError: cannot parse datatype",
        "the Spark process has died; if it ran out of memory, give driver_memory more",
        "java.lang.OutOfMemoryError: heap",
    )


def test_other_errors_are_not_blamed_on_spark(monkeypatch: pytest.MonkeyPatch, spark: Any) -> None:
    """An error that is not a lost connection does not make the caller wait for the process to die."""
    monkeypatch.setattr(batch_function, "session_has_died", lambda wait_seconds: pytest.fail("must not be asked"))

    assert failure_of(lambda frame: frame.select("x")).cause_lines[0].startswith("AnalysisException")


class Report:
    """A function object, as a job uses to carry read-only settings."""

    def __call__(self, frame: DataFrame, column: str = "delay") -> DataFrame:
        return frame.select(column)


def test_functions_have_names_without_addresses() -> None:
    """The name of a function, a partial of it and a callable object are the same in every process."""
    assert function_name(total_delays) == f"{__name__}.total_delays"
    assert function_name(functools.partial(total_delays)) == f"{__name__}.total_delays"
    assert function_name(Report()) == f"{__name__}.Report"
    assert function_name(functools.partial(Report(), column="x")) == f"{__name__}.Report"


def test_function_objects_have_a_line_too(spark: Any) -> None:
    """The location is found inside `__call__` of an object and through a partial."""
    error = failure_of(functools.partial(Report(), column="nothing"))

    assert error.location == f"test_batch_function.py:{Report.__call__.__code__.co_firstlineno + 1}"


def test_condensed_lines_drop_java_and_length() -> None:
    """Java frames are removed, long lines are cut, few lines are kept, and an error without text keeps its name."""
    text = "\n".join(["first", "\tat org.apache.spark.X", "x" * 1000, *(f"line {number}" for number in range(50))])

    lines = condensed_lines(ValueError(text))

    assert lines[0] == "ValueError: first"
    assert lines[1] == "x" * 400
    assert lines[-1] == "line 5"
    assert len(lines) == 8
    assert condensed_lines(KeyError()) == ("KeyError",)
