"""Key groups: Flink's arithmetic, bit for bit, and keys of one declared type."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from state_backends.base import (
    BOOL,
    BYTES,
    INT,
    LONG,
    STRING,
    KeyGroupError,
    KeyGroupRange,
    KeyType,
    KeyTypeError,
    check_keys,
    default_max_parallelism,
    infer_key_type,
    java_hash_code,
    key_group_for,
    key_group_function,
    key_group_range_for_index,
    operator_index_for_key_group,
    tuple_of,
)
from state_backends.base.key_groups import (
    key_group_ranges,
    murmur_hash,
    resolve_max_parallelism,
    round_up_to_power_of_two,
)
from tests.state_backends.support import vectors

Vector = dict[str, Any]


@pytest.mark.parametrize("vector", vectors("key_group_ranges"))
def test_ranges_of_all_subtasks(vector: Vector) -> None:
    """The ranges of all subtasks are those of Flink."""
    ranges = key_group_ranges(vector["input"]["max_parallelism"], vector["input"]["parallelism"])

    assert vector["expect"]["ranges"] == [[one.first, one.last] for one in ranges]


@pytest.mark.parametrize("vector", vectors("key_group_range_for_index"))
def test_range_of_one_subtask(vector: Vector) -> None:
    """One subtask's range is Flink's, and bad arguments are refused."""
    given_input = vector["input"]
    arguments = given_input["max_parallelism"], given_input["parallelism"], given_input["index"]
    if "error" in vector["expect"]:
        with pytest.raises(KeyGroupError):
            key_group_range_for_index(*arguments)
    else:
        assert KeyGroupRange(*vector["expect"]["range"]) == key_group_range_for_index(*arguments)


@pytest.mark.parametrize("vector", vectors("operator_index_for_key_group"))
def test_owner_of_a_key_group(vector: Vector) -> None:
    """The owner of a key group is Flink's."""
    given_input = vector["input"]
    owner = operator_index_for_key_group(
        given_input["max_parallelism"], given_input["parallelism"], given_input["key_group"]
    )

    assert vector["expect"]["index"] == owner


@pytest.mark.parametrize("vector", vectors("key_group_intersection"))
def test_intersection(vector: Vector) -> None:
    """Two ranges intersect as in Flink; disjoint ones do not."""
    expected = vector["expect"]["intersection"]
    intersection = KeyGroupRange(*vector["input"]["a"]).intersection(KeyGroupRange(*vector["input"]["b"]))

    assert (None if expected is None else KeyGroupRange(*expected)) == intersection


def test_overlapping_ranges_intersect_in_what_both_have() -> None:
    """The intersection of overlapping ranges is the common part, either way round."""
    assert KeyGroupRange(4, 6) == KeyGroupRange(0, 6).intersection(KeyGroupRange(4, 9))
    assert KeyGroupRange(4, 6) == KeyGroupRange(4, 9).intersection(KeyGroupRange(0, 6))


@pytest.mark.parametrize("vector", vectors("default_max_parallelism"))
def test_default_max_parallelism(vector: Vector) -> None:
    """The derived max parallelism is Flink's."""
    assert vector["expect"]["max_parallelism"] == default_max_parallelism(vector["input"]["parallelism"])


@pytest.mark.parametrize("vector", vectors("max_parallelism_resolution"))
def test_max_parallelism_resolution(vector: Vector) -> None:
    """Only a derived max parallelism may still be replaced by that of restored state."""
    resolved = resolve_max_parallelism(vector["input"]["parallelism"], vector["input"]["configured"])

    assert vector["expect"]["max_parallelism"] == resolved.value
    assert vector["expect"]["can_rescale_max_to"] == resolved.can_rescale_to(vector["input"]["rescale_to"])


@pytest.mark.parametrize("vector", vectors("round_up_to_power_of_two"))
def test_round_up_to_power_of_two(vector: Vector) -> None:
    """Rounding up to a power of two is Flink's."""
    assert vector["expect"]["result"] == round_up_to_power_of_two(vector["input"]["x"])


@pytest.mark.parametrize("vector", vectors("key_to_key_group"))
def test_key_group_of_a_key(vector: Vector) -> None:
    """A key's hash code, murmur mix and key group are Flink's."""
    key_type = {"int": INT, "string": STRING}[vector["input"]["key_type"]]
    key, expect = vector["input"]["key"], vector["expect"]

    assert expect["key_group"] == key_group_for(key, vector["input"]["max_parallelism"], key_type)
    code = java_hash_code(key, key_type)
    assert expect.get("java_hash_code", code) == code
    assert expect.get("murmur", murmur_hash(code)) == murmur_hash(code)


@pytest.mark.parametrize(
    ("key", "key_type", "code"),
    [
        (-1, LONG, 0),
        (1 << 32, LONG, 1),
        (-(1 << 63), LONG, -(1 << 31)),
        ((1 << 63) - 1, LONG, -(1 << 31)),
        (-5, INT, -5),
        ("", STRING, 0),
        ("polygenelubricants", STRING, -(1 << 31)),
        ("\U0001f600", STRING, 1772899),
        (b"", BYTES, 1),
        (b"\x01\xff", BYTES, 991),
        (True, BOOL, 1231),
        (False, BOOL, 1237),
        ((1, "a"), tuple_of(LONG, STRING), 31 * (31 + 1) + 97),
    ],
)
def test_java_hash_codes(key: Any, key_type: KeyType, code: int) -> None:
    """Each key type has the hash code that Java's library gives it (values worked out by hand)."""
    assert code == java_hash_code(key, key_type)


def test_the_smallest_int_mixes_to_zero() -> None:
    """A mix that gives the smallest int, which has no negation, becomes 0 as in Flink."""

    # Found by inverting the mix: the one code whose mix is -2**31.
    def unmix() -> int:
        mask = 0xFFFFFFFF
        code = 0x80000000
        code ^= code >> 16
        code = (code * pow(0xC2B2AE35, -1, 1 << 32)) & mask
        code ^= (code >> 13) ^ (code >> 26)
        code = (code * pow(0x85EBCA6B, -1, 1 << 32)) & mask
        code ^= code >> 16
        code ^= 4
        code = ((code - 0xE6546B64) * pow(5, -1, 1 << 32)) & mask
        code = ((code >> 13) | (code << 19)) & mask
        code = (code * pow(0x1B873593, -1, 1 << 32)) & mask
        code = ((code >> 15) | (code << 17)) & mask
        return (code * pow(0xCC9E2D51, -1, 1 << 32)) & mask

    assert murmur_hash(unmix()) == 0


@given(st.integers(1, 300), st.data())
def test_ranges_are_disjoint_complete_and_agree_with_the_owner(max_parallelism: int, data: st.DataObject) -> None:
    """For each parallelism the ranges cover all groups once, and each group's owner is the range's subtask."""
    parallelism = data.draw(st.integers(1, max_parallelism))
    ranges = key_group_ranges(max_parallelism, parallelism)

    assert [group for one in ranges for group in one] == list(range(max_parallelism))
    for index, one in enumerate(ranges):
        assert all(operator_index_for_key_group(max_parallelism, parallelism, group) == index for group in one)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1, 1 << 15))
def test_key_groups_are_in_range(code: int, max_parallelism: int) -> None:
    """A murmur mix is a non-negative int, so a key group is always valid."""
    assert 0 <= murmur_hash(code) < 1 << 31
    assert 0 <= key_group_function(INT, max_parallelism)(code) < max_parallelism


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism"), [(0, 1), (-1, 5), (6, 5), (1, 0), (1, (1 << 15) + 1), (1, -1)]
)
def test_parallelism_out_of_range_is_refused(parallelism: int, max_parallelism: int) -> None:
    """1 <= parallelism <= max parallelism <= 32768, and the message names the value."""
    with pytest.raises(KeyGroupError, match=r"parallelism -?\d+ is not within 1 to"):
        key_group_ranges(max_parallelism, parallelism)


def test_a_subtask_or_group_out_of_range_is_refused() -> None:
    """Asking for a subtask or key group that does not exist is an error, not a wrong answer."""
    with pytest.raises(KeyGroupError, match="subtask index 2"):
        key_group_range_for_index(8, 2, 2)
    with pytest.raises(KeyGroupError, match="key group 8"):
        operator_index_for_key_group(8, 2, 8)
    with pytest.raises(KeyGroupError, match="key-group range"):
        KeyGroupRange(3, 2)


@pytest.mark.parametrize("key", [1.0, float("nan"), None, [1], {1}, (1, 2.0), (), object()])
def test_values_that_can_be_no_key(key: Any) -> None:
    """Floats, None, mutable values and empty tuples have no key type."""
    with pytest.raises(KeyTypeError):
        infer_key_type(key)


def test_a_float_key_is_refused_with_the_reason() -> None:
    """The error about a float key says why and what to use instead."""
    with pytest.raises(KeyTypeError, match=r"1\.5 of type float cannot be a key: .*NaN.*Use an int"):
        key_group_for(1.5, 128)


def test_subclasses_are_no_keys() -> None:
    """A subclass would come back from a snapshot as its base, so it is refused."""

    class Name(str):
        pass

    with pytest.raises(KeyTypeError, match="base type"):
        infer_key_type(Name("a"))


@pytest.mark.parametrize(
    ("keys", "key_type", "index", "found"),
    [
        ([1, 2, True], LONG, 2, "bool"),
        ([1.0, 2], LONG, 0, "float"),
        (["a", b"a"], STRING, 1, "bytes"),
        ([(1, "a"), (1, 2)], tuple_of(LONG, STRING), 1, r"tuple\(int, int\)"),
        ([(1, "a"), (True, "b")], tuple_of(LONG, STRING), 1, r"tuple\(bool, str\)"),
        ([(1,), (1, 2)], tuple_of(LONG), 1, r"tuple\(int, int\)"),
        ([(1, (2, "x")), (1, (2, 3))], tuple_of(LONG, tuple_of(LONG, STRING)), 1, r"tuple\(int, tuple\(int, int\)\)"),
        ([(1, "a"), "b"], tuple_of(LONG, STRING), 1, "str"),
    ],
)
def test_a_batch_with_a_key_of_another_type_is_refused(
    keys: list[Any], key_type: KeyType, index: int, found: str
) -> None:
    """The error names index, found type and declared type of the first wrong key."""
    with pytest.raises(KeyTypeError, match=rf"^key {index} of the batch is .* of type {found}, but .* declared"):
        check_keys(keys, key_type)


@pytest.mark.parametrize(
    ("keys", "key_type"),
    [
        ([], LONG),
        ([], tuple_of(LONG)),
        ([1, -2], INT),
        (["a", ""], STRING),
        ([(1, (b"", False)), (2, (b"x", True))], tuple_of(LONG, tuple_of(BYTES, BOOL))),
    ],
)
def test_good_batches_pass(keys: list[Any], key_type: KeyType) -> None:
    """A batch of keys of the declared type is accepted."""
    check_keys(keys, key_type)


@pytest.mark.parametrize(("key", "key_type"), [("a\ud800b", STRING), ((1, "a\ud800b"), tuple_of(LONG, STRING))])
def test_texts_with_a_lone_surrogate_are_refused(key: Any, key_type: KeyType) -> None:
    """No file of state can hold one: it is refused where the key is first seen, not in the next checkpoint."""
    with pytest.raises(KeyTypeError, match=r"'a\\ud800b' has a lone surrogate at index 1.*Clean it"):
        key_group_for(key, 128, key_type)


def test_integers_beyond_their_width_are_refused() -> None:
    """An int that does not fit its declared width has no Java hash code."""
    with pytest.raises(KeyTypeError, match="INT"):
        key_group_for(1 << 31, 128, INT)
    with pytest.raises(KeyTypeError, match="64 bits"):
        key_group_for(1 << 63, 128)


@given(st.text())
def test_string_hash_is_the_polynomial_over_utf16_units(text: str) -> None:
    """The hash of any text equals the base-31 polynomial over its UTF-16 units in 32 bits."""
    encoded = text.encode("utf-16-be")
    units = [encoded[i] * 256 + encoded[i + 1] for i in range(0, len(encoded), 2)]
    polynomial = sum(unit * 31 ** (len(units) - 1 - i) for i, unit in enumerate(units))

    assert polynomial % (1 << 32) == java_hash_code(text, STRING) % (1 << 32)


def test_key_types_survive_their_plain_form() -> None:
    """A key type is read back from its plain form, and an unknown name is refused."""
    key_type = tuple_of(INT, LONG, tuple_of(STRING, BYTES, BOOL))

    assert KeyType.from_state(key_type.to_state()) == key_type
    assert str(key_type) == "TUPLE(INT, LONG, TUPLE(STRING, BYTES, BOOL))"
    with pytest.raises(KeyTypeError, match="'UUID'"):
        KeyType.from_state(["UUID", []])
