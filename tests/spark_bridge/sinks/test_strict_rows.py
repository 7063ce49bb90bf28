"""Rows of a DataFrame sink: schemas are read without Spark, and every value is kept or refused."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.batch import Batch
from operators.files.writing import RecordError
from spark_bridge.canonical import python_rows
from spark_bridge.crossing import parse_schema
from spark_bridge.errors import SparkBridgeError
from spark_bridge.sinks.ddl import schema_of
from spark_bridge.sinks.strict_parquet import StrictParquetFormat
from tests.spark_bridge.test_crossing_properties import Typed, anything, is_kept, types

SCHEMAS = (
    "a int, b bigint, c tinyint, d smallint, e float, f double, g string, h binary, i date, j boolean",
    "`a b` TIMESTAMP, c timestamp_ntz NOT NULL, d decimal(12,3), e DECIMAL, f decimal(4)",
    "a array<int>, b map<string, array<double>>, c struct<x: int, y: struct<z: string>>, d integer, e long",
)


def through(format: StrictParquetFormat, rows: list[Any]) -> list[dict[str, Any]]:
    content = io.BytesIO()
    writer = format.open_writer(lambda data: content.write(data) and None)
    batch = format.encode_batch(Batch(rows))
    writer.add(batch, 0, len(batch))
    writer.finish()
    return python_rows(pyarrow.parquet.read_table(content))


@pytest.mark.spark
def test_schemas_are_those_of_spark(spark: Any) -> None:
    """A DDL string gives the Arrow schema that Spark's own parser gives."""
    for ddl in SCHEMAS:
        ours, of_spark = schema_of(ddl), parse_schema(ddl).arrow
        assert ours.names == of_spark.names
        for mine, its in zip(ours, of_spark, strict=True):
            assert (mine.type, mine.nullable) == (its.type, its.nullable), ddl


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("a", "too early"), ("a inti", "'inti' is no type"), ("a int b int", "'b' is not expected"), ("", "too early"),
        ("a int, a string", "'a' appears twice"), ("a array<int", "must be .>. before"),
        ("a decimal(40,1)", "no such digits"),
        ("a map<int>", "must be ','"), (7, "give a DDL string"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(ddl: object, why: str) -> None:
    """The error says where it stops being one."""
    with pytest.raises(SparkBridgeError, match=why):
        schema_of(ddl)


@settings(max_examples=40)
@given(typed=types.filter(lambda one: "interval" not in one[0]), data=st.data())
def test_values_of_the_type_come_back(typed: Typed, data: st.DataObject) -> None:
    """Through a file and back: equal, with their zone and digits, nulls among them, nested or not."""
    ddl, _, values = typed
    rows = data.draw(st.lists((st.none() | values).map(lambda value: (value,)), min_size=1, max_size=4))

    returned = through(StrictParquetFormat(schema_of(f"a {ddl}")), rows)

    assert len(returned) == len(rows)
    assert all(is_kept(sent, row["a"]) for (sent,), row in zip(rows, returned, strict=True))


@settings(max_examples=60)
@given(typed=types.filter(lambda one: "interval" not in one[0]), value=anything)
def test_any_other_value_is_refused_or_kept(typed: Typed, value: Any) -> None:
    """No value becomes another one."""
    format = StrictParquetFormat(schema_of(f"a {typed[0]}"))
    try:
        returned = through(format, [(value,)])
    except RecordError:
        return
    assert is_kept(value, returned[0]["a"])


@pytest.mark.parametrize(
    ("ddl", "value", "why"),
    [
        ("a timestamp", datetime.datetime(2020, 1, 1), "no time zone"),
        ("a timestamp_ntz", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), "lose its time zone"),
        ("a float", 0.1, "32 bits"),
        ("a struct<x: int>", {"x": 1, "y": 2}, "keys"),
        ("a array<timestamp>", [datetime.datetime(2020, 1, 1)], "no time zone"),
        ("a string not null", None, "not null"),
    ],
)
def test_a_misfit_is_named(ddl: str, value: Any, why: str) -> None:
    """The record, the column and the reason."""
    with pytest.raises(RecordError, match=f"column 'a'.*{why}") as raised:
        through(StrictParquetFormat(schema_of(ddl)), [(value,)])
    assert raised.value.record == (value,)
