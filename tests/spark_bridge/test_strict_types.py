"""A value enters a column of its own type or not at all. Needs Arrow, not Spark."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Any

import pyarrow as pa
import pytest

from spark_bridge.strict_types import first_misfit

DAY = datetime.date(2013, 1, 1)
MOMENT = datetime.datetime(2013, 1, 1, 5)
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])


class Color(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("arrow_type", "value"),
    [
        (pa.int64(), 1),
        (pa.int64(), Color.RED),
        (pa.float64(), 1.5),
        (pa.float64(), 1),
        (pa.string(), "a"),
        (pa.binary(), b"a"),
        (pa.bool_(), True),
        (pa.date32(), DAY),
        (pa.timestamp("us"), MOMENT),
        (pa.decimal128(5, 2), decimal.Decimal("1.25")),
        (pa.list_(pa.int64()), [1, None]),
        (pa.list_(pa.int64()), (1, 2)),
        (STRUCT, {"b": "x", "a": 1}),
        (pa.map_(pa.string(), pa.int64()), {"x": 1}),
    ],
    ids=str,
)
def test_right_types_enter(arrow_type: Any, value: Any) -> None:
    """A value of the column's type is welcome, and so is None."""
    assert first_misfit(arrow_type, [None, value, None]) is None


@pytest.mark.parametrize(
    ("arrow_type", "value", "reason"),
    [
        (pa.int64(), True, "bool is another type"),
        (pa.int64(), 1.0, "float is another type"),
        (pa.int64(), "1", "str is another type"),
        (pa.float64(), True, "bool is another type"),
        (pa.string(), b"a", "bytes is another type"),
        (pa.binary(), "a", "str is another type"),
        (pa.bool_(), 1, "int is another type"),
        (pa.date32(), MOMENT, "datetime is another type"),
        (pa.date32(), 5, "int is another type"),
        (pa.timestamp("us"), DAY, "date is another type"),
        (pa.timestamp("us"), 5, "int is another type"),
        (pa.decimal128(5, 2), 1.5, "float is another type"),
        (pa.list_(pa.int64()), [1, "x"], "element: str is another type"),
        (pa.list_(pa.int64()), "12", "an array is a list or a tuple"),
        (STRUCT, {"a": 1, "b": "x", "c": 2}, "a struct is a dict with the keys ['a', 'b']"),
        (STRUCT, {"a": 1}, "a struct is a dict with the keys ['a', 'b']"),
        (STRUCT, (1, "x"), "a struct is a dict with the keys ['a', 'b']"),
        (STRUCT, {"a": 1, "b": 2}, "field 'b': int is another type"),
        (pa.map_(pa.string(), pa.int64()), [("x", 1)], "a map is a dict"),
        (pa.map_(pa.string(), pa.int64()), {1: 1}, "key: int is another type"),
        (pa.map_(pa.string(), pa.int64()), {"x": 1.5}, "value: float is another type"),
        (pa.list_(pa.list_(pa.date32())), [[DAY], [MOMENT]], "element: element: datetime is another type"),
    ],
    ids=str,
)
def test_wrong_types_are_found_with_position_and_reason(arrow_type: Any, value: Any, reason: str) -> None:
    """A value of another type is found at its position, before Arrow can convert it silently."""
    good = {pa.int64(): 1}.get(arrow_type)

    assert first_misfit(arrow_type, [good, None, value, value]) == (2, reason)
