"""A DataFrame without Spark: its schema, and its rows as Arrow, in an order that may differ from time to time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from operators.basic import CollectedResults
from spark_bridge.frames import FrameSource


class Frame:
    """Has what a source asks of a DataFrame."""

    def __init__(self, table: pa.Table, seed: int = 0) -> None:
        self.schema = from_arrow_schema(table.schema)
        self.columns = table.column_names
        self.computed = 0
        self._table = table
        self._drawn = random.Random(seed)

    def toArrow(self) -> pa.Table:
        self.computed += 1
        order = list(range(self._table.num_rows))
        self._drawn.shuffle(order)
        return self._table.take(pa.array(order, pa.int64()))


def source_of_frame(
    table: pa.Table, *, splits: int = 1, timestamps: str | None = None, order_by: Sequence[str] = (), seed: int = 0
) -> FrameSource:
    """What ``spark_source`` makes of a DataFrame with these rows."""
    return FrameSource(Frame(table, seed), splits, timestamps, order_by)


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
