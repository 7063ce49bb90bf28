"""Packing with a bounded look back."""

from __future__ import annotations

from hypothesis import given, strategies as st

from operators.table.partitions.table_compaction import LOOK_BACK, pack


def weigh(item: int) -> int:
    return item


def test_an_item_goes_to_the_first_bin_in_which_it_fits() -> None:
    """It does not go to the bin in which it fits best."""
    assert pack([6, 5, 4, 3], 10, weigh) == [[6, 4], [5, 3]]


def test_an_item_that_is_too_heavy_gets_a_bin_of_its_own() -> None:
    """No other item is added to that bin."""
    assert pack([30, 1, 0], 10, weigh) == [[30], [1, 0]]


def test_the_oldest_bin_is_closed_when_too_many_are_open() -> None:
    """An item that would fit into it opens another one."""
    heavy = [8] * (LOOK_BACK + 1)

    assert pack([7, *heavy, 3], 10, weigh) == [[7], *([8] for _ in heavy), [3]]
    assert pack([7, *heavy[2:], 3], 10, weigh)[0] == [7, 3]


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(1, 15))
def test_every_item_is_in_one_bin_and_no_bin_is_too_heavy(weights: list[int], target: int) -> None:
    """Unless it holds one item only; within a bin the order is that of the items."""
    items = list(enumerate(weights))
    bins = pack(items, target, lambda item: item[1])

    assert sorted(item for one in bins for item in one) == items
    assert all(one == sorted(one) and one for one in bins)
    assert all(sum(weight for _, weight in one) <= target or len(one) == 1 for one in bins)
    assert [one[0] for one in bins] == sorted(one[0] for one in bins)
