"""Range-compressed sets and multisets say the same as the plain ones of the standard library."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import pairwise

from hypothesis import given, strategies as st

from engine.explore.ledger import Effects, RangeSet

numbers = st.lists(st.integers(0, 40), max_size=60)
records = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=60)


def range_set(values: list[int]) -> RangeSet:
    found = RangeSet()
    for value in values:
        found.add(value)
    return found


def effects(values: list[tuple[int, int]]) -> Effects:
    found = Effects()
    for split, number in values:
        found.add(split, number)
    return found


@given(numbers)
def test_a_range_set_holds_what_was_put_in(values: list[int]) -> None:
    """Members, size, order and the answer of add are those of a set."""
    found, plain = RangeSet(), set[int]()
    for value in values:
        assert found.add(value) == (value not in plain)
        plain.add(value)
    assert list(found) == sorted(plain)
    assert len(found) == len(plain)
    assert bool(found) == bool(plain)
    assert [value in found for value in range(45)] == [value in plain for value in range(45)]


@given(numbers)
def test_ranges_are_ascending_and_apart(values: list[int]) -> None:
    """No two ranges touch: equal sets have equal ranges, whatever the order."""
    ranges = range_set(values).ranges()
    assert all(first < end for first, end in ranges)
    assert all(end < first for (_, end), (first, _) in pairwise(ranges))
    assert range_set(sorted(values, reverse=True)) == range_set(values) == RangeSet((one, one + 1) for one in values)


@given(numbers, numbers, st.integers(0, 45))
def test_union_difference_and_intersection(left: list[int], right: list[int], bound: int) -> None:
    """They are those of sets, and leave both sides as they were."""
    one, other = range_set(left), range_set(right)
    assert list(one | other) == sorted({*left, *right})
    assert list(one & other) == sorted({*left} & {*right})
    assert list(one - other) == sorted({*left} - {*right})
    assert list(one.below(bound)) == sorted(value for value in {*left} if value < bound)
    for result in (one | other, one & other, one - other):
        assert result == range_set(list(result))
    assert list(one) == sorted({*left})


@given(records)
def test_effects_count_like_a_counter(values: list[tuple[int, int]]) -> None:
    """Every count, the total and the layers are those of a Counter."""
    found, plain = effects(values), Counter(values)
    for (split, number), count in plain.items():
        assert sum(number in layer for layer in found.splits[split]) == count
    assert found.total() == plain.total()
    for split in range(3):
        for times in range(1, 5):
            expected = sorted(number for (one, number), count in plain.items() if one == split and count >= times)
            assert list(found.layer(split, times)) == expected


@given(records, records)
def test_effects_add_up(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    """All effects of several together are those of the lists one behind the other; none of them is touched by it."""
    one, other = effects(left), effects(right)
    total = Effects.sum([one, other, one])
    assert total == effects([*left, *right, *left])
    assert total == effects([*right, *left, *left])
    total.add(0, 3)
    assert Effects.sum([one]) == one == effects(left)
    assert other == effects(right)


def test_records_in_order_are_one_range() -> None:
    """Records in order take the room of one range, also in a copy."""
    found = Effects()
    for number in range(200_000):
        found.add(0, number)
    assert found.layer(0, 1).ranges() == [(0, 200_000)]
    assert pickle.loads(pickle.dumps(found)) == found
