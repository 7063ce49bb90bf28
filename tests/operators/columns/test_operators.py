"""Each columnar operator alone: its results, its inputs, and its errors for inputs that it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch, as_columns
from engine.elements.errors import ConfigurationError, JobGraphError, UserFunctionError
from engine.elements.operator import Operator
from engine.graph.job import Job
from operators.columns import (
    ColumnAggregate,
    ColumnAggregateOperator,
    ColumnSource,
    FilterColumnsOperator,
    MapColumnsOperator,
    ToColumnsOperator,
    ToRowsOperator,
    max_of,
    min_of,
    record_count,
    sum_of,
)
from state_backends.base import LONG
from state_backends.columns import MAX_RECORDS
from tests.operators.harness import Harness


def after(operator: Operator, batch: Batch) -> list[Any]:
    harness = Harness(operator)
    operator.process_batch(batch)
    return harness.take()


def columns(**fields: list[Any]) -> ColumnBatch:
    """A batch of columns with event times 0, 1, 2 .."""
    rows = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
    return as_columns(Batch(rows, list(range(len(rows)))))


def test_map_columns_gives_the_columns_that_are_returned() -> None:
    """The result has exactly the returned columns; event times stay, keys are dropped."""
    operator = MapColumnsOperator(lambda c: {"sum": c["a"] + c["b"], "b": c["b"]})
    (out,) = after(operator, columns(a=[1, 2], b=[10, 20]).with_keys(np.array([5, 5])))

    assert isinstance(out, ColumnBatch)
    assert (out.values, out.timestamps, out.keys) == ([{"sum": 11, "b": 10}, {"sum": 22, "b": 20}], [0, 1], None)


def test_a_function_cannot_change_what_others_see() -> None:
    """Columns are shared: writing into one fails, adding a name to the dict changes only the copy."""

    def in_place(c: dict[str, Any]) -> dict[str, Any]:
        c["a"] *= 2
        return c

    def new_name(c: dict[str, Any]) -> dict[str, Any]:
        c["b"] = c["a"]
        return c

    batch = columns(a=[1, 2])
    with pytest.raises(UserFunctionError, match="read-only"):
        after(MapColumnsOperator(in_place), batch)
    after(MapColumnsOperator(new_name), batch)
    after(FilterColumnsOperator(lambda c: new_name(c)["a"] > 0), batch)
    assert list(batch.columns) == ["a"]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"a": np.array([1])}, "column 'a' has 1 records where there are 2"),
        (None, "a dict from names to arrays, got NoneType"),
        ({"a": np.array([1j, 2j])}, "complex128"),
        ({"a": 5}, "column 'a' is a int"),
    ],
)
def test_what_map_columns_refuses(returned: Any, message: str) -> None:
    """The error names the operator, the reason and a record of the batch."""
    with pytest.raises(UserFunctionError, match=f"map_columns function of operator 'op'.*{message}") as refused:
        after(MapColumnsOperator(lambda c: returned), columns(a=[7, 8]))
    assert "{'a': 7}, the first of a batch of 2" in str(refused.value)


def test_filter_columns_keeps_what_is_true() -> None:
    """Event times stay. If all records are kept the batch itself is passed on; if none are, nothing is emitted."""
    batch = columns(a=[1, 2, 3])
    (out,) = after(FilterColumnsOperator(lambda c: c["a"] != 2), batch)

    assert (out.values, out.timestamps) == ([{"a": 1}, {"a": 3}], [0, 2])
    assert after(FilterColumnsOperator(lambda c: c["a"] > 0), batch)[0] is batch
    assert after(FilterColumnsOperator(lambda c: c["a"] > 5), batch) == []


@pytest.mark.parametrize("mask", [[True], [0, 1], None, np.array([[True], [False]]), np.array([1, 0])])
def test_what_filter_columns_refuses(mask: Any) -> None:
    """Anything but one bool for each record."""
    with pytest.raises(UserFunctionError, match="filter returns 2 bools, one for each record"):
        after(FilterColumnsOperator(lambda c: mask), columns(a=[1, 2]))


@pytest.mark.parametrize(
    "operator",
    [
        MapColumnsOperator(dict),
        FilterColumnsOperator(lambda c: c["a"] > 0),
        ToColumnsOperator({}),
        ToRowsOperator(()),
        ColumnAggregateOperator({"a": sum_of("a")}, ("reduced",)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_batches_without_records_go_nowhere(operator: Operator) -> None:
    """In either form."""
    assert after(operator, Batch([])) == []
    assert after(operator, ColumnBatch({}, 0)) == []


def test_rows_that_are_no_dicts_are_told_what_to_do() -> None:
    """A columnar operator that reads rows accepts only dicts."""
    with pytest.raises(UserFunctionError, match=r"columns are made of dicts(.|\n)*put .to_columns\(...\) before"):
        after(MapColumnsOperator(dict), Batch([(1, 2)]))


@pytest.mark.parametrize(
    ("fields", "rows", "expected"),
    [
        ({"a": None, "b": None}, [(1, "x"), (2, "y")], [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
        ({"a": None}, [5, 6], [{"a": 5}, {"a": 6}]),
        ({"a": None}, ["xy", "z"], [{"a": "xy"}, {"a": "z"}]),
        ({"b": None}, [{"a": 1, "b": 2}], [{"b": 2}]),
        ({"a": "DOUBLE"}, [1, 2.5], [{"a": 1.0}, {"a": 2.5}]),
        ({"a": "BIGINT", "b": "BYTES"}, [[1, b"x"]], [{"a": 1, "b": b"x"}]),
        ({}, [{"a": 1}], [{"a": 1}]),
    ],
)
def test_to_columns_takes_any_rows(fields: dict[str, Any], rows: list[Any], expected: list[Any]) -> None:
    """Tuples, lists, dicts and plain values, with their event times."""
    (out,) = after(ToColumnsOperator(fields), Batch(rows, list(range(len(rows)))))

    assert isinstance(out, ColumnBatch)
    assert repr(out.values) == repr(expected)
    assert out.timestamps == list(range(len(rows)))


def test_to_columns_takes_columns() -> None:
    """It chooses some of them, and makes floats of ints where that is declared."""
    batch = columns(a=[1, 2], b=["x", "y"], c=[True, False])
    (out,) = after(ToColumnsOperator({"c": None, "a": "DOUBLE"}), batch)
    (same,) = after(ToColumnsOperator({}), batch.with_keys(np.array([1, 2])))

    assert repr(out.values) == "[{'c': True, 'a': 1.0}, {'c': False, 'a': 2.0}]"
    assert out.timestamps == [0, 1]
    assert (same.values, same.keys) == (batch.values, None)


@pytest.mark.parametrize(
    ("fields", "rows", "message"),
    [
        ({"a": None}, [(1, 2)], "records have 2 items where 1 are named: a"),
        ({"a": None, "b": None}, [5], "a int is one item, and 2 are named"),
        ({"a": None, "b": None}, [(1, 2), (1,)], "records are of different length"),
        ({"a": None, "b": None}, [(1, 2), 7], "records are of different length"),
        ({"a": None}, [{"a": 1}, {"b": 2}], "some record has no field 'a'"),
        ({"a": "BIGINT"}, [1.5], r"column 'a' is declared BIGINT \(int\) and has DOUBLE"),
        ({"a": "STRING"}, [b"x"], r"declared STRING \(str\) and has BYTES"),
        ({"a": "DOUBLE"}, [True], "declared DOUBLE"),
        ({"a": None}, [1, "x"], "1 of type int and 'x' of type str"),
    ],
)
def test_what_to_columns_refuses(fields: dict[str, Any], rows: list[Any], message: str) -> None:
    """The rows do not fit the declaration."""
    with pytest.raises(UserFunctionError, match=message):
        after(ToColumnsOperator(fields), Batch(rows))


def test_to_rows() -> None:
    """Dicts, the values of one field, or tuples of several; from columns and from dicts; keys are gone."""
    for batch in (columns(a=[1, 2], b=["x", "y"]), Batch([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], [0, 1])):
        for fields, expected in (
            ((), [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
            (("a",), [1, 2]),
            (("b", "a"), [("x", 1), ("y", 2)]),
        ):
            (out,) = after(ToRowsOperator(fields), batch)
            assert (type(out), out.values, out.timestamps) == (Batch, expected, [0, 1])
        with pytest.raises(UserFunctionError, match="'c'"):
            after(ToRowsOperator(("c",)), batch)


def keyed(harness: Harness, keys: list[int], **fields: list[Any]) -> list[Any]:
    """The records that come out for a batch with keys."""
    harness.operator.process_batch(columns(**fields).with_keys(np.array(keys)))
    return harness.take_values()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), min_size=1, max_size=30), st.integers(1, 30))
def test_aggregates_of_each_record(records: list[tuple[int, int]], cut: int) -> None:
    """Several at once, each in a state and a column of its own, over several batches, next to the fields."""
    aggregates = {"total": sum_of("v"), "least": min_of("v"), "v2": max_of("v"), "n": record_count()}
    harness = Harness(ColumnAggregateOperator(aggregates, tuple(aggregates)), key_type=LONG)
    out: list[Any] = []
    for part in (records[:cut], records[cut:]):
        if part:
            out += keyed(harness, [key for key, _ in part], v=[value for _, value in part])
    seen: dict[int, list[int]] = {}
    for (key, value), row in zip(records, out, strict=True):
        values = seen.setdefault(key, [])
        values.append(value)
        assert row == {"v": value, "total": sum(values), "least": min(values), "v2": max(values), "n": len(values)}
    assert harness.context.keyed.state_names() == sorted(aggregates)


def test_an_aggregate_may_take_the_place_of_its_column() -> None:
    """The field keeps its place. A column of doubles is summed as doubles."""
    harness = Harness(ColumnAggregateOperator({"v": sum_of("v")}, ("reduced",)), key_type=LONG)

    assert repr(keyed(harness, [1, 1], v=[0.5, 1.0], w=["x", "y"])) == "[{'v': 0.5, 'w': 'x'}, {'v': 1.5, 'w': 'y'}]"


def test_a_batch_larger_than_what_is_folded_at_once() -> None:
    """It is folded part by part."""
    count = 2 * MAX_RECORDS + 3
    harness = Harness(ColumnAggregateOperator({"n": record_count()}, ("reduced",)), key_type=LONG)
    batch = ColumnBatch({"v": np.zeros(count)}, count, None, np.arange(count) % 2)
    harness.operator.process_batch(batch)
    (out,) = harness.take()

    assert out.columns["n"].tolist() == (np.arange(count) // 2 + 1).tolist()


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (sum_of("w"), "there is no column 'w'; there are v, s"),
        (sum_of("s"), "column 's' is STRING, neither BIGINT nor DOUBLE"),
    ],
)
def test_what_cannot_be_aggregated(aggregate: ColumnAggregate, message: str) -> None:
    """The column does not exist, or does not contain numbers."""
    harness = Harness(ColumnAggregateOperator({"x": aggregate}, ("reduced",)), key_type=LONG)
    with pytest.raises(UserFunctionError, match=f"(sum|min) of column.*{message}"):
        keyed(harness, [1], v=[1], s=["x"])


def test_calls_that_make_no_sense_are_refused_at_once() -> None:
    """They are refused when the job is built, not when it runs."""
    stream = Job("j").source(ColumnSource({"k": [1], "v": [2]}))
    with pytest.raises(JobGraphError, match="map_columns"):
        stream.map_columns(5)  # type: ignore[arg-type]
    with pytest.raises(JobGraphError, match="filter_columns"):
        stream.filter_columns("v > 5")  # type: ignore[arg-type]
    with pytest.raises(JobGraphError, match="to_rows: the name of a column is a str that is not empty, got ''"):
        stream.to_rows("")
    with pytest.raises(ConfigurationError, match="'v' is declared 'INT'; a column is one of BIGINT, DOUBLE"):
        stream.to_columns("k", types={"v": "INT"})
    keyed_stream = stream.key_by_column("k")
    with pytest.raises(JobGraphError, match="sum_column: the name of a column"):
        keyed_stream.sum_column(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="nothing to aggregate"):
        keyed_stream.aggregate_columns({})
    with pytest.raises(ConfigurationError, match="'n': 'sum' is no aggregate"):
        keyed_stream.aggregate_columns({"n": "sum"})  # type: ignore[dict-item]
