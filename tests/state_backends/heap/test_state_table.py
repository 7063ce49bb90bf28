"""Entries of the heap backend as columns: in the order of the encoded keys, whichever way it was found."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from state_backends.base import FrozenShard, KeyGroupRange, StateKind
from state_backends.codec import default_codec
from state_backends.heap.state_table import StateTable
from state_backends.snapshots import StateId

WIDTHS = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63 - 1]
codec = default_codec()


@pytest.mark.parametrize("encoded", [False, True])
@given(st.lists(st.one_of(st.sampled_from(WIDTHS), st.integers(-(2**63), 2**63 - 1)), min_size=1, unique=True))
@example(WIDTHS[::-1])
@example([0, 200, -1, -33, -129])
def test_int_keys_are_written_in_the_order_of_their_encoding(encoded: bool, keys: list[int]) -> None:
    """Of every sign and width, each with its own value, also when the values were encoded before."""
    assert_columns({key: [key] for key in keys}, encoded=encoded)


@pytest.mark.parametrize("keys", [[True, False], ["b", "a", "aa"], [(2, "x"), (1, "y"), (-1, "z")], [b"\xff", b"\0"]])
def test_other_keys_are_too(keys: list[Any]) -> None:
    """Keys of other types are sorted by their bytes, whatever Python thinks of their order."""
    assert_columns({key: [str(key)] for key in keys}, encoded=False)


LENGTHS = [0, 1, 31, 32, 255, 256, 65_535, 65_536]


@pytest.mark.parametrize("encoded", [False, True])
@given(st.sets(st.binary(max_size=40), min_size=1) | st.sets(st.text(max_size=40), min_size=1))
@example({b"x" * length for length in LENGTHS} | {b"a" * 31, b"z", b"ab"})
@example({"x" * length for length in LENGTHS} | {"a" * 31, "z", "ab"})
@example({"zz", "\u00e9", "\u00e9a", "\uffff", "\U00010000", "abcd"})
def test_keys_with_a_length_are_written_in_the_order_of_their_encoding(encoded: bool, keys: set[Any]) -> None:
    """Bytes and text of every length, inside ASCII and outside it."""
    assert_columns({key: [str(key)] for key in keys}, encoded=encoded)


def assert_columns(entries: dict[Any, Any], *, encoded: bool) -> None:
    """The columns hold the entries in the order of the encoded keys."""
    table = StateTable("s", StateKind.VALUE, codec, lambda key: 0, KeyGroupRange(0, 0), 10)
    stored = {key: codec.pack(value) for key, value in entries.items()} if encoded else entries
    block = table.encode_block(StateId("s", False, StateKind.VALUE.value), FrozenShard(stored, encoded))
    in_order = sorted(entries, key=codec.encode)

    assert block.keys == codec.array_header(len(entries)) + b"".join(map(codec.encode, in_order))
    assert codec.decode(block.values) == [entries[key] for key in in_order]
    assert block.num_entries == len(entries)
