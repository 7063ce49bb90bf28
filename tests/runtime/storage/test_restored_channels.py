"""Records in flight of a checkpoint go to the channels of another plan: each once, in order, to the right channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.checkpoint.restore import NoRestart
from engine.elements.batch import Batch
from engine.elements.errors import JobChangedError, UserFunctionError
from engine.graph.job import Job
from engine.graph.plan import ExecutionPlan
from engine.graph.stream import Stream
from engine.observe.trace_events import RecordsCaptured
from engine.runtime.config import CostModel
from engine.runtime.storage.restored_channels import InFlight, RestoredChannels, restore_channels
from operators.sources import SequenceSource
from state_backends.base import INT, LONG, STRING, KeyType, key_group_function, operator_index_for_key_group
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import (
    ChannelName,
    ChannelStateHandle,
    ChannelStateResources,
    ChannelStateSnapshotTask,
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    OperatorSnapshot,
    RecordColumns,
    SubtaskSnapshot,
    run_to_completion,
)
from tests.runtime.channels.links import flat
from tests.runtime.support import US, Trace, every, execution, running_count

MAX_PARALLELISM = 12

Pieces = Mapping[tuple[int, int], Sequence[RecordColumns]]
"""By (sender, receiver)."""


def plan(
    senders: int, receivers: int, spread: Callable[[Stream], Any] | None = None, key_type: KeyType | None = None
) -> ExecutionPlan:
    """``numbers`` to ``second`` over one edge: a hash edge that leads to a count, or the edge that ``spread`` makes."""
    job = Job("moved", max_parallelism=MAX_PARALLELISM)
    numbers = job.source(SequenceSource(0, 10, splits=senders), name="numbers", uid="first", parallelism=senders)
    if spread is None:
        keyed = numbers.key_by(lambda number: number % 5, key_type=key_type)
        second = keyed.reduce(max, name="second", uid="second", parallelism=receivers)
    else:
        stream = spread(numbers)
        second = stream.map(lambda number: number, name="second", uid="second", parallelism=receivers, chain=False)
    second.collect([], name="out", uid="out", parallelism=receivers)
    return job.plan()


EDGE = plan(1, 2).edges[0].name


class Checkpoint:
    """A completed checkpoint that holds only records in flight, of one edge between so many subtasks."""

    def __init__(
        self, senders: int, receivers: int, inputs: Pieces, outputs: Pieces | None = None, edge: str = EDGE
    ) -> None:
        storage = CheckpointStorage(MemoryFileSystem(), "/storage", "moved")
        self._location: CheckpointLocation = storage.initialize_location(7)
        self.edge = edge
        first = {sender: self._side(outputs or {}, 0, sender) for sender in range(senders)}
        second = {receiver: self._side(inputs, 1, receiver) for receiver in range(receivers)}
        self.metadata = CheckpointMetadata(
            7,
            0,
            1,
            operators=(
                self._operator(
                    "first", {one: SubtaskSnapshot(output_channels=handle) for one, handle in first.items()}
                ),
                self._operator(
                    "second", {one: SubtaskSnapshot(input_channels=handle) for one, handle in second.items()}
                ),
            ),
        )

    @staticmethod
    def _operator(uid: str, subtasks: dict[int, SubtaskSnapshot]) -> OperatorSnapshot:
        return OperatorSnapshot(uid, uid, len(subtasks), MAX_PARALLELISM, subtasks)

    def _side(self, pieces: Pieces, end: int, subtask: int) -> ChannelStateHandle | None:
        named = [(ChannelName(self.edge, *pair), columns) for pair, columns in pieces.items() if pair[end] == subtask]
        factory = self._location.stream_factory(f"{end}-{subtask}")
        return run_to_completion(ChannelStateSnapshotTask(ChannelStateResources(named), factory)).job_manager_state

    def restore(self, target: ExecutionPlan, allow_non_restored_state: bool = False) -> RestoredChannels:
        return restore_channels(
            self.metadata, target, self._location.reader(), allow_non_restored_state=allow_non_restored_state
        )


def by_pair(target: ExecutionPlan, restored: RestoredChannels) -> dict[tuple[int, int], tuple[list[Any], list[Any]]]:
    """The records that the channels of the first edge got, on the receiver's and on the sender's side."""
    found = {}
    for index, in_flight in restored.channels.items():
        channel = target.channels[index]
        assert channel.edge == 0
        found[channel.sender_subtask, channel.receiver_subtask] = (flat(in_flight.inputs), flat(in_flight.outputs))
    return found


def plain(*values: Any) -> list[RecordColumns]:
    return [RecordColumns(list(values), None, None)]


def keyed(*values: int) -> list[RecordColumns]:
    """Numbers with event times, keyed by their remainder modulo five."""
    return [RecordColumns(list(values), [10 * one for one in values], [one % 5 for one in values])]


# --- nothing has moved ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spread", [None, Stream.rebalance, Stream.global_, lambda one: one.partition_custom(lambda number, _: 0)]
)
def test_with_the_same_parallelism_everybody_gets_back_what_was_his(spread: Any) -> None:
    """Receiver's part and sender's part of each channel; no record is filtered, whatever it looks like."""
    target = plan(2, 3, spread)
    held = keyed if spread is None else plain
    checkpoint = Checkpoint(2, 3, {(0, 1): held(1, 2), (1, 1): held(3)}, {(0, 1): held(4), (1, 2): held(5)})

    restored = checkpoint.restore(target)

    assert restored.any
    assert by_pair(target, restored) == {(0, 1): ([1, 2], [4]), (1, 1): ([3], []), (1, 2): ([], [5])}


@pytest.mark.parametrize("spread", [Stream.forward, Stream.rescale, Stream.broadcast])
def test_edges_that_belong_to_pairs_of_subtasks_are_given_back_as_they_were(spread: Any) -> None:
    """They hold records only where an older program let barriers overtake on them; unchanged, that is no problem."""
    target = plan(2, 2, spread)

    restored = Checkpoint(2, 2, {(1, 1): plain("a")}).restore(target)

    assert by_pair(target, restored) == {(1, 1): (["a"], [])}


def test_event_times_and_keys_come_back() -> None:
    """A record is more than its value."""
    target = plan(1, 1)

    restored = Checkpoint(1, 1, {(0, 0): keyed(3, 7)}).restore(target)

    assert restored.channels == {0: InFlight(inputs=[Batch([3, 7], [30, 70], [3, 2])])}


def test_a_checkpoint_without_records_in_flight_restores_none() -> None:
    """Then no task has to wait."""
    restored = Checkpoint(1, 2, {}).restore(plan(1, 2, key_type=LONG))

    assert restored == RestoredChannels(any=False)


# --- other parallelisms -----------------------------------------------------------------------------------------------


@st.composite
def pieces(draw: st.DrawFn, senders: int, receivers: int, values: range) -> dict[tuple[int, int], list[RecordColumns]]:
    """Some channels hold some numbers; each number shows its old channel and its order."""
    pairs = draw(st.lists(st.tuples(st.integers(0, senders - 1), st.integers(0, receivers - 1)), unique=True))
    return {
        pair: [RecordColumns(list(range(first, first + draw(st.integers(1, 9)))), None, None)]
        for pair, first in zip(pairs, values, strict=False)
    }


PARALLELISM = st.integers(1, 5)


def belongs(key: int, receivers: int) -> int:
    group = key_group_function(LONG, MAX_PARALLELISM)(key)
    return operator_index_for_key_group(MAX_PARALLELISM, receivers, group)


@settings(max_examples=60)
@given(st.data(), PARALLELISM, PARALLELISM, PARALLELISM, PARALLELISM)
def test_keyed_records_move_to_the_owner_of_their_key(
    data: st.DataObject, old_senders: int, old_receivers: int, new_senders: int, new_receivers: int
) -> None:
    """None is lost, none comes twice; records of one key that were on one channel keep their order, those of the
    receiver before those of the sender."""
    numbers = data.draw(st.lists(st.integers(0, 40), max_size=30, unique=True))
    sides: list[dict[tuple[int, int], list[RecordColumns]]] = [{}, {}]
    for number in numbers:
        pair = (data.draw(st.integers(0, old_senders - 1)), belongs(number % 5, old_receivers))
        sides[data.draw(st.integers(0, 1))].setdefault(pair, []).extend(keyed(number))
    target = plan(new_senders, new_receivers)

    restored = Checkpoint(old_senders, old_receivers, sides[0], sides[1]).restore(target)

    found: dict[int, list[int]] = {}
    everything: list[int] = []
    for (_, receiver), (inputs, outputs) in by_pair(target, restored).items():
        everything += [*inputs, *outputs]
        if (old_senders, old_receivers) != (new_senders, new_receivers):
            assert all(belongs(number % 5, new_receivers) == receiver for number in [*inputs, *outputs])
        for number in [*inputs, *outputs]:
            found.setdefault(number % 5, []).append(number)
    assert sorted(everything) == sorted(numbers)
    for pair in {*sides[0], *sides[1]}:
        was = flat_columns(sides[0].get(pair, [])) + flat_columns(sides[1].get(pair, []))
        for key in range(5):
            mine = [number for number in was if number % 5 == key]
            channel = [number for number in found.get(key, []) if number in mine]
            assert channel == mine


def flat_columns(columns: Sequence[RecordColumns]) -> list[Any]:
    return [value for one in columns for value in one.values]


@settings(max_examples=60)
@given(st.data(), PARALLELISM, PARALLELISM, PARALLELISM, PARALLELISM, st.sampled_from(("rebalance", "global")))
def test_records_of_nobody_in_particular_are_given_to_somebody_once(
    data: st.DataObject, old_senders: int, old_receivers: int, new_senders: int, new_receivers: int, kind: str
) -> None:
    """Each channel's records stay together and in order."""
    spread = Stream.rebalance if kind == "rebalance" else Stream.global_
    inputs = data.draw(pieces(old_senders, old_receivers, range(0, 10_000, 100)))
    outputs = data.draw(pieces(old_senders, old_receivers, range(50, 10_000, 100)))
    target = plan(new_senders, new_receivers, spread)

    checkpoint = Checkpoint(old_senders, old_receivers, inputs, outputs)
    restored = by_pair(target, checkpoint.restore(target))

    for side, old in enumerate((inputs, outputs)):
        new = [pair_sides[side] for pair_sides in restored.values()]
        assert Counter(one for values in new for one in values) == Counter(
            one for columns in old.values() for one in flat_columns(columns)
        )
        for columns in old.values():
            was = flat_columns(columns)
            assert any(_contains(values, was) for values in new)
    if kind == "global" and (old_senders, old_receivers) != (new_senders, new_receivers):
        assert {receiver for _, receiver in restored} <= {0}


def _contains(values: list[Any], run: list[Any]) -> bool:
    return any(values[at : at + len(run)] == run for at in range(len(values)))


def test_custom_partitioned_records_are_asked_for_again() -> None:
    """Every receiver reads all records and keeps those that today's partitioner sends to it."""
    target = plan(1, 3, lambda stream: stream.partition_custom(lambda number, channels: number % channels))

    restored = Checkpoint(1, 2, {(0, 0): plain(0, 2, 4), (0, 1): plain(1, 3)}, {(0, 1): plain(5)}).restore(target)

    assert by_pair(target, restored) == {(0, 0): ([0, 3], []), (0, 1): ([4, 1], []), (0, 2): ([2], [5])}


def _failing(number: int, channels: int) -> int:
    if number == 4:
        raise ValueError("not four")
    return 0


def test_an_error_of_the_partitioner_names_operator_and_record() -> None:
    """The restore runs the user's code here."""
    target = plan(1, 3, lambda stream: stream.partition_custom(_failing))

    with pytest.raises(UserFunctionError, match=r"(?s)custom partitioner of operator 'numbers'.*not four.*record  4"):
        Checkpoint(1, 2, {(0, 0): plain(2, 4)}).restore(target)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_partitioner_that_names_no_subtask_loses_nothing_silently(wrong: int) -> None:
    """No subtask would get the record."""
    target = plan(1, 3, lambda stream: stream.partition_custom(lambda number, channels: wrong))

    with pytest.raises(UserFunctionError, match=rf"channel {wrong} is not in 0..2"):
        Checkpoint(1, 2, {(0, 0): plain(2)}).restore(target)


@pytest.mark.parametrize("spread", [Stream.rescale, Stream.broadcast])
def test_records_that_belong_to_a_pair_of_subtasks_cannot_move(spread: Any) -> None:
    """The error names the edge, both parallelisms and what to do."""
    target = plan(2, 4, spread)

    with pytest.raises(JobChangedError, match=r"(?s)first>>second#0.*from 2 to 2 subtasks.*now has 2 and 4.*savepoint"):
        Checkpoint(2, 2, {(1, 1): plain("a")}).restore(target)


# --- another job ------------------------------------------------------------------------------------------------------


def test_records_of_an_edge_that_is_gone_are_an_error() -> None:
    """They would be lost silently; the error lists the edges, and says how to drop the records on purpose."""
    checkpoint = Checkpoint(1, 2, {(0, 0): plain(1)}, {(0, 1): plain(2)}, edge="first>>gone#0")

    with pytest.raises(
        JobChangedError, match=r"(?s)checkpoint 7 holds records in flight.*  first>>gone#0\n.*allow-non-restored-state"
    ):
        checkpoint.restore(plan(1, 2))

    restored = checkpoint.restore(plan(1, 2), allow_non_restored_state=True)
    assert restored.dropped == ("records in flight on first>>gone#0",)
    assert restored.channels == {}
    assert restored.any


def test_records_without_keys_cannot_go_on_to_a_keyed_operator() -> None:
    """The edge was not a hash edge when they were captured."""
    checkpoint = Checkpoint(1, 2, {(0, 1): plain(1, 2)})

    for receivers in (2, 3):
        with pytest.raises(JobChangedError, match=rf"(?s){EDGE}.*no keys.*spreads them by key.*savepoint"):
            checkpoint.restore(plan(1, receivers))


def test_the_type_of_keys_is_settled_by_what_was_in_flight() -> None:
    """A key of another type is refused as before the crash; a declared type is kept."""
    words = [RecordColumns(["x"], None, ["a key"])]
    target = plan(1, 2)

    assert Checkpoint(1, 2, {(0, 0): words}).restore(target).key_types == {target.edges[0].target_vertex: STRING}
    assert Checkpoint(1, 2, {}, {(0, 0): keyed(1)}).restore(target).key_types == {target.edges[0].target_vertex: LONG}
    declared = plan(1, 2, key_type=INT)
    assert Checkpoint(1, 2, {(0, 0): keyed(1)}).restore(declared).key_types == {1: INT}


# --- a whole job ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["unaligned", "aligned-timeout"])
def test_what_comes_back_is_what_the_trace_saw_captured(mode: str) -> None:
    """Of the checkpoint that a crash goes back to: by channel, side and record."""
    trace = Trace()
    job = running_count(Job("crashed", parallelism=2), 4_000, [], keys=7)
    made = execution(
        job,
        mode=mode,
        instruments=[trace],
        batch_size=8,
        channel_capacity=64,
        output_capacity=32,
        checkpoint_interval=every(ns=400 * US),
        cost=CostModel(record_ns=3 * US),
        kills=[("count[1]", 2_000 * US)],
        restart=NoRestart(),
        **({"aligned_timeout_ns": 30 * US} if mode == "aligned-timeout" else {}),
    )
    assert made.run().state == "failed"

    restored, problems = made.manager.files.latest()

    assert restored is not None
    assert not problems
    captured: Counter[tuple[int, str]] = Counter()
    for one in trace.of(RecordsCaptured):
        if one.checkpoint_id == restored.checkpoint_id:
            captured[one.channel, one.side] += one.records
    found: Counter[tuple[int, str]] = Counter()
    for index, in_flight in restored.channels.items():
        found[index, "input"] += len(flat(in_flight.inputs))
        found[index, "output"] += len(flat(in_flight.outputs))
    assert +found == captured
    assert {side for _, side in captured} == {"input", "output"}
