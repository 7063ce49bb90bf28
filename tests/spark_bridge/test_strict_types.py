"""A value enters a column of its own type or not at all. Needs Arrow, not Spark."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Any

import pyarrow as pa
import pytest

from spark_bridge.strict_types import cast_misfit, first_misfit

DAY = datetime.date(2013, 1, 1)
MOMENT = datetime.datetime(2013, 1, 1, 5)
INSTANT = MOMENT.replace(tzinfo=datetime.UTC)
WEST = datetime.timezone(datetime.timedelta(hours=-5))
ZONED = pa.timestamp("us", tz="UTC")
STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])


class Finer(datetime.datetime):
    """Like pandas' Timestamp: with digits below the microsecond."""

    nanosecond = 1


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
        (ZONED, INSTANT),
        (ZONED, MOMENT.replace(tzinfo=WEST)),
        (pa.duration("us"), datetime.timedelta(days=-1, microseconds=1)),
        (pa.float32(), 0.5),
        (pa.float32(), 2**24 + 1),
        (pa.float32(), float("nan")),
        (pa.float32(), float("-inf")),
        (pa.decimal128(5, 2), decimal.Decimal("1.25")),
        (pa.list_(pa.int64()), [1, None]),
        (pa.list_(pa.int64()), (1, 2)),
        (STRUCT, {"b": "x", "a": 1}),
        (pa.map_(pa.string(), pa.int64()), {"x": 1}),
    ],
    ids=str,
)
def test_right_types_enter(arrow_type: Any, value: Any) -> None:
    """A value of the column's type is accepted, and so is None."""
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
        (ZONED, MOMENT, "it has no time zone, so it is no instant; give it one, or declare timestamp_ntz"),
        (ZONED, Finer(2013, 1, 1, tzinfo=datetime.UTC), "it would lose its nanoseconds"),
        (ZONED, datetime.datetime.max.replace(tzinfo=WEST), "in UTC it is outside of the years 1 to 9999"),
        (pa.timestamp("us"), INSTANT, "timestamp_ntz would lose its time zone; declare timestamp"),
        (pa.timestamp("us"), Finer(2013, 1, 1), "it would lose its nanoseconds"),
        (pa.duration("us"), 5, "int is another type"),
        (pa.float32(), 0.1, "32 bits would make it 0.10000000149011612; a double keeps it"),
        (pa.float32(), 1e300, "32 bits would make it inf; a double keeps it"),
        (pa.float32(), 1e-46, "32 bits would make it 0.0; a double keeps it"),
        (pa.time64("us"), datetime.time(1), "time is another type"),
        (pa.decimal128(5, 2), 1.5, "float is another type"),
        (pa.list_(pa.int64()), [1, "x"], "element: str is another type"),
        (pa.list_(pa.int64()), "12", "an array is a list or a tuple"),
        (STRUCT, {"a": 1, "b": "x", "c": 2}, "a struct is a dict with the keys ['a', 'b']"),
        (STRUCT, {"a": 1}, "a struct is a dict with the keys ['a', 'b']"),
        (STRUCT, (1, "x"), "a struct is a dict with the keys ['a', 'b']"),
        (STRUCT, {"a": 1, "b": 2}, "field 'b': int is another type"),
        (pa.struct([pa.field("a", pa.int64(), nullable=False)]), {"a": None}, "field 'a': it is NOT NULL"),
        (pa.list_(ZONED), [INSTANT, MOMENT], "element: it has no time zone, so it is no instant; give it one, or "
         "declare timestamp_ntz"),
        (pa.map_(pa.float32(), pa.int64()), {0.1: 1}, "key: 32 bits would make it 0.10000000149011612; a double keeps "
         "it"),
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


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.int64(), pa.int32()),
        (pa.uint8(), pa.float64()),
        (pa.int64(), pa.decimal128(38, 2)),
        (pa.float32(), pa.float64()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.binary(3), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", tz="Asia/Tokyo"), ZONED),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.null(), STRUCT),
        (pa.large_list(pa.int8()), pa.list_(pa.int64())),
        (pa.map_(pa.large_string(), pa.int8()), pa.map_(pa.string(), pa.int64())),
        (STRUCT, STRUCT),
    ],
    ids=str,
)
def test_a_column_of_the_same_kind_is_cast(source: Any, target: Any) -> None:
    """Arrow columns may differ only in width and encoding; the cast checks the range of the values."""
    assert cast_misfit(source, target) is None


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (pa.string(), pa.int64(), "string is another type than int64"),
        (pa.int64(), pa.string(), "int64 is another type than string"),
        (pa.bool_(), pa.int64(), "bool is another type than int64"),
        (pa.float64(), pa.int64(), "double is another type than int64"),
        (pa.float64(), pa.float32(), "double does not fit float: 32 bits would round its values"),
        (pa.timestamp("us"), ZONED, "timestamp[us] is another type than timestamp[us, tz=UTC]"),
        (ZONED, pa.timestamp("us"), "timestamp[us, tz=UTC] is another type than timestamp[us]"),
        (pa.timestamp("us"), pa.date32(), "timestamp[us] is another type than date32[day]"),
        (pa.binary(), pa.string(), "binary is another type than string"),
        (pa.list_(pa.string()), pa.list_(pa.int64()), "string is another type than int64"),
        (pa.map_(pa.string(), pa.bool_()), pa.map_(pa.string(), pa.int64()), "bool is another type than int64"),
        (pa.struct([("a", pa.string())]), pa.struct([("a", pa.int64())]), "string is another type than int64"),
        (pa.struct([("b", pa.string())]), STRUCT, "struct<b: string> is another type than struct<a: int64, b: string>"),
        (pa.time64("us"), pa.time64("us"), "time64[us] is another type than time64[us]"),
    ],
    ids=str,
)
def test_a_column_of_another_kind_is_not_cast(source: Any, target: Any, reason: str) -> None:
    """Arrow would silently cast such values into others; the cast is refused with the reason."""
    assert cast_misfit(source, target) == reason
