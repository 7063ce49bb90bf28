"""Aligned with a timeout: a checkpoint that is in time is aligned, and goes unaligned at the instant it is late."""

from __future__ import annotations

import pytest

from engine.observe.trace_events import CheckpointCompleted
from tests.runtime.support import US
from tests.runtime.tasks.in_flight import SINK_NS, Flight, InFlight, named

A, B = "a[0] sink[0]", "b[0] sink[0]"
TRIGGER_NS = 10 * US
ALIGNED_NS = 1 * US + 10 * SINK_NS
"""When ten records of one source have been processed."""


def one_source(timeout_ns: int) -> InFlight:
    """Ten records are sent before the barrier; they wait on both sides of the channel."""
    return Flight(mode="aligned-timeout", at_ns=[TRIGGER_NS], settings={"aligned_timeout_ns": timeout_ns}).run()


def one_late(timeout_ns: int, trigger_ns: int = 6_000, **settings: object) -> InFlight:
    """The link of ``b`` takes 12 µs, so the barrier of ``a`` waits for that of ``b``."""
    return Flight(
        {"a": 20, "b": 20},
        mode="aligned-timeout",
        at_ns=[trigger_ns],
        slow_links={"b": 12 * US},
        sink_ns=500,
        input_capacity=50,
        settings={"aligned_timeout_ns": timeout_ns},
        **settings,  # type: ignore[arg-type]
    ).run()


def test_in_time_it_is_an_aligned_checkpoint() -> None:
    """The barrier queues behind the ten records; no record is stored."""
    flight = one_source(ALIGNED_NS - TRIGGER_NS + 1)

    assert flight.stored(1) == ({}, {})
    assert flight.processed(1) == named("a", *range(10))
    assert flight.snapshot_ns(1) == ALIGNED_NS


@pytest.mark.parametrize("timeout_ns", [1, 1_000, 8_000, 19_000])
def test_a_barrier_that_waits_in_the_outputs_overtakes_when_it_is_late(timeout_ns: int) -> None:
    """At the timeout it reaches the sink; the records it overtook are stored on either side."""
    flight = one_source(timeout_ns)

    done = -(-(TRIGGER_NS + timeout_ns - 1 * US) // SINK_NS)
    handled_ns = 1 * US + done * SINK_NS
    inputs, outputs = flight.stored(1)
    assert flight.snapshot_ns(1) == handled_ns
    assert flight.processed(1) == named("a", *range(done))
    assert inputs.get(A, []) + outputs.get(A, []) == named("a", *range(done, 10))
    assert flight.at_ns(CheckpointCompleted, 1) == handled_ns


def test_at_the_very_instant_of_the_last_barrier_it_may_be_either() -> None:
    """The timer and the barrier meet; whichever comes first, the cut is the same."""
    flight = one_source(ALIGNED_NS - TRIGGER_NS)

    inputs, outputs = flight.stored(1)
    assert flight.processed(1) + inputs.get(A, []) + outputs.get(A, []) == named("a", *range(10))
    assert flight.snapshot_ns(1) == ALIGNED_NS


@pytest.mark.parametrize("timeout_ns", [1_000, 5_000, 11_999])
def test_an_alignment_that_takes_too_long_ends_at_the_timeout(timeout_ns: int) -> None:
    """The snapshot is taken then, and stores the records that the late channel still delivers."""
    flight = one_late(timeout_ns)

    assert flight.snapshot_ns(1) == 6_000 + timeout_ns
    inputs, outputs = flight.stored(1)
    from_b = [record for record in flight.processed(1) if record in named("b", *range(20))]
    assert [record for record in flight.processed(1) if record not in from_b] == named("a", *range(6))
    assert list(inputs) == [B]
    assert from_b + inputs[B] == named("b", *range(6))
    assert outputs == {}
    assert flight.at_ns(CheckpointCompleted, 1) == 6_000 + 12 * US


def test_the_channel_that_waits_yields_nothing_until_the_barrier_of_the_other_one() -> None:
    """The checkpoint has gone unaligned; still, the sender of that channel is blocked, and is resumed at the end."""
    flight = one_late(1_000)

    calls = [value for _, what, value in flight.sink.calls if what in ("record", "snapshot")]
    behind = calls[calls.index(1) + 1 :]
    # The barrier comes with b5.
    assert behind.index("b4") < behind.index("a6")


def test_a_late_alignment_that_is_in_time_stores_nothing() -> None:
    """The timeout is longer than the link and the record before the barrier."""
    flight = one_late(12 * US + 501)

    assert flight.stored(1) == ({}, {})
    assert sorted(flight.processed(1)) == named("a", *range(6)) + named("b", *range(6))
    assert flight.snapshot_ns(1) == 6_000 + 12 * US + 500


@pytest.mark.parametrize("timeout_ns", [1, 1_000, 8_000, 12_500, 25_000])
@pytest.mark.parametrize("killed_ns", [14_000, 21_000, 33_000])
def test_whatever_the_timeout_a_restore_goes_on_where_the_cut_was(timeout_ns: int, killed_ns: int) -> None:
    """The records processed before the cut and after the restore are together each record once, in source order."""
    flight = one_late(timeout_ns, kills=[("sink", killed_ns)])

    restored = flight.result.restores[-1].checkpoint_id
    before = [] if restored is None else flight.processed(restored)
    records = before + flight.sink.records_of_attempt(2)
    for source in "ab":
        assert [record for record in records if record[0] == source] == named(source, *range(20))
