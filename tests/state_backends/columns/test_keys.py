"""Hash codes and key groups of whole columns are those of each key alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from state_backends.base import (
    BOOL,
    BYTES,
    INT,
    LONG,
    STRING,
    KeyGroupError,
    KeyType,
    KeyTypeError,
    java_hash_function,
    key_group_function,
    tuple_of,
)
from state_backends.base.key_groups import murmur_hash
from state_backends.columns import check_key_column, key_column_type, key_groups_of
from state_backends.columns.keys import hash_codes, murmur_hashes

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(categories=("L", "N", "S", "Cc")), max_size=12)
KEYS: dict[KeyType, st.SearchStrategy[Any]] = {
    LONG: LONGS,
    INT: st.integers(-(2**31), 2**31 - 1),
    STRING: TEXTS,
    BYTES: st.binary(max_size=12),
    BOOL: st.booleans(),
    tuple_of(STRING, LONG): st.tuples(TEXTS, LONGS),
    tuple_of(BOOL, tuple_of(INT, BYTES)): st.tuples(
        st.booleans(), st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=5))
    ),
}


def columns_of(keys: list[Any], key_type: KeyType) -> list[Any]:
    """The keys in every form that a column of them may have."""
    forms: list[Any] = [keys]
    if key_type in (INT, LONG):
        forms.append(np.array(keys, dtype=np.int64))
        forms.append(np.repeat(np.array(keys, dtype=np.int64), 2)[::2])
    if key_type is BOOL:
        forms.append(np.array(keys, dtype=bool))
    return forms


@pytest.mark.parametrize("key_type", KEYS, ids=str)
def test_hash_codes_and_groups_are_those_of_each_key(key_type: KeyType) -> None:
    """For any keys in any form of column, each gets the hash code and key group that it has alone."""

    @given(st.lists(KEYS[key_type], max_size=20), st.sampled_from([1, 2, 128, 1000, 32768]))
    def check(keys: list[Any], max_parallelism: int) -> None:
        code_of, group_of = java_hash_function(key_type), key_group_function(key_type, max_parallelism)
        for column in columns_of(keys, key_type):
            assert hash_codes(column, key_type).tolist() == list(map(code_of, keys))
            assert key_groups_of(column, key_type, max_parallelism).tolist() == list(map(group_of, keys))

    check()


@pytest.mark.parametrize("key_type", [STRING, BYTES], ids=str)
def test_long_keys_are_hashed_to_their_end(key_type: KeyType) -> None:
    """Keys of very different length stand in one column, some much longer than what is hashed position by position."""
    texts = ["", "x" * 5, "ab" * 100, "\U0001f600" * 90, "é" * 129, "z" * 128, "", "q" * 1000]
    keys: list[Any] = texts if key_type is STRING else [text.encode() for text in texts]

    assert hash_codes(keys, key_type).tolist() == [java_hash_function(key_type)(key) for key in keys]


def test_murmur_of_every_corner() -> None:
    """The mix equals the scalar one on corner values, and where the mixed int is the smallest there is."""
    smallest = _unmixed(0x80000000)
    codes = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, smallest, *range(0, 2**32, 9_999_991)]

    assert murmur_hash(smallest) == 0
    assert murmur_hashes(np.array(codes, dtype=np.uint32)).tolist() == [murmur_hash(code) for code in codes]


def _unmixed(wanted: int) -> int:
    """The hash code that is mixed to ``wanted``, before it is made non-negative."""
    mask = 0xFFFFFFFF

    def shifted_back(value: int, bits: int) -> int:
        result = value
        for _ in range(32 // bits + 1):
            result = value ^ (result >> bits)
        return result

    code = shifted_back(wanted, 16) * pow(0xC2B2AE35, -1, 2**32) & mask
    code = shifted_back(code, 13) * pow(0x85EBCA6B, -1, 2**32) & mask
    code = shifted_back(code, 16) ^ 4
    code = (code - 0xE6546B64) * pow(5, -1, 2**32) & mask
    code = ((code >> 13) | (code << 19)) & mask
    code = code * pow(0x1B873593, -1, 2**32) & mask
    code = ((code >> 15) | (code << 17)) & mask
    return code * pow(0xCC9E2D51, -1, 2**32) & mask


def test_a_key_too_wide_is_refused() -> None:
    """An int beyond the declared width is named, in a list and in an array."""
    with pytest.raises(KeyTypeError, match="key 2147483648 does not fit the declared key type INT"):
        key_groups_of(np.array([1, 2**31]), INT, 128)
    with pytest.raises(KeyTypeError, match="key 2147483648 does not fit the declared key type INT"):
        check_key_column(np.array([1, 2**31]), INT)
    with pytest.raises(KeyTypeError, match="key 9223372036854775808 does not fit 64 bits"):
        key_groups_of([1, 2**63], LONG, 128)


def test_a_text_with_a_lone_surrogate_is_refused() -> None:
    """The key is named as it is when it comes alone; two that make a pair only together are refused, too."""
    for keys in (["a", "b\ud800"], ["\ud83d", "\ude00"]):
        with pytest.raises(KeyTypeError, match=r"key '(b\\ud800' .* at index 1|\\ud83d' .* at index 0).*Clean it"):
            hash_codes(keys, STRING)
        with pytest.raises(KeyTypeError, match="lone surrogate"):
            key_groups_of([(key, 1) for key in keys], tuple_of(STRING, LONG), 128)


def test_a_column_of_another_type_is_refused() -> None:
    """Arrays are checked like lists of plain keys."""
    check_key_column(np.array([1, 2]), LONG)
    check_key_column(np.array([True]), BOOL)
    with pytest.raises(KeyTypeError, match="declared STRING"):
        check_key_column(np.array([1, 2]), STRING)
    with pytest.raises(KeyTypeError, match="declared LONG"):
        check_key_column(np.array([True]), LONG)
    with pytest.raises(KeyTypeError, match="declared STRING"):
        check_key_column(["a", 1], STRING)
    with pytest.raises(KeyTypeError, match="cannot be a key"):
        key_column_type(np.array([1.5]))


def test_the_type_of_a_column_is_that_of_its_keys() -> None:
    """An int is a LONG unless it was declared INT."""
    assert key_column_type(np.array([5])) == LONG
    assert key_column_type(np.array([True])) == BOOL
    assert key_column_type([("a", 1)]) == tuple_of(STRING, LONG)


def test_the_number_of_groups_is_checked() -> None:
    """As for a single key."""
    with pytest.raises(KeyGroupError):
        key_groups_of(np.array([1]), LONG, 0)
