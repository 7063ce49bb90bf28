"""A DataFrame without Spark: its schema, and its rows as Arrow, in an order that may differ from time to time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NoReturn, Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from operators.basic import CollectedResults
from spark_bridge import spark_source
from spark_bridge.frames import FrameSource


class Frame(DataFrame):
    """Has what a source asks of a DataFrame. Like one of Spark it does not travel."""

    isStreaming = False

    def __new__(cls, *_arguments: Any) -> Self:
        return object.__new__(cls)

    def __init__(self, table: pa.Table, seed: int = 0) -> None:
        self.computed = 0
        self.table = table
        self._drawn = random.Random(seed)

    @property
    def schema(self) -> StructType:
        return from_arrow_schema(self.table.schema)

    @property
    def columns(self) -> list[str]:
        names: list[str] = self.table.column_names
        return names

    def toArrow(self) -> pa.Table:
        self.computed += 1
        order = list(range(self.table.num_rows))
        self._drawn.shuffle(order)
        return self.table.take(pa.array(order, pa.int64()))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DataFrame cannot be pickled")


def source_of_frame(
    table: pa.Table, *, splits: int = 1, timestamps: str | None = None, order_by: Sequence[str] = (), seed: int = 0
) -> FrameSource:
    """A source of these rows."""
    return spark_source(Frame(table, seed), splits=splits, timestamps=timestamps, order_by=order_by)


def readings(count: int, changed: Any = None) -> pa.Table:
    """Rows with an event time each; one row differs if ``changed`` is its number."""
    return pa.table(
        {
            "number": pa.array([-1 if number == changed else number for number in range(count)], pa.int64()),
            "at": pa.array([number * 10_000 - 25_000 for number in range(count)], pa.timestamp("us", "UTC")),
        }
    )


def numbers_of(into: CollectedResults) -> list[int]:
    return [record["number"] for record in into.records]
