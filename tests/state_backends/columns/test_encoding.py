"""How columns of numbers become bytes: against the codec, number by number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from state_backends.codec import default_codec
from state_backends.columns import encoded_columns, encoded_order

_EDGES = [0, -1, -(2**63), 2**63 - 1]
_EDGES += [sign * 2**bits + near for bits in (5, 7, 8, 15, 16, 31, 32) for sign in (1, -1) for near in (-1, 0, 1)]
_LONGS = st.sampled_from(_EDGES) | st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)


def _same(numbers: list[Any], cuts: list[int], dtype: Any) -> None:
    bounds = [0, *sorted({cut % (len(numbers) + 1) for cut in cuts} - {0, len(numbers)}), len(numbers)]
    expected = [default_codec().pack(numbers[start:end]) for start, end in pairwise(bounds)]
    assert encoded_columns(np.array(numbers, dtype=dtype), bounds, default_codec()) == expected


@given(numbers=st.lists(_LONGS, min_size=1, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_columns_of_ints_are_the_codecs_bytes(numbers: list[int], cuts: list[int]) -> None:
    """Ints of whatever widths, cut anywhere, are written as the codec writes the lists of them."""
    _same(numbers, cuts, np.int64)


@pytest.mark.parametrize("number", _EDGES)
def test_columns_of_one_form_are_the_codecs_bytes(number: int) -> None:
    """At the edge of each width a column of one number, and of it and its neighbours, is written as the codec does."""
    _same([number] * 20, [3, 17], np.int64)
    for other in (number - 1, number + 1):
        if -(2**63) <= other < 2**63:
            _same([number, other, number], [1], np.int64)


@example(numbers=[0.0, -0.0, float("nan"), float("inf")], cuts=[2])
@given(numbers=st.lists(st.floats(), min_size=1, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_columns_of_floats_are_the_codecs_bytes(numbers: list[float], cuts: list[int]) -> None:
    """Floats, with every bit of theirs, are written as the codec writes the lists of them."""
    _same(numbers, cuts, np.float64)


@given(keys=st.lists(st.tuples(st.integers(0, 3), _LONGS), min_size=1, max_size=60, unique=True))
def test_the_order_of_keys_is_that_of_their_bytes(keys: list[tuple[int, int]]) -> None:
    """Keys are ordered by group and within a group by their encodings."""
    groups, longs = (np.array(column, dtype=np.int64) for column in zip(*keys, strict=True))
    found = [keys[position] for position in encoded_order(longs, groups).tolist()]
    assert found == sorted(keys, key=lambda one: (one[0], default_codec().pack(one[1])))


@given(bits=st.integers(1, 63), data=st.data())
def test_equal_keys_stay_in_their_order(bits: int, data: st.DataObject) -> None:
    """Whether group, key and position fit into one number or not."""
    keys = st.tuples(st.integers(0, 3), st.integers(2 ** (bits - 1), 2**bits - 1) | st.integers(0, 1))
    found = data.draw(st.lists(keys, min_size=1, max_size=40))
    groups, longs = (np.array(column, dtype=np.int64) for column in zip(*found, strict=True))
    assert encoded_order(longs, groups).tolist() == sorted(range(len(found)), key=found.__getitem__)
