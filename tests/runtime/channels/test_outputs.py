"""Outputs: every record that leaves an operator reaches exactly the receivers that the graph says."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, Event, Watermark, WatermarkStatus
from engine.elements.operator import Operator
from engine.graph.partitioner import (
    BroadcastPartitioner,
    CustomPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    Partitioner,
    RebalancePartitioner,
    RescalePartitioner,
    RouterContext,
)
from engine.runtime.channels import ChainOutput, RecordWriter


class Sent:
    def __init__(self) -> None:
        self.elements: list[Any] = []

    def put_batch(self, batch: Batch) -> None:
        """Keep the records; a channel is never given an empty batch."""
        assert batch.values, "an empty batch was sent"
        self.elements.append(batch)

    def put_event(self, event: Event) -> None:
        self.elements.append(event)

    @property
    def values(self) -> list[Any]:
        return [value for one in self.elements if isinstance(one, Batch) for value in one.values]


class Taken(Operator):
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.events: list[Any] = []

    def process_batch(self, batch: Batch) -> None:
        self.values.extend(batch.values)

    def process_watermark(self, timestamp_ms: int) -> None:
        self.events.append(timestamp_ms)

    def process_watermark_status(self, idle: bool) -> None:
        self.events.append(idle)


def writer(partitioner: Partitioner, channels: int) -> tuple[RecordWriter, list[Sent]]:
    sent = [Sent() for _ in range(channels)]
    context = RouterContext("map", 0, 1, channels, 128)
    return RecordWriter(0, partitioner.router(context), sent), sent  # type: ignore[arg-type]


BATCHES = st.lists(st.lists(st.integers(-50, 50), max_size=12), max_size=8)
CHANNELS = st.integers(1, 5)
TO_ONE = st.sampled_from(
    (
        HashPartitioner(abs),
        RebalancePartitioner(),
        RescalePartitioner(),
        GlobalPartitioner(),
        CustomPartitioner(lambda value, channels: value % channels),
    )
)


@given(BATCHES, CHANNELS, TO_ONE)
def test_each_record_goes_to_exactly_one_channel(
    batches: list[list[int]], channels: int, partitioner: Partitioner
) -> None:
    """Nothing is lost or repeated, and each channel sees its records in the order they were emitted."""
    out, sent = writer(partitioner, channels)
    numbered = [[(value, 100 * at + i) for i, value in enumerate(batch)] for at, batch in enumerate(batches)]

    for batch in numbered:
        out.emit(Batch([value for value, _ in batch], [number for _, number in batch]))

    received = [list(zip(one.values, stamps(one), strict=True)) for one in sent]
    assert Counter(record for one in received for record in one) == Counter(
        record for batch in numbered for record in batch
    )
    assert all(one == sorted(one, key=lambda record: record[1]) for one in received)


def stamps(channel: Sent) -> list[int]:
    return [stamp for batch in channel.elements for stamp in batch.timestamps]


@given(BATCHES, CHANNELS)
def test_one_key_always_goes_to_one_channel(batches: list[list[int]], channels: int) -> None:
    """Hash partitioning sends every record of a key the same way, and hands its key along."""
    out, sent = writer(HashPartitioner(abs), channels)

    for batch in batches:
        out.emit(Batch(batch))

    channels_of: dict[int, set[int]] = {}
    for index, one in enumerate(sent):
        for batch in one.elements:
            assert batch.keys == [abs(value) for value in batch.values]
            for key in batch.keys:
                channels_of.setdefault(key, set()).add(index)
    assert all(len(found) == 1 for found in channels_of.values())


@given(BATCHES, CHANNELS)
def test_broadcast_gives_every_channel_everything(batches: list[list[int]], channels: int) -> None:
    """All channels get all records in order."""
    out, sent = writer(BroadcastPartitioner(), channels)

    for batch in batches:
        out.emit(Batch(batch))

    assert all(one.values == [value for batch in batches for value in batch] for one in sent)


@given(st.integers(0, 40), CHANNELS, st.integers(1, 9))
def test_rebalance_does_not_depend_on_how_the_stream_is_cut(count: int, channels: int, batch_size: int) -> None:
    """Record i goes to channel i mod n at every batch size."""
    out, sent = writer(RebalancePartitioner(), channels)

    for start in range(0, count, batch_size):
        out.emit(Batch(list(range(start, min(count, start + batch_size)))))

    assert [one.values for one in sent] == [list(range(first, count, channels)) for first in range(channels)]


def test_events_go_to_every_channel_behind_the_records() -> None:
    """An event is broadcast, however the partitioner treats records, and keeps its place."""
    out, sent = writer(GlobalPartitioner(), 2)
    barrier = CheckpointBarrier(1, 0)

    out.emit(Batch([1]))
    out.broadcast(barrier)
    out.emit(Batch([2]))

    assert sent[0].elements == [Batch([1]), barrier, Batch([2])]
    assert sent[1].elements == [barrier]


def test_an_empty_batch_goes_nowhere() -> None:
    """Operators may emit empty batches; no channel ever carries one."""
    out, sent = writer(BroadcastPartitioner(), 2)

    out.emit(Batch([]))

    assert [one.elements for one in sent] == [[], []]


def test_a_chain_output_feeds_operators_and_edges_alike() -> None:
    """Two receivers of the main output both get every batch, watermark and status."""
    output, operator = ChainOutput(), Taken()
    out, sent = writer(GlobalPartitioner(), 1)
    output.connect_operator(None, operator)
    output.connect_writer(None, out)
    output.seal()

    output.emit(Batch([1, 2]))
    output.emit_watermark(5)
    output.emit_watermark_status(True)

    assert (operator.values, operator.events) == ([1, 2], [5, True])
    assert sent[0].elements == [Batch([1, 2]), Watermark(5), WatermarkStatus(True)]


def test_side_outputs_carry_their_own_records_and_everybodys_time() -> None:
    """A side output sees only records of its tag, but event time advances there too."""
    output, main, late = ChainOutput(), Taken(), Taken()
    out, sent = writer(GlobalPartitioner(), 1)
    output.connect_operator(None, main)
    output.connect_operator("late", late)
    output.connect_writer("late", out)
    output.seal()

    output.emit(Batch([1]))
    output.emit_side("late", Batch([2]))
    output.emit_side("late", Batch([]))
    output.emit_side("nobody reads this", Batch([3]))
    output.emit_watermark(9)

    assert (main.values, main.events) == ([1], [9])
    assert (late.values, late.events) == ([2], [9])
    assert sent[0].elements == [Batch([2]), Watermark(9)]


def test_the_output_of_a_sink_is_dropped() -> None:
    """An operator without receivers may emit."""
    output = ChainOutput()
    output.seal()

    output.emit(Batch([1]))
    output.emit_watermark(1)

    assert (output.operators, output.writers) == ([], [])
