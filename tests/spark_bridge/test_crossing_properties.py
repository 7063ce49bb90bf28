"""Any value either comes back from the crossing unchanged, or is refused with its row: never another value."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

from spark_bridge.canonical import python_rows
from spark_bridge.crossing import RowSchema, arrow_table, collect_canonical, rows_on_spark
from spark_bridge.errors import RowMisfitError

ZONES = st.sampled_from([datetime.UTC, datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))])

# DDL, Arrow type, and values that are of the type and in its range: all of them must get through.
SCALARS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "tinyint": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32) | st.integers(-(2**24), 2**24)),
    "double": (pa.float64(), st.floats() | st.integers(-(2**53), 2**53)),
    "decimal(12,3)": (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3) | st.integers(-9, 9)),
    "string": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30), timezones=ZONES),
    ),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes()),
    "interval day to second": (
        pa.duration("us"),
        st.timedeltas(datetime.timedelta(-(10**8)), datetime.timedelta(10**8)),
    ),
}
KEYS = ("boolean", "int", "double", "decimal(12,3)", "string", "binary", "date", "timestamp", "timestamp_ntz")

Typed = tuple[str, pa.DataType, st.SearchStrategy[Any]]


def _or_none(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def _array_of(element: Typed) -> Typed:
    ddl, kind, values = element
    lists = st.lists(_or_none(values), max_size=3)
    return f"array<{ddl}>", pa.list_(kind), lists | lists.map(tuple)


def _struct_of(left: Typed, right: Typed) -> Typed:
    kind = pa.struct([("left", left[1]), ("right", right[1])])
    values = st.fixed_dictionaries({"left": _or_none(left[2]), "right": _or_none(right[2])})
    return f"struct<left: {left[0]}, right: {right[0]}>", kind, values


def _map_of(key: str, value: Typed) -> Typed:
    kind, keys = SCALARS[key]
    values = st.dictionaries(keys, _or_none(value[2]), max_size=3)
    return f"map<{key}, {value[0]}>", pa.map_(kind, value[1]), values


scalars = st.sampled_from(sorted(SCALARS)).map(lambda ddl: (ddl, *SCALARS[ddl]))
types: st.SearchStrategy[Typed] = st.recursive(
    scalars,
    lambda inner: (
        inner.map(_array_of) | st.builds(_struct_of, inner, inner) | st.builds(_map_of, st.sampled_from(KEYS), inner)
    ),
    max_leaves=3,
)
anything = st.recursive(
    st.none() | st.one_of([values for _, values in SCALARS.values()]) | st.text() | st.decimals() | st.times(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=1), inner, max_size=2),
    max_leaves=3,
)


def is_kept(sent: Any, returned: Any) -> bool:
    """Whether this is the same value, in the plain type of its column."""
    if isinstance(sent, float | int) and not isinstance(sent, bool) and isinstance(returned, float):
        if math.isnan(sent) or math.isnan(returned):
            return math.isnan(sent) and math.isnan(returned)
        return sent == returned and (isinstance(sent, int) or math.copysign(1, sent) == math.copysign(1, returned))
    if isinstance(sent, list | tuple):
        return isinstance(returned, list) and len(sent) == len(returned) and all(map(is_kept, sent, returned))
    if isinstance(sent, dict):
        if not isinstance(returned, dict) or len(sent) != len(returned):
            return False
        left = list(returned.items())
        for key, value in sent.items():
            same = [one for one in left if is_kept(key, one[0])]
            if not any(is_kept(value, one[1]) for one in same):
                return False
        return True
    if isinstance(sent, datetime.datetime):
        return type(returned) is datetime.datetime and sent == returned and returned.tzinfo in (None, datetime.UTC)
    if isinstance(sent, decimal.Decimal | int) and isinstance(returned, decimal.Decimal):
        return not isinstance(sent, bool) and sent == returned
    return type(sent) is type(returned) and bool(sent == returned)


def there_and_back(values: list[Any], ddl: str, kind: pa.DataType) -> list[Any]:
    """Into Arrow and out of it: all of the crossing but Spark itself."""
    schema = RowSchema(f"x {ddl}", None, pa.schema([("x", kind)]))
    return [row["x"] for row in python_rows(arrow_table([(value,) for value in values], schema))]


@settings(max_examples=50)
@given(st.data())
def test_values_of_the_type_are_kept(data: st.DataObject) -> None:
    """Each value of a type comes back as it went, whatever the type is made of."""
    ddl, kind, values = data.draw(types)
    sent = data.draw(st.lists(_or_none(values), max_size=4))

    returned = there_and_back(sent, ddl, kind)

    assert len(sent) == len(returned)
    assert [(one, back) for one, back in zip(sent, returned, strict=True) if not is_kept(one, back)] == []


@pytest.mark.parametrize("ddl", SCALARS)
@settings(max_examples=40)
@given(anything)
@example(0.1)
@example(1e300)
@example(datetime.datetime(2013, 1, 1, 5))
@example(datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC))
@example(datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-1))))
def test_any_other_value_is_kept_or_refused(ddl: str, value: Any) -> None:
    """A value that was not made for the type is refused with its row if it would change, also inside an array."""
    kind, _ = SCALARS[ddl]
    for sent, column in ((value, (ddl, kind)), ([value], (f"array<{ddl}>", pa.list_(kind)))):
        returned, refused = [], None
        try:
            returned = there_and_back([None, sent], *column)
        except RowMisfitError as error:
            refused = error.row

        assert refused == 1 or is_kept(sent, returned[1]), returned


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("threshold", [1_000_000, 0], ids=["arrow", "parquet"])
@settings(max_examples=20)
@given(data=st.data())
def test_spark_keeps_them_too(spark: Any, threshold: int, data: st.DataObject) -> None:
    """Through Spark itself, by either way, rows of several columns come back as they went."""
    columns = data.draw(st.lists(types, min_size=1, max_size=4))
    ddl = ", ".join(["id int", *(f"c{number} {kind[0]}" for number, kind in enumerate(columns))])
    rows = data.draw(st.lists(st.tuples(*(_or_none(kind[2]) for kind in columns)), max_size=8))

    with rows_on_spark(
        [(number, *row) for number, row in enumerate(rows)], ddl, parquet_threshold_rows=threshold
    ) as frame:
        returned = [tuple(row.values())[1:] for row in collect_canonical(frame)]

    assert len(returned) == len(rows)
    assert [(sent, back) for sent, back in zip(rows, returned, strict=True) if not is_kept(sent, list(back))] == []
