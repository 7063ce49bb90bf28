"""Records under way at a change of parallelism: laws of the mappers, and plans for whole edges.

The recorded layouts are replayed by the conformance tests.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.restore import ChannelStateEdge, UnsupportedMappingError, needs_filter, plan_channel_state
from engine.checkpoint.restore.state_mapping import (
    PARTITIONER_STATE_MAPPINGS,
    SubtaskStateMapper,
    redistribute_channel_state,
)
from engine.elements.errors import JobChangedError
from engine.graph import partitioner as partitioners
from state_backends.base import UPPER_BOUND_MAX_PARALLELISM, operator_index_for_key_group
from state_backends.base.key_groups import key_group_ranges

MOVING = tuple(mapper for mapper in SubtaskStateMapper if mapper is not SubtaskStateMapper.UNSUPPORTED)
PARALLELISM = st.integers(1, 9)


def edge(partitioner: str, old: tuple[int, int], new: tuple[int, int], max_parallelism: int = 128) -> ChannelStateEdge:
    return ChannelStateEdge("map -> sum", partitioner, *old, *new, max_parallelism)


def one_piece_each(senders: int, receivers: int) -> dict[tuple[int, int], str]:
    return {(a, b): f"{a}{b}" for a in range(senders) for b in range(receivers)}


@given(st.sampled_from(MOVING), PARALLELISM, PARALLELISM)
def test_nothing_is_forgotten_and_ambiguity_is_having_several_readers(
    mapper: SubtaskStateMapper, old: int, new: int
) -> None:
    """Every old subtask feeds somebody, and is called ambiguous exactly when it feeds more than one."""
    mapping = mapper.mapping(old, new)
    readers = Counter(subtask for feeding in mapping.new_to_old for subtask in feeding)

    assert len(mapping.new_to_old) == new
    assert sorted(readers) == list(range(old))
    assert mapping.ambiguous_old == tuple(subtask for subtask in range(old) if readers[subtask] > 1)
    assert all(list(feeding) == sorted(feeding) for feeding in mapping.new_to_old)
    assert [mapping.is_ambiguous(subtask) for subtask in range(old)] == [readers[s] > 1 for s in range(old)]


@given(PARALLELISM, PARALLELISM, st.integers(9, 40))
def test_range_is_overlap_of_key_groups(old: int, new: int, max_parallelism: int) -> None:
    """RANGE reads an old subtask exactly when some key group moves from it to the reader."""
    wanted = [
        tuple(sorted({operator_index_for_key_group(max_parallelism, old, group) for group in own}))
        for own in key_group_ranges(max_parallelism, new)
    ]

    assert tuple(wanted) == SubtaskStateMapper.RANGE.mapping(old, new, max_parallelism).new_to_old


def test_the_mapper_alone_takes_the_largest_number_of_key_groups() -> None:
    """Without a max parallelism RANGE is computed with 32,768 groups, as in Flink."""
    mapper = SubtaskStateMapper.RANGE

    assert mapper.mapping(3, 7) == mapper.mapping(3, 7, UPPER_BOUND_MAX_PARALLELISM)
    assert mapper.mapping(3, 4, 4) != mapper.mapping(3, 4)


@given(PARALLELISM, PARALLELISM)
def test_a_sender_is_moved_to_one_sender(old: int, new: int) -> None:
    """ARBITRARY gives each old sender to exactly one new one, or records would be sent twice."""
    mapping = SubtaskStateMapper.ARBITRARY.mapping(old, new)

    assert sorted(subtask for feeding in mapping.new_to_old for subtask in feeding) == list(range(old))


def test_every_partitioner_has_its_mappers() -> None:
    """Every partitioner has mappers; those that refuse unaligned barriers are the pointwise ones and broadcast."""
    names = {}
    for _, cls in inspect.getmembers(partitioners, inspect.isclass):
        if cls.__name__.endswith("Partitioner") and cls is not partitioners.Partitioner:
            fields = {field.name: field.default for field in dataclasses.fields(cls)}
            names[fields["name"]] = fields["pointwise"]

    assert PARTITIONER_STATE_MAPPINGS.keys() == {*names, "shuffle"}
    for name, pointwise in names.items():
        mapping = PARTITIONER_STATE_MAPPINGS[name]
        assert mapping.is_unaligned_refused == (pointwise or name == "broadcast")
        assert mapping.is_unaligned_refused == (mapping.downstream is SubtaskStateMapper.UNSUPPORTED)
        assert mapping.is_unaligned_refused == (mapping.upstream is SubtaskStateMapper.UNSUPPORTED)


@pytest.mark.parametrize("partitioner", sorted(PARTITIONER_STATE_MAPPINGS))
def test_unchanged_ends_get_back_their_own(partitioner: str) -> None:
    """With the same parallelism at both ends each subtask reads its own records, unfiltered, in any partitioner."""
    old = {(1, 0): "x", (0, 1): "y"}
    same = edge(partitioner, (2, 2), (2, 2))

    plan = plan_channel_state(same, old)

    assert list(plan.items()) == [((0, 1), (((0, 1), "y"),)), ((1, 0), (((1, 0), "x"),))]
    assert not any(needs_filter(same, receiver) for receiver in range(2))


def test_hash_edge_scaled_up() -> None:
    """Receivers that share the key groups of an old one all read its records and filter; senders are distributed."""
    scaled = edge("hash", (1, 2), (2, 3))

    plan = plan_channel_state(scaled, {(0, 0): "a", (0, 1): "b"})

    assert plan == {(0, 0): (((0, 0), "a"),), (0, 1): (((0, 0), "a"), ((0, 1), "b")), (0, 2): (((0, 1), "b"),)}
    assert [needs_filter(scaled, receiver) for receiver in range(2)] == [True, True]


def test_hash_edge_scaled_down_filters_only_what_is_shared() -> None:
    """Of three old receivers on two new ones only the middle one has two readers."""
    scaled = edge("hash", (1, 3), (1, 2))

    assert [needs_filter(scaled, receiver) for receiver in range(3)] == [False, True, False]


def test_pieces_of_a_pair_come_in_the_order_of_the_old_pairs() -> None:
    """Whatever the order in which they were stored, one new channel reads them by old sender, then receiver."""
    scaled = edge("rebalance", (3, 3), (1, 1))
    shuffled = dict(sorted(one_piece_each(3, 3).items(), key=lambda item: item[1][::-1], reverse=True))

    (pieces,) = plan_channel_state(scaled, shuffled).values()

    assert [pair for pair, _ in pieces] == sorted(shuffled)
    assert not any(needs_filter(scaled, receiver) for receiver in range(3))


def test_plans_are_in_the_order_of_the_new_pairs() -> None:
    """Whatever the order in which old pairs map to new ones: the plan is the same, byte for byte."""
    scaled = edge("rebalance", (4, 1), (3, 1))

    planned = plan_channel_state(scaled, {(1, 0): "x", (3, 0): "y"})

    assert list(planned.items()) == [((0, 0), (((3, 0), "y"),)), ((1, 0), (((1, 0), "x"),))]


def test_global_edge_reads_at_the_first_receiver() -> None:
    """All records of a global edge go to receiver 0."""
    scaled = edge("global", (2, 3), (1, 2))

    assert plan_channel_state(scaled, {(0, 0): "a", (1, 0): "b"}) == {(0, 0): (((0, 0), "a"), ((1, 0), "b"))}


def test_custom_edge_is_read_by_all_when_only_its_senders_changed() -> None:
    """A custom partitioner may send anywhere, so every receiver reads all records and filters."""
    scaled = edge("custom", (2, 2), (1, 2))

    plan = plan_channel_state(scaled, {(0, 0): "a", (1, 1): "b"})

    everything = (((0, 0), "a"), ((1, 1), "b"))
    assert plan == {(0, 0): everything, (0, 1): everything}
    assert needs_filter(scaled, 0)
    assert needs_filter(scaled, 1)


def test_a_single_reader_filters_nothing() -> None:
    """A single receiver takes all records as they are, also after a custom partitioner."""
    scaled = edge("custom", (2, 3), (2, 1))

    assert not any(needs_filter(scaled, receiver) for receiver in range(3))


@pytest.mark.parametrize("partitioner", ["forward", "rescale", "broadcast"])
def test_unsupported_edges_say_what_to_do(partitioner: str) -> None:
    """Records on a pointwise or broadcast edge whose parallelism changed raise an error that names edge and remedy."""
    changed = edge(partitioner, (2, 2), (3, 3))
    message = (
        "edge 'map -> sum': the checkpoint holds records that were under way from 2 to 2 subtasks, and the job now has "
        f"3 and 3\n  records on a {partitioner} edge belong to one pair of subtasks and cannot be given to another\n"
        "  keep the parallelism of both operators, or restore from a savepoint, which never holds such records"
    )

    with pytest.raises(JobChangedError, match=f"^{re.escape(message)}$"):
        plan_channel_state(changed, {(0, 0): "a"})
    with pytest.raises(UnsupportedMappingError):
        needs_filter(changed, 0)


def test_an_unsupported_edge_without_records_may_change() -> None:
    """Without records in flight there are none to move."""
    assert plan_channel_state(edge("forward", (2, 2), (3, 3)), {}) == {}


def test_a_piece_of_an_unknown_subtask_is_a_bug() -> None:
    """Pieces of subtasks that the old job did not have are refused."""
    for pair in ((2, 0), (0, 2), (-1, 0)):
        with pytest.raises(AssertionError):
            plan_channel_state(edge("hash", (2, 2), (2, 2)), {pair: "a"})
    with pytest.raises(AssertionError):
        needs_filter(edge("hash", (2, 2), (2, 2)), 2)


def test_redistribution_concatenates() -> None:
    """A new subtask gets the pieces of one old subtask after those of the other."""
    assert redistribute_channel_state(SubtaskStateMapper.ROUND_ROBIN, [["a", "b"], ["c"], ["d"]], 2) == (
        ("a", "b", "d"),
        ("c",),
    )


PARALLEL_PAIR = st.tuples(st.integers(1, 6), st.integers(1, 6))


@given(st.sampled_from(["hash", "rebalance", "shuffle"]), PARALLEL_PAIR, PARALLEL_PAIR, st.integers(6, 64))
def test_each_record_is_kept_by_exactly_one_reader(
    partitioner: str, old: tuple[int, int], new: tuple[int, int], max_parallelism: int
) -> None:
    """Records of every key group under way, read and filtered as planned, are each processed once, on a hash edge by
    the owner of the key."""
    scaled = edge(partitioner, old, new, max_parallelism)
    under_way: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for sender in range(old[0]):
        for group in range(max_parallelism):
            receiver = operator_index_for_key_group(max_parallelism, old[1], group)
            under_way.setdefault((sender, receiver), []).append((sender, group))

    seen: Counter[Any] = Counter()
    for (_, receiver), pieces in plan_channel_state(scaled, under_way).items():
        for (_, old_receiver), records in pieces:
            for record in records:
                owner = operator_index_for_key_group(max_parallelism, new[1], record[1])
                if not needs_filter(scaled, old_receiver) or owner == receiver:
                    seen[record] += 1
                    assert partitioner != "hash" or owner == receiver

    assert seen == Counter((sender, group) for sender in range(old[0]) for group in range(max_parallelism))


def test_overlaps_too_small_for_the_fixed_grid_are_met() -> None:
    """With hundreds of subtasks on both sides a plan still gives every key group's records to their new owner."""
    max_parallelism, old, new = 32_700, 500, 501
    scaled = edge("hash", (1, old), (1, new), max_parallelism)

    plan = plan_channel_state(scaled, {(0, receiver): receiver for receiver in range(old)})

    for group in range(max_parallelism):
        was = operator_index_for_key_group(max_parallelism, old, group)
        now = operator_index_for_key_group(max_parallelism, new, group)
        assert ((0, was), was) in plan[0, now], group
