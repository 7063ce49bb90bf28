"""Regular join: after every record, the emitted changes add up to the join of all records so far."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StateError, UserFunctionError
from operators.joins import RegularJoinOperator
from operators.joins.regular_join import KINDS
from operators.ranking import materialize
from state_backends.base import MapStateDescriptor
from tests.operators.harness import Harness


def key_of(value: Any) -> str:
    return str(value[0])


def key_of_change(value: Any) -> str:
    return str(value[1][0])


def harness(kind: str = "inner", restored: Any = None, **kwargs: Any) -> Harness:
    key = key_of_change if kwargs.get("changes") else key_of
    operator = RegularJoinOperator(kind, **kwargs)
    return Harness(operator, key=key, restored=restored)


def test_an_inner_join_emits_pairs_as_they_are_made() -> None:
    """A pair has the time of the record that makes it."""
    one = harness()
    one.process([("k", 1), ("k", 2)], [10, 20])
    one.process_2([("k", "x"), ("j", "y")], [5, 6], key_of)
    assert one.take() == [Batch([("+I", (("k", 1), ("k", "x"))), ("+I", (("k", 2), ("k", "x")))], [5, 5])]


def test_an_outer_join_takes_back_what_has_met_nothing_so_far() -> None:
    """The record with None is taken back before its first pair comes, and not again."""
    one = harness("full")
    one.process([("k", 1)])
    one.process_2([("k", "x"), ("k", "y")], None, key_of)
    assert one.take_values() == [
        ("+I", (("k", 1), None)),
        ("-D", (("k", 1), None)),
        ("+I", (("k", 1), ("k", "x"))),
        ("+I", (("k", 1), ("k", "y"))),
    ]


def test_a_row_taken_away_takes_its_pairs_away() -> None:
    """A record without any other pair is emitted with None again."""
    one = harness("left", changes=True)
    one.process([("+I", ("k", 1))])
    one.process_2([("+I", ("k", "x")), ("-D", ("k", "x")), ("-D", ("k", "z"))], None, key_of_change)
    assert one.take_values()[3:] == [("-D", (("k", 1), ("k", "x"))), ("+I", (("k", 1), None))]
    assert one.counter("numUnknownRetractions") == 1


def test_a_row_that_holds_no_number_is_found_again() -> None:
    """A restart does not change that: nan does not equal another nan."""
    one = harness("left", changes=True)
    one.process([("+I", ("k", float("nan")))])
    emitted = one.take_values()
    one = harness("left", restored=one.snapshot(1), changes=True)
    one.process([("-D", ("k", float("nan")))])
    emitted += one.take_values()
    assert [kind for kind, _ in emitted] == ["+I", "-D"]
    assert materialize(emitted) == []
    assert one.counter("numUnknownRetractions") == 0


def numbers(one: Harness, key: str) -> list[int]:
    """The numbers of the left rows of a key."""
    one.context.keyed.set_current_key(key)
    return sorted(one.context.keyed.map_state(MapStateDescriptor("left-rows")).keys())


def test_a_row_is_added_without_reading_the_others_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are read from the rows when the key comes up, not for every row."""
    one = harness()
    state = type(one.context.keyed.map_state(MapStateDescriptor("left-rows")))
    plain, reads = state.keys, []
    monkeypatch.setattr(state, "keys", lambda self: reads.append(self) or plain(self))  # type: ignore[func-returns-value]
    for value in range(20):
        one.process([("k", value)])
    assert len(reads) == 1
    assert numbers(one, "k") == list(range(20))


@pytest.mark.parametrize("remembered", [1, 10])
def test_numbers_do_not_depend_on_what_is_remembered(monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    """The next number follows those of the present rows, also when the last of them was taken away."""
    monkeypatch.setattr("operators.joins.regular_join.NUMBERED_KEYS", remembered)
    one = harness(changes=True)
    one.process([("+I", (key, value)) for value in range(3) for key in "ab"])
    one.process([("-D", ("a", 2)), ("+I", ("b", 3)), ("+I", ("a", 4)), ("-D", ("a", 0)), ("+I", ("a", 5))])
    assert (numbers(one, "a"), numbers(one, "b")) == ([1, 2, 3], [0, 1, 2, 3])


def test_state_that_expires_meets_nothing_any_more() -> None:
    """Rows live that long after their last write; a number is not reused while its row lives."""
    one = harness("inner", ttl_ms=10)
    one.process([("k", 1)])
    one.advance_ms(9)
    one.process([("k", 2)])
    one.advance_ms(1)
    one.process([("k", 3)])
    one.process_2([("k", "x")], None, key_of)
    assert [row[0] for _, row in one.take_values()] == [("k", 2), ("k", 3)]


@pytest.mark.parametrize(("kind", "kwargs"), [("outer", {}), ("inner", {"ttl_ms": 0})])
def test_what_makes_no_sense_is_refused(kind: str, kwargs: dict[str, Any]) -> None:
    """An unknown kind, and a time-to-live of nothing."""
    with pytest.raises((ConfigurationError, Exception), match=r"kind must be|from 1 on"):
        RegularJoinOperator(kind, **kwargs)


def test_what_is_no_change_is_refused() -> None:
    """The error names the record and explains what a change is."""
    one = harness(changes=True)
    with pytest.raises(UserFunctionError, match="a change is a tuple"):
        one.process([("+X", ("k", 1))])


def test_changes_that_do_not_add_up_are_refused() -> None:
    """The change deletes a row that was never added."""
    assert materialize([("+I", 1), ("+I", 2), ("-U", 1), ("+U", 3)]) == [2, 3]
    with pytest.raises(StateError, match="not there"):
        materialize([("+I", 1), ("-D", 2)])


def joined(kind: str, left: list[Any], right: list[Any], condition: Any) -> Counter[Any]:
    """The join of two lists, by a nested loop."""
    pairs = [(a, b) for a in left for b in right if a[0] == b[0] and condition(a, b)]
    met_left, met_right = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    result: list[Any] = list(pairs)
    if kind in ("left", "full"):
        result += [(a, None) for a in left if not met_left[a]]
    if kind in ("right", "full"):
        result += [(None, b) for b in right if not met_right[b]]
    return Counter(result)


STEPS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from("ab"), st.integers(0, 2)), max_size=16
)


@given(st.sampled_from(KINDS), STEPS, st.booleans(), st.integers(0, 16))
def test_after_every_change_the_result_is_the_join_of_what_is_there(
    kind: str, steps: list[tuple[bool, bool, str, int]], conditional: bool, restart_at: int
) -> None:
    """Additions and retractions on both sides, equal rows among them, with a restart somewhere."""

    def condition(a: Any, b: Any) -> bool:
        return not conditional or (a[1] + b[1]) % 2 == 0

    settings: dict[str, Any] = {"changes": True, "condition": condition if conditional else None}
    one = harness(kind, **settings)
    sides: tuple[list[Any], list[Any]] = ([], [])
    changes: list[Any] = []
    for number, (is_right, takes_away, key, value) in enumerate(steps):
        if number == restart_at:
            one = harness(kind, restored=one.snapshot(1), **settings)
        row = (key, value)
        change = ("-D" if takes_away and row in sides[is_right] else "+I", row)
        if change[0] == "-D":
            sides[is_right].remove(row)
        else:
            sides[is_right].append(row)
        if is_right:
            one.process_2([change], None, key_of_change)
        else:
            one.process([change])
        changes += one.take_values()
        assert Counter(materialize(changes)) == joined(kind, *sides, condition)
