"""Grouping by key, and slots of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from state_backends.columns import (
    MAX_RECORDS,
    Grouping,
    KeyNumbers,
    LongSlots,
    ObjectSlots,
    Slots,
    Workspace,
    group_by_key,
)

GOLDEN = 0x9E3779B97F4A7C15
LONGS = st.integers(-(2**63), 2**63 - 1)


def groups_of(grouping: Grouping) -> dict[Any, list[int]]:
    """By key, the positions of its records as they stand in grouped order."""
    keys = grouping.keys.tolist() if isinstance(grouping.keys, np.ndarray) else grouping.keys
    bounds = zip(keys, grouping.starts.tolist(), grouping.counts.tolist(), strict=True)
    return {key: grouping.order[start : start + count].tolist() for key, start, count in bounds}


def expected(keys: list[Any]) -> dict[Any, list[int]]:
    positions: dict[Any, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    return positions


@given(st.lists(st.one_of(st.integers(-3, 3), LONGS), min_size=1, max_size=50), st.integers(1, 3))
@example([-5, 2**30 - 6, -5, 7], 2)  # a key of 30 bits and a position of 2: together the most that half a word takes
@example([-5, 2**30 - 5, -5, 7], 2)
@example([-(2**63), 1 - 2**63, -(2**63)], 1)
@example([2**63 - 1, -(2**63)], 1)
def test_records_of_a_key_stand_together_in_their_order(keys: list[int], repeats: int) -> None:
    """For integers and for objects alike, and however often the same space and numbers are used."""
    numbers, space = KeyNumbers(), Workspace()
    for _ in range(repeats):
        longs = group_by_key(np.array(keys, dtype=np.int64), numbers, space)
        assert groups_of(longs) == expected(keys)
        assert sorted(longs.order.tolist()) == list(range(len(keys)))
        objects = group_by_key([str(key) for key in keys], numbers, space)
        assert groups_of(objects) == expected([str(key) for key in keys])


def test_keys_with_the_same_hash_bits_are_told_apart() -> None:
    """Keys whose hashes differ only in bits that the positions take are not mixed up."""
    inverse = pow(GOLDEN, -1, 2**64)
    count = 1 << 10
    # Hashes 0, 1, 2, ... 15: their upper bits are all the same.
    few = [hashed * inverse % 2**64 for hashed in range(16)]
    keys = [(few[i * 7 % 16] + 2**63) % 2**64 - 2**63 for i in range(count)]
    column = np.array(keys, dtype=np.int64)
    spread = (column.view(np.uint64) * np.uint64(GOLDEN)) >> np.uint64(10)

    assert len(set(spread.tolist())) < len(set(keys)), "the keys do not collide: the test shows nothing"
    assert groups_of(group_by_key(column, KeyNumbers(), Workspace())) == expected(keys)


def test_the_largest_batch() -> None:
    """As many records as are grouped at once, and no more."""
    keys = np.arange(MAX_RECORDS) % 3
    grouping = group_by_key(keys, KeyNumbers(), Workspace())

    assert sorted(zip(grouping.keys.tolist(), grouping.counts.tolist(), strict=True)) == [
        (0, 43691),
        (1, 43691),
        (2, 43690),
    ]
    with pytest.raises(AssertionError):
        group_by_key(np.zeros(MAX_RECORDS + 1, dtype=np.int64), KeyNumbers(), Workspace())


def test_numbers_of_keys_are_forgotten_at_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for keys stays bounded, and the grouping right."""
    monkeypatch.setattr("state_backends.columns.grouping._MAX_NUMBERED_KEYS", 4)
    numbers, space = KeyNumbers(), Workspace()
    for first in range(0, 50, 5):
        keys = [str(number % 20) for number in range(first, first + 7)]
        assert groups_of(group_by_key(keys, numbers, space)) == expected(keys)
        assert len(numbers) < 4 + 7


def test_items_go_to_groups_and_back() -> None:
    """Items that were brought into grouped order come back to their old places."""
    keys = np.array([7, 5, 7, 9, 5])
    values = np.array([0.5, 1.5, 2.5, 3.5, 4.5])
    grouping = group_by_key(keys, KeyNumbers(), Workspace())
    grouped = grouping.grouped(values)

    assert [values[position] for position in grouping.order] == grouped.tolist()
    assert grouping.to_batch_order(grouped).tolist() == values.tolist()


@pytest.mark.parametrize("kind", [LongSlots, ObjectSlots])
def test_slots_are_found_again(kind: type[Slots]) -> None:
    """Keys added in batches have the slots 0, 1, 2 .. in that order; others have none."""

    @given(st.lists(st.lists(LONGS, max_size=30), max_size=6), st.lists(LONGS, max_size=10))
    def check(batches: list[list[int]], others: list[int]) -> None:
        slots, known = kind(), dict[int, int]()
        for batch in batches:
            new = [key for key in dict.fromkeys(batch) if key not in known]
            slots.add(np.array(new, dtype=np.int64) if kind is LongSlots else new)
            known |= {key: len(known) + at for at, key in enumerate(new)}
        wanted = [*known, *others]
        column = np.array(wanted, dtype=np.int64) if kind is LongSlots else wanted

        assert len(slots) == len(known)
        assert slots.find(column).tolist() == [known.get(key, -1) for key in wanted]
        assert list(slots.keys(len(slots))) == list(known)

    check()


@pytest.mark.parametrize("step", [1, 2**20, 2**32, 2**52, GOLDEN % 2**63], ids=hex)
def test_many_regular_keys_find_their_slots(step: int) -> None:
    """Keys in any regular distance, through several growths of the table."""
    keys = np.arange(5_000, dtype=np.int64) * np.int64(step)
    keys = np.unique(keys)
    slots = LongSlots()
    for at in range(0, len(keys), 700):
        slots.add(keys[at : at + 700])

    assert slots.find(keys).tolist() == list(range(len(keys)))
    assert (slots.find(keys + 1) == -1).sum() >= len(keys) - len(np.intersect1d(keys, keys + 1))
