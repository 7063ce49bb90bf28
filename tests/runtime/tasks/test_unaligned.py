"""What an unaligned checkpoint of a small job holds: which task stores which record, and where the cut lies."""

from __future__ import annotations

import pytest

from engine.checkpoint.coordinator.checkpoint_statistics import CheckpointType
from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobFailedError
from engine.observe.trace_events import CheckpointAborted, CheckpointCompleted
from state_backends.files import FaultRule, FileFault
from state_backends.snapshots import locate_snapshot
from tests.runtime.support import US
from tests.runtime.tasks.in_flight import SINK_NS, Flight, named

A, B = "a[0] sink[0]", "b[0] sink[0]"


def test_the_receiver_stores_what_it_holds_and_the_sender_the_rest() -> None:
    """Of ten records three are processed, four wait at the receiver and three at the sender."""
    flight = Flight(at_ns=[10 * US], input_capacity=4).run()

    inputs, outputs = flight.stored(1)
    assert flight.processed(1) == named("a", 0, 1, 2)
    assert inputs == {A: named("a", 3, 4, 5, 6)}
    assert outputs == {A: named("a", 7, 8, 9)}


def test_the_barrier_waits_for_the_record_in_service_only() -> None:
    """The sink takes its snapshot after the record in hand, however many are queued."""
    flight = Flight(at_ns=[18_500], sink_ns=40 * US).run()

    assert flight.snapshot_ns(1, "a[0]") == 19 * US
    assert flight.snapshot_ns(1) == 1 * US + 40 * US
    assert flight.processed(1) == named("a", 0)


@pytest.mark.parametrize(
    ("sink_ns", "expected"), [(0, CheckpointType.CHECKPOINT), (SINK_NS, CheckpointType.UNALIGNED_CHECKPOINT)]
)
def test_a_checkpoint_is_unaligned_in_the_table_if_it_stores_records(sink_ns: int, expected: CheckpointType) -> None:
    """In the table, a checkpoint whose barriers overtook no record is an aligned one."""
    flight = Flight(at_ns=[10_000], sink_ns=sink_ns).run()

    row = flight.result.checkpoints.rows()[0]
    assert row.type is expected
    assert all(one.metrics.is_unaligned == (one.metrics.persisted_bytes > 0) for one in row.subtasks)


@pytest.mark.parametrize("batch_size", [1, 2, 7, 1_000])
def test_the_cut_does_not_depend_on_batches(batch_size: int) -> None:
    """In any batches, the processed and the stored records together are those sent before the barrier, in order."""
    flight = Flight(at_ns=[10_000], batch_size=batch_size).run()

    inputs, outputs = flight.stored(1)
    stored = inputs[A] + outputs.get(A, [])
    assert flight.processed(1) + stored == named("a", *range(10))


def test_records_on_a_slow_link_are_stored_as_they_arrive() -> None:
    """The barrier of the fast source triggers the snapshot. Records that the slow source sent before its barrier are
    stored until that barrier arrives, 9 µs later, although they are processed meanwhile. Later ones are not stored."""
    flight = Flight({"a": 20, "b": 20}, at_ns=[6_000], slow_links={"b": 9 * US}, sink_ns=100, input_capacity=50).run()

    assert flight.processed(1) == named("a", *range(5))
    assert flight.stored(1) == ({A: named("a", 5), B: named("b", *range(6))}, {})
    assert flight.at_ns(CheckpointCompleted, 1) == 6_000 + 9 * US


def test_a_channel_whose_barrier_is_first_stores_what_that_overtook() -> None:
    """Both sources send at once; each channel stores its own records and none of the other's."""
    flight = Flight({"a": 9, "b": 9}, at_ns=[4_000], input_capacity=50).run()

    inputs, outputs = flight.stored(1)
    assert flight.processed(1) == named("a", 0)
    assert inputs == {A: named("a", 1, 2, 3), B: named("b", 0, 1, 2, 3)}
    assert outputs == {}


@pytest.mark.parametrize("trigger_ns", [1_000, 1_999, 2_000, 7_300, 12_000])
def test_the_barrier_cuts_a_running_batch(trigger_ns: int) -> None:
    """Records of a batch whose time has begun are processed, the others are in flight."""
    flight = Flight(at_ns=[trigger_ns], batch_size=1_000, input_capacity=50, source_ns=0, sink_ns=US).run()

    done = -(-trigger_ns // US)
    assert flight.processed(1) == named("a", *range(done))
    assert flight.stored(1) == ({A: named("a", *range(done, 20))}, {})
    assert flight.snapshot_ns(1) == done * US


@pytest.mark.parametrize("trigger_ns", [500, 1_000, 6_999, 7_000])
def test_the_barrier_cuts_a_batch_on_the_link(trigger_ns: int) -> None:
    """A link carries a record per microsecond: records that have passed are the receiver's, the rest the sender's."""
    flight = Flight(
        at_ns=[trigger_ns],
        batch_size=1_000,
        input_capacity=50,
        source_ns=0,
        sink_ns=100 * US,
        link_bytes_per_s=100_000_000,
    ).run()

    inputs, outputs = flight.stored(1)
    passed = trigger_ns // US
    assert inputs.get(A, []) == named("a", *range(passed))
    assert outputs == {A: named("a", *range(passed, 20))}
    assert flight.processed(1) == []


def fails_first(**settings: object) -> Flight:
    """A flight whose first checkpoint fails: source ``a`` cannot write its part."""
    rule = FaultRule(FileFault.ERROR_BEFORE, "open_write", "*/chk-1/*", at_call=1)
    return Flight(
        {"a": 30, "b": 30},
        slow_links={"b": 12 * US},
        sink_ns=100,
        input_capacity=50,
        settings={"inline_state_bytes": 0},
        faults=[rule],
        **settings,  # type: ignore[arg-type]
    )


def test_a_stale_barrier_neither_ends_nor_delimits_a_capture() -> None:
    """Records on both sides of an aborted checkpoint's barrier are in flight for the next."""
    flight = fails_first(at_ns=[10_000, 17_000]).run()

    assert flight.ids(CheckpointAborted) == [1]
    # The first barrier comes after b9, the second one after b16; at the second trigger b4 arrives, and a16.
    assert sorted(flight.processed(2)) == sorted(named("a", *range(16)) + named("b", *range(4)))
    assert flight.stored(2) == ({A: named("a", 16), B: named("b", *range(4, 17))}, {})


def test_records_of_a_checkpoint_that_was_given_up_are_discarded() -> None:
    """Their files are deleted, and the next checkpoint stores only its own records."""
    flight = fails_first(at_ns=[10_000]).run()

    assert flight.ids(CheckpointAborted) == [1]
    assert not [path for path in flight.files.walk_files("/checkpoints") if "/chk-1/" in path]
    (last,) = flight.ids(CheckpointCompleted)
    assert flight.stored(last) == ({}, {})
    assert sorted(flight.sink.of("record")) == sorted(named("a", *range(30)) + named("b", *range(30)))


def test_a_savepoint_holds_no_records_in_flight() -> None:
    """Also in unaligned mode its barrier queues behind the records; the checkpoint taken beside it stores them."""
    flight = Flight(at_ns=[10_000], savepoints_ns=[10_000]).run()

    (report,) = flight.result.savepoints
    assert report.path is not None
    assert report.checkpoint_id is not None
    _, metadata = locate_snapshot(flight.files, report.path)
    parts = [part for operator in metadata.operators for part in operator.subtasks.values()]
    assert all(part.input_channels is None and part.output_channels is None for part in parts)
    assert flight.processed(report.checkpoint_id) == named("a", *range(10))
    assert all(flight.stored(1))


@pytest.mark.parametrize("spread", ["forward", "rescale", "broadcast"])
def test_where_nothing_may_overtake_the_barrier_waits(spread: str) -> None:
    """Edges whose records could not be given to other subtasks are aligned, whatever the mode: none are in flight."""
    flight = Flight(at_ns=[10_000], spread=lambda stream: getattr(stream, spread)()).run()

    assert flight.stored(1) == ({}, {})
    assert flight.processed(1) == named("a", *range(10))
    assert flight.snapshot_ns(1) == 1 * US + 10 * SINK_NS


class Unknown:
    """A value that state cannot hold."""


def test_a_record_that_cannot_be_stored_is_told_with_its_edge() -> None:
    """It was never written before it was in flight: the error names the edge, the class and the ways out."""
    flight = Flight(at_ns=[10_000], make=lambda source, number: Unknown(), restart=NoRestart()).run()

    assert isinstance(flight.result.error, JobFailedError)
    told = str(flight.result.error)
    for part in ("a>>sink#0", "subtask 0 to 0", "Unknown", "register_type", "mode aligned"):
        assert part in told


def test_such_a_record_does_no_harm_in_aligned_mode() -> None:
    """In aligned mode no checkpoint holds a record."""
    flight = Flight(at_ns=[10_000], make=lambda source, number: Unknown(), mode="aligned", restart=NoRestart()).run()

    assert flight.result.state == "finished"
    assert flight.ids(CheckpointCompleted) == [1, 2]
