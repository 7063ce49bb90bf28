"""Moving state to another parallelism: worked examples and laws."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.restore.redistribution import (
    KeyedStatePart,
    OperatorStatePart,
    keyed_state_parts,
    redistribute_operator_state,
)
from state_backends.base import KeyGroupRange
from state_backends.base.key_groups import key_group_ranges
from state_backends.snapshots import OperatorStateMode, StateOffsets

SPLIT, UNION, BROADCAST = (OperatorStateMode.SPLIT_DISTRIBUTE, OperatorStateMode.UNION, OperatorStateMode.BROADCAST)

Layout = list[dict[str, dict[str, list[int]]]]


def layout(shares: tuple[tuple[OperatorStatePart[str], ...], ...]) -> Layout:
    """Per new subtask: stream -> name -> offsets."""
    return [
        {part.stream: {name: list(one.offsets) for name, one in part.states.items()} for part in share}
        for share in shares
    ]


def one(stream: str, mode: OperatorStateMode, **states: list[int]) -> list[OperatorStatePart[str]]:
    return [OperatorStatePart(stream, {name: StateOffsets(mode, tuple(at)) for name, at in states.items()})]


def test_worked_example_with_one_name() -> None:
    """Six items of two subtasks on three: two each, contiguous."""
    old = [one("h0", SPLIT, a=[0, 1, 2]), one("h1", SPLIT, a=[10, 11, 12])]

    assert layout(redistribute_operator_state(old, 3)) == [
        {"h0": {"a": [0, 1]}},
        {"h0": {"a": [2]}, "h1": {"a": [10]}},
        {"h1": {"a": [11, 12]}},
    ]


def test_worked_example_with_two_names() -> None:
    """The extra item of the second name goes to the target after the one that got the extra item of the first."""
    old = [one("h", SPLIT, a=[0, 1, 2, 3], b=[100, 101])]

    assert layout(redistribute_operator_state(old, 3)) == [
        {"h": {"a": [0, 1]}},
        {"h": {"a": [2], "b": [100]}},
        {"h": {"a": [3], "b": [101]}},
    ]


def test_same_parallelism_is_an_exact_hand_back() -> None:
    """Unequal and empty split lists stay with their subtask."""
    old = [one("h0", SPLIT, a=[0, 1, 2]), one("h1", SPLIT, a=[]), []]

    assert layout(redistribute_operator_state(old, 3)) == [{"h0": {"a": [0, 1, 2]}}, {"h1": {"a": []}}, {}]


def test_union_lists_go_everywhere_even_unscaled() -> None:
    """A union list is given whole to every subtask also when the parallelism is unchanged."""
    old = [one("h0", UNION, u=[1]), one("h1", UNION, u=[2])]
    everything = {"h0": {"u": [1]}, "h1": {"u": [2]}}

    assert [everything, everything] == layout(redistribute_operator_state(old, 2))


def test_broadcast_copies_are_dealt_out_modulo_the_reporters() -> None:
    """A subtask without its own copy gets one from those that reported."""
    old: list[list[OperatorStatePart[str]]] = [one("h0", BROADCAST, b=[1]), [], one("h2", BROADCAST, b=[2])]

    assert layout(redistribute_operator_state(old, 3)) == [{"h0": {"b": [1]}}, {"h2": {"b": [2]}}, {"h0": {"b": [1]}}]


def test_modes_are_independent() -> None:
    """One handle may hold a split and a union list; each moves by its own rule and keeps its mode."""
    mixed = OperatorStatePart("h", {"s": StateOffsets(SPLIT, (0, 1)), "u": StateOffsets(UNION, (7,))})

    shares = redistribute_operator_state([[mixed]], 2)

    assert layout(shares) == [{"h": {"s": [0], "u": [7]}}, {"h": {"s": [1], "u": [7]}}]
    assert {name: state.mode for name, state in shares[0][0].states.items()} == {"s": SPLIT, "u": UNION}


PARALLELISM = st.integers(1, 5)


@given(st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=5), PARALLELISM)
def test_split_items_are_neither_lost_nor_doubled(counts: list[list[int]], new_parallelism: int) -> None:
    """The multiset of items is kept, and per name the counts of two subtasks differ by one at most."""
    old = [
        one(f"h{subtask}", SPLIT, **{f"n{name}": list(range(count)) for name, count in enumerate(names)})
        for subtask, names in enumerate(counts)
    ]
    before = items(layout(tuple(map(tuple, old))))
    after_layout = layout(redistribute_operator_state(old, new_parallelism))

    assert before == items(after_layout)
    if len(counts) != new_parallelism:
        for name in {name for _, name, _ in before}:
            sizes = [sum(len(states.get(name, ())) for states in share.values()) for share in after_layout]
            assert max(sizes) - min(sizes) <= 1


def items(shares: Layout) -> Counter[Any]:
    return Counter(
        (stream, name, offset)
        for share in shares
        for stream, states in share.items()
        for name, offsets in states.items()
        for offset in offsets
    )


@given(st.integers(1, 40).flatmap(lambda m: st.tuples(st.just(m), st.integers(1, m), st.integers(1, m))))
def test_every_key_group_is_restored_once(sizes: tuple[int, int, int]) -> None:
    """Over all new subtasks every key group is read exactly once, from the subtask that wrote it."""
    max_parallelism, old_parallelism, new_parallelism = sizes
    ranges = key_group_ranges(max_parallelism, old_parallelism)

    parts = keyed_state_parts(max_parallelism, ranges, new_parallelism)

    read = [group for share in parts for part in share for group in part.key_groups]
    assert read == list(range(max_parallelism))
    assert all(set(part.key_groups) <= set(ranges[part.old_subtask]) for share in parts for part in share)


def test_subtasks_that_wrote_nothing_are_skipped() -> None:
    """A subtask without keyed state is skipped."""
    ranges = [None, KeyGroupRange(4, 7)]

    assert ((), (KeyedStatePart(1, KeyGroupRange(4, 7)),)) == keyed_state_parts(8, ranges, 2)


@pytest.mark.parametrize("new_parallelism", [0, -1])
def test_a_job_has_subtasks(new_parallelism: int) -> None:
    """A parallelism below one is a bug of the caller."""
    with pytest.raises(AssertionError):
        redistribute_operator_state([], new_parallelism)
