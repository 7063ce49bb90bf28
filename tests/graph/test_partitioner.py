"""Routers: every record goes where its edge says, however the stream is cut into batches."""

from __future__ import annotations

import re
import traceback
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import KeyTypeMismatchError, UserFunctionError
from engine.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    ForwardPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    KeyTypeAgreement,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    RouterContext,
)
from state_backends.base import INT, LONG, key_group_for, operator_index_for_key_group
from tests.graph.graphs import identity

MAX_PARALLELISM = 128


def context(channels: int) -> RouterContext:
    return RouterContext("sender", 0, 3, channels, MAX_PARALLELISM)


def routed(partitioner: Partitioner, channels: int, batches: list[Batch]) -> dict[int, list[Any]]:
    """(value, timestamp) of every record by the channel it went to, for batches given in order."""
    router = partitioner.router(context(channels))
    arrived: dict[int, list[Any]] = {channel: [] for channel in range(channels)}
    for batch in batches:
        parts = router.route(batch)
        assert [channel for channel, _ in parts] == sorted({channel for channel, _ in parts})
        for channel, part in parts:
            assert len(part) > 0
            arrived[channel] += zip(part.values, part.timestamps or [None] * len(part), strict=True)
    return arrived


def cut(values: list[int], cuts: list[int]) -> list[Batch]:
    """The values as batches that end at the given places, the value being its own timestamp."""
    bounds = [0, *sorted(c % (len(values) + 1) for c in cuts), len(values)]
    parts = [values[a:b] for a, b in pairwise(bounds)]
    return [Batch(part, list(part)) for part in parts if part]


numbers = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60)
cuts = st.lists(st.integers(0, 60), max_size=5)
partitioners = st.sampled_from(
    [
        HashPartitioner(identity),
        HashPartitioner(identity, key_type=INT),
        RebalancePartitioner(),
        RescalePartitioner(),
        BroadcastPartitioner(),
        GlobalPartitioner(),
        CustomPartitioner(lambda value, channels: value % channels),
    ]
)


@given(partitioners, st.integers(1, 5), numbers, cuts)
def test_batch_boundaries_have_no_meaning(
    partitioner: Partitioner, channels: int, values: list[int], at: list[int]
) -> None:
    """Every cut of the stream sends the same records, in the same order, to the same channels."""
    whole = cut(values, [])

    assert routed(partitioner, channels, cut(values, at)) == routed(partitioner, channels, whole)


@given(partitioners, st.integers(1, 5), numbers)
def test_no_record_is_lost(partitioner: Partitioner, channels: int, values: list[int]) -> None:
    """Every record arrives once (on every channel when broadcast), in order, with its timestamp."""
    arrived = routed(partitioner, channels, cut(values, []))

    copies = channels if isinstance(partitioner, BroadcastPartitioner) else 1
    together = [record for records in arrived.values() for record in records]
    assert sorted(together) == sorted([(value, value) for value in values] * copies)
    position = {value: index for index, value in enumerate(values)}
    if len(position) == len(values):
        for records in arrived.values():
            order = [position[value] for value, _ in records]
            assert order == sorted(order)


@given(st.sampled_from([RebalancePartitioner(), RescalePartitioner()]), st.integers(1, 5), numbers)
def test_round_robin(partitioner: Partitioner, channels: int, values: list[int]) -> None:
    """Record i goes to channel i mod n."""
    arrived = routed(partitioner, channels, cut(values, []))

    assert [[value for value, _ in arrived[channel]] for channel in range(channels)] == [
        values[channel::channels] for channel in range(channels)
    ]


@given(st.integers(1, 5), numbers, st.sampled_from([None, INT]))
def test_hash_sends_a_key_to_the_owner_of_its_group(channels: int, values: list[int], key_type: Any) -> None:
    """The receiver of a record is the subtask whose key groups hold its key, for the declared key type."""
    arrived = routed(HashPartitioner(identity, key_type=key_type), channels, cut(values, []))

    for channel, records in arrived.items():
        for key, _ in records:
            group = key_group_for(key, MAX_PARALLELISM, key_type)
            assert operator_index_for_key_group(MAX_PARALLELISM, channels, group) == channel


def test_hash_keys_and_selects() -> None:
    """The key selector makes the keys; the value selector makes the values that are sent."""
    router = HashPartitioner(lambda v: v[0], lambda v: v[1]).router(context(1))

    assert router.route(Batch([("a", 1), ("b", 2)])) == [(0, Batch([1, 2], None, ["a", "b"]))]


def test_keys_and_timestamps_travel_with_their_record() -> None:
    """A record takes its key and its timestamp with it; without timestamps none are invented."""
    records = [(key, f"v{key}") for key in range(50)]
    router = HashPartitioner(lambda v: v[0], lambda v: v[1]).router(context(3))
    parts = [part for _, part in router.route(Batch(records, [10 * key for key, _ in records]))]

    assert len(parts) == 3
    for part in parts:
        assert part.keys is not None
        assert part.values == [f"v{key}" for key in part.keys]
        assert part.timestamps == [10 * key for key in part.keys]
    assert {part.timestamps for _, part in router.route(Batch(records))} == {None}


def test_senders_share_what_they_know_of_a_key() -> None:
    """The channel of a key is worked out once per edge, and apart for each key type and number of channels."""
    partitioner = HashPartitioner(identity)
    first, second, wider = (partitioner.router(context(channels)) for channels in (4, 4, 8))
    batch = Batch(list(range(200)))

    routed_by_first = first.route(batch)
    assert second.route(batch) == routed_by_first
    assert partitioner.key_to_channel(LONG, MAX_PARALLELISM, 4) is partitioner.key_to_channel(LONG, MAX_PARALLELISM, 4)
    assert len(partitioner.key_to_channel(LONG, MAX_PARALLELISM, 4)) == 200
    assert {channel for channel, _ in wider.route(batch)} == set(range(8))
    # False is found under 0 in a dict, but is a key of another type with another key group.
    expected = operator_index_for_key_group(MAX_PARALLELISM, 4, key_group_for(False, MAX_PARALLELISM))
    assert [channel for channel, _ in partitioner.router(context(4)).route(Batch([False]))] == [expected]
    assert partitioner == HashPartitioner(identity)


@pytest.mark.parametrize("partitioner", [ForwardPartitioner(), GlobalPartitioner()])
def test_one_channel_is_used(partitioner: Partitioner) -> None:
    """Forward and global hand the batch on as it is, to the first channel."""
    batch = Batch([1, 2], [3, 4], ["k", "k"])
    ((channel, part),) = partitioner.router(context(4)).route(batch)

    assert channel == 0
    assert part is batch


def test_key_of_another_type_is_refused() -> None:
    """The first key fixes the type of an undeclared key; the error names the first record of another type."""
    router = HashPartitioner(identity).router(context(2))
    router.route(Batch([1]))

    with pytest.raises(KeyTypeMismatchError, match=r"(?s)after 'sender'.*record  '2'.*attempt 3"):
        router.route(Batch([1, "2", "3"]))


@pytest.mark.parametrize(("key", "other"), [(1, True), (1, 1.0), ("1", 1), ((1,), (True,))])
def test_records_that_come_alone_have_their_keys_checked(key: Any, other: Any) -> None:
    """Although they take the short way, and although Python takes some of these keys for the same."""
    router = HashPartitioner(identity).router(context(2))
    for _ in range(3):
        router.route(Batch([key]))

    with pytest.raises(KeyTypeMismatchError, match="wrong type"):
        router.route(Batch([other]))


def test_key_too_wide_for_its_type_is_refused() -> None:
    """An int that does not fit the declared type is found when its key group is computed."""
    router = HashPartitioner(identity, key_type=INT).router(context(2))

    with pytest.raises(KeyTypeMismatchError, match=r"record  2147483648\n"):
        router.route(Batch([1, 2**31]))


def test_empty_batch_goes_nowhere() -> None:
    """A batch without records is allowed and fixes no key type."""
    router = HashPartitioner(identity).router(context(2))

    assert router.route(Batch([])) == []


def test_declared_key_type_is_checked() -> None:
    """A declared type holds from the first key on, and True is no int."""
    router = HashPartitioner(identity, key_type=INT).router(context(2))

    with pytest.raises(KeyTypeMismatchError, match=re.escape("declare the type with key_by(..., key_type=...)")):
        router.route(Batch([True]))


@pytest.mark.parametrize(
    ("partitioner", "what"),
    [
        (HashPartitioner(lambda v: 1 // v), "key selector"),
        (HashPartitioner(identity, lambda v: 1 // v), "value selector"),
        (CustomPartitioner(lambda v, n: 1 // v), "custom partitioner"),
    ],
)
def test_failing_function_names_the_record(partitioner: Partitioner, what: str) -> None:
    """A selector that raises is reported with operator, record and attempt."""
    router = partitioner.router(context(2))

    with pytest.raises(UserFunctionError, match=rf"(?s){what} of operator 'sender'.*record  0\n.*attempt 3"):
        router.route(Batch([1, 0, 2]))


@pytest.mark.parametrize(
    ("partitioner", "what"),
    [
        (HashPartitioner(lambda record: record[1]), "key selector"),
        (HashPartitioner(lambda record: record[0], lambda record: record[1]), "value selector"),
    ],
)
def test_failing_selector_done_in_c_shows_the_function_of_the_user(partitioner: Partitioner, what: str) -> None:
    """A selector of an item is not called, and yet its error has record, operator and the line of the function."""
    with pytest.raises(UserFunctionError, match=rf"{what} of operator 'sender' raised IndexError: ") as caught:
        partitioner.router(context(2)).route(Batch([(1, 2), (3,), (4, 5)]))

    assert caught.value.record == (3,)
    assert caught.value.__cause__ is not None
    assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name == "<lambda>"


class _Stops(tuple[int, ...]):
    def __getitem__(self, at: Any) -> Any:
        if len(self) == 1:
            raise StopIteration
        return super().__getitem__(at)


def test_selector_done_in_c_that_raises_stop_iteration_loses_nothing() -> None:
    """The error is that of any function that lets a StopIteration escape."""
    router = HashPartitioner(lambda record: record[0]).router(context(1))

    with pytest.raises(UserFunctionError, match="the function let a StopIteration escape") as caught:
        router.route(Batch([_Stops([1, 2]), _Stops([3])]))

    assert caught.value.record == (3,)


def test_selector_that_raises_stop_iteration_loses_nothing() -> None:
    """A StopIteration out of a selector is an error like any other, not the quiet end of the batch."""

    def stops(value: int) -> int:
        return next(iter([value] if value else []))

    with pytest.raises(UserFunctionError, match=r"record  0\n"):
        HashPartitioner(stops).router(context(1)).route(Batch([1, 0, 2]))


@pytest.mark.parametrize("target", [-1, 2])
def test_custom_partitioner_out_of_range(target: int) -> None:
    """A channel that does not exist is refused."""
    router = CustomPartitioner(lambda value, channels: target).router(context(2))

    with pytest.raises(UserFunctionError, match=rf"channel {target} is not in 0\.\.1"):
        router.route(Batch([7]))


def test_round_robin_goes_on_where_it_stopped() -> None:
    """Only the round-robin router has state, and its fingerprint is that state."""
    router = RebalancePartitioner().router(context(3))
    router.route(Batch([1, 2, 3, 4]))

    assert router.fingerprint() == 1
    assert BroadcastPartitioner().router(context(3)).fingerprint() is None


def test_senders_agree_on_the_type_of_undeclared_keys() -> None:
    """The first key that one sender sees fixes the type for all: 1 and True would meet in one cell of state."""
    agreement = KeyTypeAgreement()
    senders = [
        HashPartitioner(identity).router(RouterContext(name, 0, 3, 1, MAX_PARALLELISM, agreement)) for name in "ab"
    ]
    senders[0].route(Batch([1]))

    with pytest.raises(KeyTypeMismatchError, match=r"(?s)after 'b'.*record  True"):
        senders[1].route(Batch([True]))
