"""Columnar batches: what a column may be, rows of them, and cutting them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.columns import (
    ColumnBatch,
    ColumnError,
    as_columns,
    checked_column,
    checked_columns,
    column_type,
    concatenated,
    positions_by_target,
)

FIELDS = {
    "whole": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(allow_nan=False),
    "flag": st.booleans(),
    "text": st.text(max_size=4),
    "raw": st.binary(max_size=4),
}
KEYS = st.sampled_from([FIELDS["whole"], FIELDS["flag"], FIELDS["text"], st.tuples(FIELDS["text"], FIELDS["whole"])])


@st.composite
def row_batches(draw: st.DrawFn, least: int = 1) -> Batch:
    """Dicts with the same fields, with or without event times and keys."""
    names = draw(st.lists(st.sampled_from(list(FIELDS)), max_size=5, unique=True))
    count = draw(st.integers(least, 12))

    def column(items: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(items, min_size=count, max_size=count))

    columns = {name: column(FIELDS[name]) for name in names}
    rows = [{name: columns[name][index] for name in names} for index in range(count)]
    stamps = column(FIELDS["whole"]) if draw(st.booleans()) else None
    keys = column(draw(KEYS)) if draw(st.booleans()) else None
    return Batch(rows, stamps, keys)


def plain(batch: Batch) -> tuple[str, str, str]:
    """Everything of a batch, types included."""
    return repr(batch.values), repr(batch.timestamps), repr(batch.keys)


@given(row_batches())
def test_rows_become_columns_and_come_back(batch: Batch) -> None:
    """Values, order of fields, event times and keys, with their types."""
    columns = as_columns(batch)

    assert type(columns) is ColumnBatch
    assert len(columns) == len(batch)
    assert plain(columns) == plain(batch)
    assert columns == batch
    assert as_columns(columns) is columns


@given(row_batches(least=2), st.data())
def test_columns_are_cut_like_rows(batch: Batch, data: st.DataObject) -> None:
    """Split at any record, and taken by position: what the same rows give."""
    columns, at = as_columns(batch), data.draw(st.integers(1, len(batch) - 1))
    positions = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=15))
    every = range(data.draw(st.integers(0, len(batch) - 1)), len(batch), data.draw(st.integers(1, 4)))

    assert list(map(plain, columns.split(at))) == list(map(plain, batch.split(at)))
    assert plain(columns.take(every)) == plain(batch.take(every))
    taken, expected = columns.take(positions), batch.take(positions)
    assert len(taken) == len(positions)
    assert taken.values == expected.values
    assert (taken.keys or None, taken.timestamps or None) == (expected.keys or None, expected.timestamps or None)


@settings(max_examples=50)
@given(row_batches(least=2), st.booleans())
def test_pieces_are_joined_again(batch: Batch, with_times: bool) -> None:
    """Whatever a batch was cut into; event times stay only when all pieces have them."""
    columns = ColumnBatch(as_columns(batch).columns, len(batch), np.arange(len(batch)) if with_times else None)
    first, rest = columns.split(1)
    assert isinstance(first, ColumnBatch)
    assert isinstance(rest, ColumnBatch)
    assert plain(concatenated([first, rest])) == plain(columns)

    assert concatenated([ColumnBatch(first.columns, 1), rest]).timestamps is None


@given(st.lists(st.integers(0, 5), max_size=30))
def test_positions_by_target(targets: list[int]) -> None:
    """For each target its positions in order, in the order of the targets."""
    expected = {target: [at for at, one in enumerate(targets) if one == target] for target in sorted(set(targets))}

    assert {target: positions.tolist() for target, positions in positions_by_target(targets, 6)} == expected


@pytest.mark.parametrize(
    ("given_", "kind", "values"),
    [
        (np.array([1, -2], dtype=np.int8), "BIGINT", [1, -2]),
        (np.array([1, 2], dtype=np.uint32), "BIGINT", [1, 2]),
        (np.array([1, 2], dtype=np.uint64), "BIGINT", [1, 2]),
        (np.array([1, 2], dtype=">i8"), "BIGINT", [1, 2]),
        (np.array([0.5], dtype=np.float32), "DOUBLE", [0.5]),
        (np.array([0.5], dtype=">f8"), "DOUBLE", [0.5]),
        (np.array([True, False]), "BOOLEAN", [True, False]),
        (np.array(["a", "bé"]), "STRING", ["a", "bé"]),
        (np.array(["a", "b\x00"], dtype=object), "STRING", ["a", "b\x00"]),
        (np.array([b"a"], dtype=object), "BYTES", [b"a"]),
        (np.array([1, 2], dtype=object), "BIGINT", [1, 2]),
        (np.arange(6)[::2], "BIGINT", [0, 2, 4]),
        ([1, 2], "BIGINT", [1, 2]),
        ((1.5,), "DOUBLE", [1.5]),
        (["\ud800"], "STRING", ["\ud800"]),
        ([], "STRING", []),
    ],
)
def test_what_becomes_a_column(given_: Any, kind: str, values: list[Any]) -> None:
    """Arrays and lists of what a column holds, brought to one of five types without losing anything."""
    column = checked_column("x", given_)

    assert column_type(column) == kind
    assert repr(column.tolist()) == repr(values)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (np.array([2**63], dtype=np.uint64), "integers beyond 64 bits"),
        (np.array([1], dtype="datetime64[s]"), "datetime64.* dates for instance to whole ms"),
        (np.array([1 + 2j]), "complex128 items"),
        (np.array([b"a"]), r"\|S1 items"),
        (np.zeros((2, 2)), "2 dimensions"),
        (np.ma.masked_array([1, 2], [True, False]), "masked array"),
        (np.array([1, None], dtype=object), "1 of type int and None of type NoneType"),
        ([None], "None of type NoneType.*no nulls"),
        ([1, 2.0], "1 of type int and 2.0 of type float; a column has one type"),
        ([True, 1], "True of type bool and 1 of type int"),
        ([2**63], "9223372036854775808, which does not fit 64 bits"),
        ([(1, 2)], "of type tuple; a column holds int"),
        (np.longdouble([1.5]), "float128 items|longdouble items"),
        (5, "is a int, not an array or a list"),
    ],
)
def test_what_becomes_no_column(given_: Any, message: str) -> None:
    """Whatever would lose something, or is no column at all, is refused by name and reason."""
    with pytest.raises(ColumnError, match=f"column 'x' .*({message})"):
        checked_column("x", given_)


def test_arrow_becomes_columns() -> None:
    """Tables, record batches and (chunked) arrays of pyarrow; nulls are refused."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"n": pa.chunked_array([[1], [2, 3]]), "s": ["a", "b", "c"], "f": [True, False, True]})
    columns, count = checked_columns(table)

    assert count == 3
    assert ColumnBatch(columns, count).values[2] == {"n": 3, "s": "c", "f": True}
    assert checked_columns(table.to_batches()[0])[0]["n"].tolist() == [1]
    with pytest.raises(ColumnError, match="column 'n' holds nulls"):
        checked_columns(pa.table({"n": [1, None]}))


def test_columns_must_be_of_one_length() -> None:
    """And be given by name."""
    assert checked_columns({}, 5) == ({}, 5)
    with pytest.raises(ColumnError, match="column 'b' has 1 records where there are 2"):
        checked_columns({"a": [1, 2], "b": [1]})
    with pytest.raises(ColumnError, match="column 'a' has 2 records where there are 3"):
        checked_columns({"a": [1, 2]}, 3)
    with pytest.raises(ColumnError, match="a dict from names to arrays, got list"):
        checked_columns([[1, 2]])
    with pytest.raises(ColumnError, match="the name of a column is a str, got 1"):
        checked_columns({1: [1]})


def test_columns_are_read_only() -> None:
    """Operators share them: whoever writes into one is stopped. The array that was given stays writable."""
    mine = np.array([1, 2])
    column = checked_column("x", mine)

    with pytest.raises(ValueError, match="read-only"):
        column[0] = 5
    mine[0] = 7
    assert column.tolist() == [7, 2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 2)], "is a tuple, and columns are made of dicts"),
        ([{"a": 1}, {"b": 1}], "{'b': 1} has other fields than the first one: a"),
        ([{"a": 1}, {"a": 1, "b": 1}], "has other fields"),
        ([{"a": 1}, 5], "record 5 has other fields"),
        ([{"a": 1}, {"a": "x"}], "1 of type int and 'x' of type str"),
    ],
)
def test_rows_that_are_no_columns(rows: list[Any], message: str) -> None:
    """Only dicts with the same fields, each of one type, are columns."""
    with pytest.raises(ColumnError, match=message):
        as_columns(Batch(rows))


def test_rows_are_made_once() -> None:
    """Whoever asks again gets the same list."""
    columns = ColumnBatch({"a": np.array([1, 2])}, 2, np.array([5, 6]), np.array([7, 8]))

    assert columns.values is columns.values
    assert columns.timestamps is columns.timestamps
    assert columns.keys is columns.keys
    assert repr(columns) == "ColumnBatch(2 records, columns a)"


def test_records_without_fields_are_records() -> None:
    """A batch may have no column, and still has a length."""
    columns = ColumnBatch({}, 3)

    assert len(columns) == 3
    assert columns.values == [{}, {}, {}]
    assert len(columns.split(1)[1]) == 2
    assert len(columns.take([0, 2])) == 2


def test_a_copy_of_a_batch_has_the_same_records() -> None:
    """An exhaustive check copies batches in flight."""
    batch = ColumnBatch({"v": np.array([1, 2])}, 2, np.array([10, 20]), np.array([7, 8]))
    found = pickle.loads(pickle.dumps(batch))
    assert (found.values, found.timestamps, found.keys) == (batch.values, [10, 20], [7, 8])
