"""Rows cross into Spark and come back unchanged, in either way, and rows that do not fit are refused."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_bridge.crossing import collect_canonical, parse_schema, rows_on_spark
from spark_bridge.errors import RowMisfitError, SparkBridgeError

pytestmark = pytest.mark.spark

ARROW, PARQUET = 1_000_000, 0
both_ways = pytest.mark.parametrize("threshold", [ARROW, PARQUET], ids=["arrow", "parquet"])

EVERY_TYPE = (
    "flag boolean, small tinyint, number int, big bigint, ratio double, text string, raw binary, day date, "
    "moment timestamp, local timestamp_ntz, money decimal(10,2), items array<string>, "
    "pair struct<left: int, right: string>, counts map<string, bigint>"
)
EVERY_VALUE: dict[str, Any] = {
    "flag": True,
    "small": -128,
    "number": 2**31 - 1,
    "big": -(2**63),
    "ratio": -0.0,
    "text": "Zürich \U0001f6eb\x00",
    "raw": b"\x00\xff",
    "day": datetime.date(1582, 10, 4),
    "moment": datetime.datetime(2013, 3, 10, 2, 30, 0, 1, tzinfo=datetime.UTC),
    "local": datetime.datetime(2013, 3, 10, 2, 30, 0, 1),
    "money": decimal.Decimal("-12345678.90"),
    "items": ["b", None, "a"],
    "pair": {"left": 1, "right": None},
    "counts": {"x": 1, "y": None},
}


def there_and_back(rows: Any, schema: str, threshold: int) -> list[dict[str, Any]]:
    with rows_on_spark(rows, schema, parquet_threshold_rows=threshold) as frame:
        return collect_canonical(frame)


@both_ways
def test_every_type_survives(spark: Any, threshold: int) -> None:
    """A value of each type, and None in each column, comes back equal and with the same Python type."""
    nothing = dict.fromkeys(EVERY_VALUE)

    returned = there_and_back([nothing, EVERY_VALUE], EVERY_TYPE, threshold)

    assert [repr(row) for row in returned] == [repr(EVERY_VALUE), repr(nothing)]


@both_ways
def test_rows_may_be_sequences_or_columns(spark: Any, threshold: int) -> None:
    """Dicts, tuples, lists, a Table and a RecordBatch of the same rows are the same batch."""
    columns = {"a": [2, 1], "b": ["y", "x"]}
    expected = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]

    for rows in (
        [{"b": "y", "a": 2}, {"a": 1, "b": "x"}],
        [(2, "y"), (1, "x")],
        [[2, "y"], [1, "x"]],
        iter([(2, "y"), (1, "x")]),
        pa.table(columns),
        pa.RecordBatch.from_pydict(columns),
    ):
        assert there_and_back(rows, "a int, b string", threshold) == expected


@both_ways
def test_no_rows_are_a_batch_too(spark: Any, threshold: int) -> None:
    """An empty batch is an empty DataFrame with the schema's columns."""
    with rows_on_spark([], "a int, b string", parquet_threshold_rows=threshold) as frame:
        assert (frame.dtypes, collect_canonical(frame)) == ([("a", "int"), ("b", "string")], [])


@both_ways
def test_doubles_are_kept_bit_by_bit(spark: Any, threshold: int) -> None:
    """nan, infinities, the smallest numbers and both zeros come back unchanged."""
    values = [float("-inf"), -5e-324, -0.0, 0.0, 1e-310, 1.7976931348623157e308, float("inf"), float("nan")]

    returned = there_and_back([(value,) for value in values], "x double", threshold)

    assert repr([row["x"] for row in returned]) == repr(values)


def test_the_threshold_decides_the_way(spark: Any) -> None:
    """A batch below the threshold has no file; at the threshold it has one, which is gone after the block."""
    with rows_on_spark([(1,)] * 4, "a int", parquet_threshold_rows=5) as frame:
        assert frame.inputFiles() == []
    with rows_on_spark([(1,)] * 5, "a int", parquet_threshold_rows=5) as frame:
        (uri,) = frame.inputFiles()
        file = Path(uri.removeprefix("file://"))
        assert file.exists()
    assert not file.parent.exists()


def test_the_file_goes_when_the_batch_fails(spark: Any) -> None:
    """After an error inside the block, the batch's file is deleted."""
    files: list[Path] = []

    def fail_in_block() -> None:
        with rows_on_spark([(1,)], "a int", parquet_threshold_rows=0) as frame:
            files.extend(Path(uri.removeprefix("file://")) for uri in frame.inputFiles())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_block()
    assert len(files) == 1
    assert not files[0].parent.exists()


def test_an_instant_is_kept_in_any_zone(spark: Any) -> None:
    """A datetime with a zone means its instant, and comes back in UTC; one without a zone is refused."""
    plus_two = datetime.timezone(datetime.timedelta(hours=2))
    moment = datetime.datetime(2013, 1, 1, 7, tzinfo=plus_two)

    (returned,) = there_and_back([(moment,)], "ts timestamp", ARROW)

    assert repr(returned["ts"]) == repr(moment.astimezone(datetime.UTC))
    with pytest.raises(RowMisfitError, match=r"column 'ts': .*\(it has no time zone"):
        there_and_back([(moment,), (moment.replace(tzinfo=None),)], "ts timestamp", ARROW)


@pytest.mark.parametrize(
    ("rows", "row", "problem"),
    [
        ([{"a": 1, "b": "x"}, {"a": 1}], 1, r"missing \['b'\], unknown \[\]"),
        ([{"a": 1, "b": "x", "c": 2}], 0, r"missing \[\], unknown \['c'\]"),
        ([{"a": 1, "b": "x"}, (1, "x")], 1, "among rows that are dicts"),
        ([(1, "x"), (1,)], 1, r"not a sequence of 2 values \(a, b\)"),
        ([(1, "x"), {"a": 1, "b": "x"}], 1, r"not a sequence of 2 values \(a, b\)"),
        (["1x"], 0, r"not a sequence of 2 values \(a, b\)"),
        ([(1, "x"), ("1", "x")], 1, r"column 'a': '1' of type str does not fit type int32 \(str is another type\)"),
        ([(1, "x"), (2**31, "x")], 1, r"column 'a': 2147483648 of type int does not fit type int32"),
        ([(1, "x"), (1.5, "x")], 1, r"column 'a': 1.5 of type float does not fit type int32"),
        ([(1, "x"), (1, "\ud800")], 1, r"column 'b': '\\ud800' of type str does not fit type string"),
        ([(1, "x"), (None, "x")], 1, r"column 'a': None .*the column is NOT NULL"),
    ],
)
def test_a_row_that_does_not_fit_is_named(spark: Any, rows: Any, row: int, problem: str) -> None:
    """The error names the row, the column, the value, its type and the type that was expected."""
    with pytest.raises(RowMisfitError, match=problem) as caught, rows_on_spark(rows, "a int not null, b string"):
        pass

    assert caught.value.row == row


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"c": ["x"], "a": [1]}, r"columns \['c', 'a'\], the schema says \['a', 'b'\]"),
        ({"a": [2**40], "b": ["x"]}, "does not fit the schema"),
        ({"a": ["1"], "b": ["x"]}, "column 'a': string is another type than int32"),
        ({"a": pa.array([None], type=pa.int32()), "b": ["x"]}, "column 'a': the column is NOT NULL"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(spark: Any, table: dict[str, Any], problem: str) -> None:
    """Columns of an Arrow table must have the names of the schema, in any order, and fit its types."""
    with pytest.raises(SparkBridgeError, match=problem), rows_on_spark(pa.table(table), "a int not null, b string"):
        pass


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("a strin", "UNSUPPORTED_DATATYPE"),
        ("a int,", "is not a schema"),
        ("int", "it describes 'int', not columns"),
        ("a int, a string", "appears twice"),
        ("", "is not a schema"),
    ],
)
def test_a_bad_schema_is_refused(spark: Any, ddl: str, problem: str) -> None:
    """An invalid schema is one short error with the reason and an example of a right one."""
    with pytest.raises(SparkBridgeError, match=problem) as caught:
        parse_schema(ddl)

    message = str(caught.value)
    assert "carrier string, delay int" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("a int, b array<time(6)>", r"time\(6\) has no Python value here: cast it, for example to string"),
        ("a struct<b: variant>", "variant has no Python value here"),
        ("a map<array<int>, int>", "a map whose keys are array<int> is no dict: use an array of entries"),
    ],
)
def test_a_type_without_a_python_value_is_refused(spark: Any, ddl: str, problem: str) -> None:
    """A type that cannot cross in both directions is refused in a schema, by its name."""
    with pytest.raises(SparkBridgeError, match=f"cannot cross between Python and Spark: {problem}"):
        parse_schema(ddl)


@pytest.mark.parametrize("column", ["map(array(1), 2)", "parse_json('{}')", "interval '1' year"])
def test_a_result_without_a_python_value_is_refused(spark: Any, column: str) -> None:
    """A result of such a type is refused, too."""
    with pytest.raises(SparkBridgeError, match="the result cannot cross between Spark and Python: "):
        collect_canonical(spark.sql(f"select {column} as x"))


def test_a_negative_threshold_is_refused(spark: Any) -> None:
    """A threshold counts rows."""
    with (
        pytest.raises(SparkBridgeError, match="must not be negative"),
        rows_on_spark([], "a int", parquet_threshold_rows=-1),
    ):
        pass


def test_result_with_a_name_twice_is_refused(spark: Any) -> None:
    """A row that a dict cannot represent is an error, not a row with a column less."""
    with pytest.raises(SparkBridgeError, match="more than one column named x"):
        collect_canonical(spark.sql("select 1 as x, 2 as x"))


@pytest.mark.slow
@both_ways
def test_a_million_rows_cross(spark: Any, threshold: int) -> None:
    """A batch of a million rows survives in the session's heap by either way (Spark's default heap does not)."""
    count = 1_000_000
    table = pa.table({"k": pa.array(range(count), pa.int64()), "name": [f"carrier {i % 16}" for i in range(count)]})

    with rows_on_spark(table, "k bigint, name string", parquet_threshold_rows=threshold * 2) as frame:
        totals = collect_canonical(frame.groupBy("name").agg({"k": "sum"}))

    assert len(totals) == 16
    assert sum(row["sum(k)"] for row in totals) == count * (count - 1) // 2
