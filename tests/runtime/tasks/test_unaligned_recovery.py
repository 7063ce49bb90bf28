"""Records in flight are restored: before any new record, in their order, each once, before any further checkpoint."""

from __future__ import annotations

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, CheckpointTriggered
from tests.runtime.support import US, every
from tests.runtime.tasks.in_flight import SINK_NS, Flight, named

TRIGGER_NS = 10 * US
KILL_NS = 14 * US
"""By then the checkpoint is complete; of the records in flight one was processed, which does not count any more."""


def test_the_receivers_part_comes_before_the_senders_and_both_before_new_records() -> None:
    """Three records were processed, four were at the receiver, three at the sender, ten were not read yet."""
    flight = Flight(at_ns=[TRIGGER_NS], kills=[("sink", KILL_NS)]).run()

    assert [restore.checkpoint_id for restore in flight.result.restores] == [None, 1]
    inputs, outputs = flight.stored(1)
    (captured,), (overtaken,) = inputs.values(), outputs.values()
    assert (captured, overtaken) == (named("a", 3, 4, 5, 6), named("a", 7, 8, 9))
    assert flight.sink.records_of_attempt(2) == [*captured, *overtaken, *named("a", *range(10, 20))]


def test_no_new_record_of_any_channel_comes_before_all_restored_ones() -> None:
    """Each channel yields first the receiver's part, then the sender's, and then its new records."""
    flight = Flight(
        {"a": 40, "b": 40}, at_ns=[TRIGGER_NS], kills=[("sink", KILL_NS)], slow_links={"b": 3 * US}, input_capacity=3
    ).run()

    inputs, outputs = flight.stored(1)
    captured = [record for records in inputs.values() for record in records]
    overtaken = [record for records in outputs.values() for record in records]
    came = flight.sink.records_of_attempt(2)
    assert len(inputs) == len(outputs) == 2
    assert sorted(came[: len(captured)]) == sorted(captured)
    assert sorted(came[len(captured) :][: len(overtaken)]) == sorted(overtaken)
    for source in "ab":
        numbers = [int(record[1:]) for record in came if record[0] == source]
        assert numbers == list(range(numbers[0], 40))


def test_a_channel_without_restored_records_waits_for_the_others() -> None:
    """One source has new records before the other one's restored records have crossed their slow link."""
    flight = Flight(
        {"a": 12, "b": 30},
        at_ns=[TRIGGER_NS],
        kills=[("sink", 21 * US)],
        slow_links={"b": 9 * US},
        sink_ns=100,
        input_capacity=3,
    ).run()

    inputs, outputs = flight.stored(1)
    restored = [record for part in (inputs, outputs) for records in part.values() for record in records]
    from_b = [record for record in restored if record[0] == "b"]
    came = flight.sink.records_of_attempt(2)
    assert [record for record in restored if record[0] == "a"] == ["a9"]
    assert outputs
    assert sorted(came[: len(restored)]) == sorted(restored)
    assert [record for record in came if record[0] == "b"] == [*from_b, *named("b", *range(10, 30))]


def test_nothing_in_flight_means_no_waiting() -> None:
    """A checkpoint of an idle moment restores no records; the attempt goes on with new ones and checkpoints at once."""
    flight = Flight(at_ns=[TRIGGER_NS, 15 * US], kills=[("sink", KILL_NS)], sink_ns=0).run()

    assert flight.stored(1) == ({}, {})
    assert flight.sink.records_of_attempt(2) == named("a", *range(10, 20))
    assert flight.at_ns(CheckpointTriggered, 2) == 15 * US


def test_no_checkpoint_begins_before_all_restored_records_are_processed() -> None:
    """Checkpoints requested meanwhile are not triggered; the first one comes right after them."""
    drained_ns = KILL_NS + 7 * SINK_NS
    asked = [KILL_NS + 1 * US, KILL_NS + 8 * US, drained_ns - 1, drained_ns + 100]

    flight = Flight(at_ns=[TRIGGER_NS, *asked], kills=[("sink", KILL_NS)]).run()

    assert flight.at_ns(CheckpointTriggered, 2) == drained_ns + 100
    assert flight.processed(2)[:7] == named("a", *range(3, 10))


def test_periodic_checkpoints_begin_when_the_last_restored_record_is_processed() -> None:
    """The interval begins at that instant."""
    interval_ns = 2 * US
    flight = Flight(at_ns=[], kills=[("sink", KILL_NS)], settings={"checkpoint_interval": every(ns=interval_ns)}).run()

    restored = flight.result.restores[1].checkpoint_id
    assert restored is not None
    in_flight = sum(len(records) for part in flight.stored(restored) for records in part.values())
    first = next(event for event in flight.trace.of(CheckpointTriggered) if event.attempt == 2)
    assert in_flight > 3
    assert first.time_ns - flight.result.started_ns == KILL_NS + in_flight * SINK_NS + interval_ns


def test_a_savepoint_asked_for_during_recovery_is_refused() -> None:
    """Not all tasks run: the report says so, and no part of the savepoint stays."""
    flight = Flight(at_ns=[TRIGGER_NS], kills=[("sink", KILL_NS)], savepoints_ns=[KILL_NS + 4 * US]).run()

    (report,) = flight.result.savepoints
    assert (report.path, report.error) == (None, "not all required tasks are running")


@pytest.mark.parametrize("killed_again_ns", [KILL_NS, KILL_NS + 1, KILL_NS + 4 * US, KILL_NS + 11 * US])
@pytest.mark.parametrize("target", ["sink", "a"])
def test_killed_while_it_still_holds_restored_records(target: str, killed_again_ns: int) -> None:
    """The records are still in the checkpoint: the next attempt begins with the same ones."""
    flight = Flight(at_ns=[TRIGGER_NS], kills=[("sink", KILL_NS), (target, killed_again_ns)]).run()

    attempts = [event.attempt for event in flight.trace.of(AttemptStarted)]
    assert flight.sink.records_of_attempt(attempts[-1]) == named("a", *range(3, 20))
    assert len(attempts) == (2 if killed_again_ns == KILL_NS else 3)


def test_a_later_checkpoint_does_not_hold_what_was_in_flight_before() -> None:
    """Restored records that were processed since are in no later checkpoint."""
    flight = Flight(
        {"a": 60}, at_ns=[TRIGGER_NS, 50 * US], kills=[("sink", KILL_NS), ("sink", 56 * US)], output_capacity=10
    ).run()

    assert flight.ids(CheckpointCompleted)[:2] == [1, 2]
    inputs, outputs = flight.stored(2)
    stored = [record for part in (inputs, outputs) for records in part.values() for record in records]
    assert flight.processed(2) + stored == named("a", *range(3, 3 + len(flight.processed(2)) + len(stored)))
    assert flight.sink.records_of_attempt(3)[: len(stored)] == stored
    assert flight.sink.records_of_attempt(3)[-1] == "a59"


@pytest.mark.parametrize("delay_ns", [0, 5 * US])
def test_the_delay_before_a_restart_changes_nothing(delay_ns: int) -> None:
    """Records in flight are state: the length of the wait has no effect."""
    restart = FixedDelayRestart(None, delay_ns)
    flight = Flight(at_ns=[TRIGGER_NS], kills=[("sink", KILL_NS)], restart=restart).run()

    assert flight.sink.records_of_attempt(2) == named("a", *range(3, 20))
