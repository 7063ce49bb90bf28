"""Hash partitioning of columns: every record goes where it would go as a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch, as_columns
from engine.elements.errors import JobGraphError, KeyTypeMismatchError, UserFunctionError
from engine.graph.column_partitioner import by_columns
from engine.graph.job import Job
from engine.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
    Router,
    RouterContext,
)
from operators.columns import ColumnSource
from state_backends.base import BOOL, INT, LONG, STRING, KeyType

FIELDS = {"n": st.integers(-(2**31), 2**31 - 1), "s": st.text("aé\U0001f600", max_size=3), "b": st.booleans()}


def router(partitioner: Partitioner, channels: int) -> Router:
    return partitioner.router(RouterContext("op", 0, 1, channels, 128))


def parts(routed: list[tuple[int, Batch]]) -> list[tuple[Any, ...]]:
    return [(channel, repr(part.values), part.timestamps, repr(part.keys)) for channel, part in routed]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Dicts with three fields, with event times or without."""
    count = draw(st.integers(1, 12))
    rows = [{name: draw(values) for name, values in FIELDS.items()} for _ in range(count)]
    return Batch(rows, list(range(count)) if draw(st.booleans()) else None)


@pytest.mark.parametrize(
    ("fields", "key_type"),
    [(("n",), None), (("n",), INT), (("s",), STRING), (("b",), BOOL), (("n", "s"), None), (("b", "n", "s"), None)],
    ids=str,
)
def test_records_go_where_they_go_as_rows(fields: tuple[str, ...], key_type: KeyType | None) -> None:
    """Keys of every type, in one column or several, are the keys that rows get; rows are accepted as well."""

    @settings(max_examples=40)
    @given(st.lists(batches(), min_size=1, max_size=3), st.integers(1, 5))
    def check(stream: list[Batch], channels: int) -> None:
        partitioner = by_columns(fields, key_type)
        columnar, rows = router(partitioner, channels), router(partitioner, channels)
        plain = router(HashPartitioner(partitioner.key, None, key_type), channels)
        for batch in stream:
            expected = parts(plain.route(batch))
            routed = columnar.route(as_columns(batch))
            assert parts(routed) == expected
            assert all(isinstance(part, ColumnBatch) for _, part in routed)
            assert parts(rows.route(batch)) == expected

    check()


@pytest.mark.parametrize(
    "partitioner",
    [
        RebalancePartitioner(),
        BroadcastPartitioner(),
        GlobalPartitioner(),
        CustomPartitioner(lambda row, channels: row["n"] % channels),
    ],
    ids=lambda one: one.name,
)
def test_other_partitioners_spread_columns_like_rows(partitioner: Partitioner) -> None:
    """The other partitioners spread batches as they spread rows, and the batches remain columns."""

    @settings(max_examples=30)
    @given(st.lists(batches(), min_size=1, max_size=3), st.integers(2, 5))
    def check(stream: list[Batch], channels: int) -> None:
        columnar, rows = router(partitioner, channels), router(partitioner, channels)
        for batch in stream:
            routed = columnar.route(as_columns(batch))
            assert parts(routed) == parts(rows.route(batch))
            assert all(isinstance(part, ColumnBatch) for _, part in routed)

    check()


def test_a_batch_without_records_goes_nowhere() -> None:
    """It does not settle the type of the keys either."""
    context = RouterContext("op", 0, 1, 2, 128)
    assert by_columns(("n",), None).router(context).route(ColumnBatch({"n": np.array([])}, 0)) == []
    assert context.key_type_agreement.key_type is None


def test_all_senders_agree_on_the_type_of_keys() -> None:
    """The first key that any sender sees settles the type, whether it came in a column or in a row."""
    context = RouterContext("op", 0, 1, 2, 128)
    first, second = by_columns(("k",), None).router(context), by_columns(("k",), None).router(context)
    first.route(Batch([{"k": 1}]))

    assert context.key_type_agreement.key_type == LONG
    with pytest.raises(KeyTypeMismatchError, match="declared LONG"):
        second.route(as_columns(Batch([{"k": "a"}])))


@pytest.mark.parametrize("channels", [1, 3])
def test_keys_of_another_type_are_refused(channels: int) -> None:
    """The error names the columns, the operator before and a record, even if there is nothing to spread."""
    with pytest.raises(KeyTypeMismatchError, match=r"key_by_column\('k'\) after 'op'.*wrong type(.|\n)*{'k': 'a'}"):
        router(by_columns(("k",), LONG), channels).route(as_columns(Batch([{"k": "a"}])))
    with pytest.raises(KeyTypeMismatchError, match="does not fit the declared key type INT"):
        router(by_columns(("k",), INT), channels).route(as_columns(Batch([{"k": 2**31}])))
    with pytest.raises(KeyTypeMismatchError, match="floats compare in ways that lose keys"):
        router(by_columns(("k",), None), channels).route(as_columns(Batch([{"k": 0.5}])))


def test_a_column_that_is_not_there() -> None:
    """The error names the column, and the columns that exist."""
    with pytest.raises(UserFunctionError, match="no column 'key'; there are k, v"):
        router(by_columns(("key",), None), 2).route(as_columns(Batch([{"k": 1, "v": 2}])))


def test_what_key_by_column_refuses() -> None:
    """It refuses invalid column names, no columns, an invalid key type, and a second key."""
    stream = Job("j").source(ColumnSource({"k": [1]}))
    with pytest.raises(JobGraphError, match="name 1 column at least"):
        stream.key_by_column()
    with pytest.raises(JobGraphError, match="the name of a column is a str"):
        stream.key_by_column(lambda row: row["k"])  # type: ignore[arg-type]
    with pytest.raises(JobGraphError, match="key_type"):
        stream.key_by_column("k", key_type=int)  # type: ignore[arg-type]
    with pytest.raises(JobGraphError, match="partitioned by key already"):
        stream.key_by_column("k").key_by_column("k")
    with pytest.raises(JobGraphError, match="sum_column keeps state per key"):
        stream.sum_column("k")  # type: ignore[attr-defined]
