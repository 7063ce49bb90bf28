"""Tables of results as Spark DataFrames."""

from __future__ import annotations

from typing import Any

from engine.report import ResultTable


def test_a_table_on_spark(spark: Any) -> None:
    """The same rows; what is missing is null."""
    table = ResultTable("rows", ("name", "size"), [("a", 2), ("b", None)])

    assert [tuple(row) for row in table.to_spark().collect()] == [("a", 2), ("b", None)]
