"""Running reductions and aggregates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import UserFunctionError
from operators.basic import AggregateFunction, KeyedAggregateOperator, ReduceOperator, aggregates
from state_backends.base import StateSerializationError
from tests.operators.harness import Harness
from tests.operators.keyed_cluster import KeyedCluster

Record = tuple[str, int]


def first(record: Record) -> str:
    return record[0]


def add(a: Record, b: Record) -> Record:
    return a[0], a[1] + b[1]


def test_reduce_emits_the_running_value_per_record() -> None:
    """Every record gives one result, with its timestamp, counted per key."""
    harness = Harness(ReduceOperator(add), key=first)

    harness.process([("a", 1), ("b", 10), ("a", 2)], [7, 8, 9])

    assert harness.take() == [Batch([("a", 1), ("b", 10), ("a", 3)], [7, 8, 9])]


def test_aggregate_emits_key_and_running_result() -> None:
    """Every record gives one pair of its key and the result so far."""
    harness = Harness(KeyedAggregateOperator(aggregates.mean(lambda record: record[1])), key=first)

    harness.process([("a", 1), ("b", 10), ("a", 2)], [7, 8, 9])

    assert harness.take() == [Batch([("a", 1.0), ("b", 10.0), ("a", 1.5)], [7, 8, 9])]


@given(
    st.lists(
        st.one_of(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-9, 9)), max_size=6), st.integers(1, 3)),
        max_size=15,
    )
)
def test_restarts_change_nothing(steps: list[Any]) -> None:
    """Batches, restarts and changes of parallelism at random points give the sums of an undisturbed loop."""
    reducing = KeyedCluster(lambda: ReduceOperator(add), first)
    aggregating = KeyedCluster(lambda: KeyedAggregateOperator(aggregates.total(lambda record: record[1])), first)
    sums: dict[str, int] = {}
    for step in steps:
        if isinstance(step, int):
            reducing.restart(step)
            aggregating.restart(step)
            continue
        expected = []
        for key, number in step:
            sums[key] = sums.get(key, 0) + number
            expected.append(((key, sums[key]), 0))
        reducing.process([(record, 0) for record in step])
        aggregating.process([(record, 0) for record in step])

        assert reducing.take_stamped() == sorted(expected, key=repr)
        assert aggregating.take_stamped() == sorted(expected, key=repr)


def _fail_on_3(a: Any, b: Any) -> Any:
    if b == ("a", 3):
        raise ZeroDivisionError("three")
    return b


@pytest.mark.parametrize(
    ("operator", "what"),
    [
        (ReduceOperator(_fail_on_3), "reduce"),
        (KeyedAggregateOperator(AggregateFunction(int, _fail_on_3, str)), "aggregate"),
    ],
)
def test_a_failing_function_names_the_record(operator: Any, what: str) -> None:
    """The error names the record on which the function failed, not the first of its batch."""
    harness = Harness(operator, key=first)

    with pytest.raises(UserFunctionError, match=rf"^{what} function of operator 'op' raised Zero") as caught:
        harness.process([("b", 3), ("a", 1), ("a", 3), ("a", 4)])

    assert caught.value.record == ("a", 3)


@pytest.mark.parametrize("operator", [ReduceOperator(add), KeyedAggregateOperator(aggregates.count())])
def test_none_is_refused(operator: Any) -> None:
    """None would clear the state of its key, so it is an error that says what to do instead."""
    harness = Harness(operator, key=lambda value: "k")

    with pytest.raises(UserFunctionError, match=r"Does key_by\(\.\.\., value=\.\.\.\) select None\?"):
        harness.process([None])


def test_false_records_are_not_none() -> None:
    """0, empty text and empty tuples are records like others; a None after one of them is still found."""
    harness = Harness(ReduceOperator(lambda a, b: a + b), key=lambda value: "k")

    harness.process([0, 0, 3, -3])
    assert harness.take() == [Batch([0, 0, 3, 0])]

    with pytest.raises(UserFunctionError, match=r"select None\?"):
        harness.process([0, None])


def test_a_reduction_that_becomes_none_is_refused() -> None:
    """A reduce function that forgets its return is found at the record where it happens."""
    harness = Harness(ReduceOperator(lambda a, b: None), key=first)

    with pytest.raises(UserFunctionError, match="the reduction became None") as caught:
        harness.process([("a", 1), ("b", 2), ("a", 3)])

    assert caught.value.record == ("a", 3)


def test_state_that_cannot_be_written_is_an_error_at_the_snapshot() -> None:
    """A value that cannot be serialised is refused at the latest when it would be written, with its place."""
    harness = Harness(ReduceOperator(add), key=lambda value: "k")
    harness.process([{1, 2}])

    with pytest.raises(StateSerializationError, match="reduced"):
        harness.snapshot(1)
