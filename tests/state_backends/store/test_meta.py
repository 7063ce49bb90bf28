"""The meta data that travels beside the files of a store."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from state_backends.base import (
    LONG,
    STRING,
    CorruptStateError,
    KeyGroupRange,
    StateArgumentError,
    StateSchemaError,
    tuple_of,
)
from state_backends.codec import default_codec, seal
from state_backends.rows import group_prefix, part_prefix
from state_backends.snapshots import StateId
from state_backends.store.meta import FORMAT_VERSION, MAGIC, StoreMeta, clip_ranges, next_state_id
from tests.state_backends.snapshots.test_damage import damaged_copies

codec = default_codec()
PLAIN, NAMESPACED = StateId("a", False, "value"), StateId("a", True, "value")
META = StoreMeta(tuple_of(LONG, STRING), 128, KeyGroupRange(3, 9), ((0, PLAIN), (7, NAMESPACED)), [["a"], []])


@pytest.mark.parametrize("meta", [META, replace(META, key_type=None, states=(), schema=None)])
def test_it_comes_back(meta: StoreMeta) -> None:
    """Every field, absent ones too."""
    assert StoreMeta.from_bytes(meta.to_bytes(codec), "m", codec) == meta


def test_damage_is_found() -> None:
    """Every flipped byte and every truncation."""
    for damaged in damaged_copies(META.to_bytes(codec)):
        with pytest.raises(CorruptStateError, match=r"^m: "):
            StoreMeta.from_bytes(damaged, "m", codec)


def test_what_a_newer_program_wrote_is_refused() -> None:
    """A newer format, and a kind of state that is not known."""
    unknown = replace(META, states=((0, StateId("a", False, "trie")),))
    with pytest.raises(StateSchemaError, match="of kind 'trie'"):
        StoreMeta.from_bytes(unknown.to_bytes(codec), "m", codec)
    with pytest.raises(StateSchemaError, match="format version 2"):
        StoreMeta.from_bytes(seal(MAGIC, FORMAT_VERSION + 1, b""), "m", codec)


@pytest.mark.parametrize("states", [((0, PLAIN), (0, NAMESPACED)), ((0, PLAIN), (1, PLAIN))])
def test_ids_and_states_are_one_to_one(states: tuple[tuple[int, StateId], ...]) -> None:
    """Otherwise rows would count as those of another state."""
    with pytest.raises(CorruptStateError, match="same id, or two ids"):
        StoreMeta.from_bytes(replace(META, states=states).to_bytes(codec), "m", codec)


def test_merging_gives_every_state_one_id() -> None:
    """The own ids stay, the other's are translated, new states get new ids."""
    other = replace(META, states=((0, NAMESPACED), (3, StateId("b", False, "map")), (7, PLAIN)))
    merged, new_ids = META.merged(other)

    assert merged.states == ((0, PLAIN), (7, NAMESPACED), (8, StateId("b", False, "map")))
    assert new_ids == {0: 7, 3: 8, 7: 0}
    assert replace(META, key_type=None).merged(other)[0].key_type == META.key_type


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(META, key_type=LONG), "keys of different types"),
        (replace(META, max_parallelism=64), "different max parallelisms, 128 and 64"),
        (replace(META, states=((0, StateId("a", True, "list")),)), "'a' is value state in one part"),
    ],
)
def test_what_does_not_belong_together_is_refused(other: StoreMeta, message: str) -> None:
    """Two parts of one snapshot agree on keys, key groups and kinds of states."""
    with pytest.raises(StateSchemaError, match=message):
        META.merged(other)


def test_there_are_only_so_many_ids() -> None:
    """An id must fit into two bytes of a row."""
    assert next_state_id([]) == 0
    assert next_state_id([65_534]) == 65_535
    with pytest.raises(StateArgumentError, match="more than 65536 states"):
        next_state_id([65_535])


@given(st.integers(0, 32_767), st.integers(0, 32_767), st.integers(0, 32_767), st.binary(max_size=2))
def test_a_clip_keeps_exactly_the_own_groups(one: int, two: int, group: int, rest: bytes) -> None:
    """A row is in a range that is deleted if its group is another's."""
    groups = KeyGroupRange(min(one, two), max(one, two))
    for state_id in (0, 65_535):
        row = part_prefix(group, state_id) + rest
        deleted = any(first <= row < end for first, end in clip_ranges(groups))
        assert deleted == (group not in groups)
    assert all(first < end for first, end in clip_ranges(groups))
    assert clip_ranges(KeyGroupRange(0, 32_767)) == []
    assert group_prefix(group) < group_prefix(group + 1)
