"""Top-n: the changes add up to the ranks of all records so far."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.ranking import TopNOperator, greatest, materialize
from state_backends.codec import default_codec
from tests.operators.harness import Harness


def price(record: Any) -> int:
    return int(record[1])


def harness(n: int = 2, restored: Any = None, **kwargs: Any) -> Harness:
    key = (lambda change: change[1][0]) if kwargs.get("changes") else (lambda record: record[0])
    return Harness(TopNOperator(n, price, **kwargs), key=key, restored=restored)


def test_ranks_move_down_when_a_greater_one_comes() -> None:
    """Each rank that gets another record is updated, in ascending order; ranks after the n-th are not reported."""
    one = harness()
    one.process([("k", 5), ("k", 3), ("k", 9), ("k", 1)], [10, 20, 30, 40])
    assert one.take_stamped() == [
        (("+I", (1, ("k", 5))), 10),
        (("+I", (2, ("k", 3))), 20),
        (("-U", (1, ("k", 5))), 30),
        (("+U", (1, ("k", 9))), 30),
        (("-U", (2, ("k", 3))), 30),
        (("+U", (2, ("k", 5))), 30),
    ]


def test_without_ranks_one_leaves_and_one_comes() -> None:
    """The record that drops out is deleted before the other is inserted."""
    one = harness(with_rank=False)
    one.process([("k", 5), ("k", 3), ("k", 9)])
    assert one.take_values()[2:] == [("-D", ("k", 3)), ("+I", ("k", 9))]


def test_the_least_are_the_other_end() -> None:
    """With ascending, ranks begin with the least."""
    one = harness(ascending=True, with_rank=False)
    one.process([("k", 5), ("k", 3), ("k", 9)])
    assert materialize(one.take_values()) == [("k", 5), ("k", 3)]


def test_what_is_taken_away_lets_the_next_come_forward() -> None:
    """This needs all records in the state: with changes as input. A deletion of an unknown record is counted."""
    one = harness(changes=True)
    one.process([("+I", ("k", 5)), ("+I", ("k", 3)), ("+I", ("k", 4)), ("-D", ("k", 5)), ("-D", ("k", 8))])
    assert one.take_values()[-4:] == [
        ("-U", (1, ("k", 5))),
        ("+U", (1, ("k", 4))),
        ("-U", (2, ("k", 4))),
        ("+U", (2, ("k", 3))),
    ]
    assert one.counter("numUnknownRetractions") == 1


def test_state_holds_n_records_and_no_more() -> None:
    """If records are only added, those after the n-th are forgotten."""
    one = harness()
    one.process([("k", number) for number in range(50)])
    one.context.keyed.set_current_key("k")
    state = one.operator._state  # type: ignore[attr-defined]
    assert state.get() == [("k", 49), ("k", 48)]


@pytest.mark.parametrize("n", [0, -1, True, 1.5])
def test_n_is_a_number_of_records(n: Any) -> None:
    """It is at least one."""
    with pytest.raises(ConfigurationError, match=r"n is .*; it must be a whole number from 1"):
        TopNOperator(n, price)


def test_a_sort_key_that_fails_names_the_record() -> None:
    """The error is like that of any function of a user."""
    with pytest.raises(UserFunctionError, match=r"\('k', 'x'\)"):
        harness().process([("k", 1), ("k", "x")])


def test_a_sort_key_that_is_not_a_number_is_refused() -> None:
    """It is neither greater nor less than another: its rank would depend on the order of arrival."""
    one = Harness(TopNOperator(1, lambda record: record[1]), key=lambda record: record[0])
    with pytest.raises(UserFunctionError, match="has no place among numbers"):
        one.process([("k", 1.0), ("k", float("nan"))])


EQUAL_AND_NOT_THE_SAME = st.lists(
    st.tuples(st.just("k"), st.sampled_from([1, True, 1.0, 0, False, 0.0, -0.0, 2])), max_size=12
)


@given(EQUAL_AND_NOT_THE_SAME, st.integers(1, 3), st.integers(1, 12), st.booleans())
def test_records_that_are_equal_and_not_the_same_are_told_apart(
    records: list[Any], n: int, size: int, with_rank: bool
) -> None:
    """1, 1.0 and True rank by their encodings, and which of them is there depends neither on batches nor on a
    restart."""
    whole = harness(n, with_rank=with_rank)
    whole.process(records)
    checkpoint, emitted = None, []
    for start in range(0, len(records), size):
        one = harness(n, checkpoint, with_rank=with_rank)
        one.process(records[start : start + size])
        emitted += one.take_values()
        checkpoint = one.snapshot(start + 1)
    assert repr(emitted) == repr(whole.take_values())


def in_order(records: list[Any], ascending: bool) -> list[Any]:
    encode = default_codec().encode
    return sorted(records, key=lambda record: (record[1] if ascending else -record[1], encode(record)))


RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 2)), max_size=15)


@given(RECORDS, st.integers(1, 3), st.booleans(), st.booleans(), st.integers(1, 15), st.randoms(use_true_random=False))
def test_the_result_is_a_function_of_the_records(
    records: list[Any], n: int, ascending: bool, with_rank: bool, size: int, shuffled: Any
) -> None:
    """Not of their order or the batches: equal sort keys are ordered by the records themselves."""
    arrived = list(records)
    shuffled.shuffle(arrived)
    emitted: list[Any] = []
    checkpoint = None
    for start in range(0, len(arrived), size):
        one = harness(n, checkpoint, ascending=ascending, with_rank=with_rank)
        one.process(arrived[start : start + size])
        emitted += one.take_values()
        checkpoint = one.snapshot(start + 1)
    rows = materialize(emitted)
    wanted: list[Any] = []
    for key in "ab":
        best = in_order([record for record in records if record[0] == key], ascending)[:n]
        wanted += [(rank, record) for rank, record in enumerate(best, 1)] if with_rank else best
    assert sorted(rows) == sorted(wanted)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=20), st.integers(1, 3))
def test_with_retractions_the_ranks_are_those_of_what_is_there(steps: list[tuple[bool, int]], n: int) -> None:
    """After every change."""
    one = harness(n, changes=True)
    rows: list[Any] = []
    emitted: list[Any] = []
    for takes_away, value in steps:
        row = ("k", value)
        if takes_away and row in rows:
            rows.remove(row)
            one.process([("-D", row)])
        else:
            rows.append(row)
            one.process([("+I", row)])
        emitted += one.take_values()
        assert sorted(materialize(emitted)) == list(enumerate(in_order(rows, False)[:n], 1))


@given(RECORDS, RECORDS, st.integers(1, 3))
def test_as_an_aggregate_it_adds_and_merges(first: list[Any], second: list[Any], n: int) -> None:
    """The greatest of a window are the greatest of its parts."""
    function = greatest(n, price)

    def folded(records: list[Any]) -> Any:
        kept = function.create()
        for record in records:
            kept = function.add(kept, record)
        return kept

    assert function.merge is not None
    merged = function.merge(folded(first), folded(second))
    assert function.get_result(merged) == in_order(first + second, False)[:n]
