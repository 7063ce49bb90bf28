"""Canonical order is one total order over all values, whatever order the rows came in. Needs Arrow, not Spark."""

from __future__ import annotations

import datetime
import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from spark_bridge.canonical import _sorted_positions, python_rows, sort_canonically

NAN = float("nan")
OTHER_NAN: float = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

FLAT_SCHEMA = pa.schema([("number", pa.int64()), ("ratio", pa.float64()), ("name", pa.string()), ("flag", pa.bool_())])
flat_rows = st.tuples(
    st.one_of(st.none(), st.integers(-2, 2)),
    st.sampled_from([None, NAN, OTHER_NAN, -0.0, 0.0, 1.5, -math.inf, math.inf]),
    st.sampled_from([None, "", "a", "B", "é", "\U0001f600", "\uffff"]),
    st.sampled_from([None, False, True]),
)
NESTED_SCHEMA = pa.schema(
    [
        ("pair", pa.struct([("left", pa.int64()), ("right", pa.float64())])),
        ("list", pa.list_(pa.float64())),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
floats = st.sampled_from([None, NAN, -0.0, 0.0, 2.5])
nested_rows = st.tuples(
    st.one_of(st.none(), st.fixed_dictionaries({"left": st.sampled_from([None, 1, 2]), "right": floats})),
    st.one_of(st.none(), st.lists(floats, max_size=2)),
    st.one_of(st.none(), st.dictionaries(st.sampled_from("abc"), st.sampled_from([None, 1, 2]), max_size=2)),
)


def table_of(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema)


def exact(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as text that shows -0.0 and 0.0, and the order of dict entries."""
    return [repr(row) for row in rows]


def shuffled_pairs(rows: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(rows, max_size=12).flatmap(lambda drawn: st.tuples(st.just(drawn), st.permutations(drawn)))


@given(shuffled_pairs(flat_rows))
def test_flat_rows_come_in_one_order(pair: tuple[list[Any], list[Any]]) -> None:
    """Any permutation of the same flat rows gives the same bytes, nan payloads and signs of zero included."""
    tables = [sort_canonically(table_of(rows, FLAT_SCHEMA)) for rows in pair]
    bits = [table["ratio"].combine_chunks().view(pa.int64()).to_pylist() for table in tables]

    assert exact(python_rows(tables[0])) == exact(python_rows(tables[1]))
    assert bits[0] == bits[1]


@given(shuffled_pairs(nested_rows))
def test_nested_rows_come_in_one_order(pair: tuple[list[Any], list[Any]]) -> None:
    """Any permutation of the same nested rows gives the same rows in the same order."""
    one, other = (python_rows(sort_canonically(table_of(rows, NESTED_SCHEMA))) for rows in pair)

    assert exact(one) == exact(other)


@given(st.lists(flat_rows, max_size=12))
def test_both_sorts_are_the_same_order(rows: list[Any]) -> None:
    """Arrow's sort of flat rows and the Python sort used for nested ones are one and the same order."""
    table = table_of(rows, FLAT_SCHEMA)

    assert exact(python_rows(sort_canonically(table))) == exact(python_rows(table.take(_sorted_positions(table))))


def test_order_of_special_values() -> None:
    """Numbers by value, the negative zero first, then nan, then None."""
    table = pa.table({"x": pa.array([None, NAN, math.inf, 0.0, -0.0, -1.0], type=pa.float64())})

    ordered = [row["x"] for row in python_rows(sort_canonically(table))]

    assert repr(ordered) == "[-1.0, -0.0, 0.0, inf, nan, None]"


def test_text_is_ordered_by_code_point() -> None:
    """Locales do not matter: capitals before small letters, everything else by code point."""
    table = pa.table({"x": ["é", "a", "Z", "\U0001f600", "\uffff", ""]})

    assert [row["x"] for row in python_rows(sort_canonically(table))] == ["", "Z", "a", "é", "\uffff", "\U0001f600"]


def test_first_column_decides_first() -> None:
    """Rows are compared column by column from the left."""
    table = pa.table({"a": [2, 1, 1], "b": [0, 9, 3]})

    assert [tuple(row.values()) for row in python_rows(sort_canonically(table))] == [(1, 3), (1, 9), (2, 0)]


def test_maps_are_dicts_in_the_order_of_their_keys() -> None:
    """A map's entries come in key order, whatever order Spark built them in."""
    column = pa.array([[("b", 2), ("a", 1)]], type=pa.map_(pa.string(), pa.int64()))

    (row,) = python_rows(pa.table({"m": column}))

    assert list(row["m"].items()) == [("a", 1), ("b", 2)]


def test_timestamps_are_utc_also_inside_other_values() -> None:
    """A timestamp with a zone becomes a datetime in `datetime.UTC`, at top level and in lists, structs and maps."""
    moment = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    zoned = pa.timestamp("us", tz="America/New_York")
    table = pa.table(
        {
            "plain": pa.array([moment], type=zoned),
            "list": pa.array([[moment, None]], type=pa.list_(zoned)),
            "struct": pa.array([{"t": moment}], type=pa.struct([("t", zoned)])),
            "map": pa.array([[(1, moment)]], type=pa.map_(pa.int64(), zoned)),
            "naive": pa.array([moment.replace(tzinfo=None)], type=pa.timestamp("us")),
        }
    )

    (row,) = python_rows(table)

    assert row == {
        "plain": moment,
        "list": [moment, None],
        "struct": {"t": moment},
        "map": {1: moment},
        "naive": moment.replace(tzinfo=None),
    }
    found = [row["plain"], row["list"][0], row["struct"]["t"], row["map"][1]]
    assert all(value.tzinfo is datetime.UTC for value in found)


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_with_nothing_to_sort(rows: int) -> None:
    """No rows and one row are in order."""
    table = pa.table({"x": pa.array([7][:rows], type=pa.int64())})

    assert python_rows(sort_canonically(table)) == [{"x": 7}][:rows]
