"""The barrier handlers against recorded scenarios of Flink's own tests."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.aligned import AlignedBarrierHandler
from engine.checkpoint.instructions import BroadcastCancelMarker, TriggerSnapshot
from engine.checkpoint.task_protocol import TaskCheckpointProtocol
from engine.elements.events import CheckpointBarrier
from tests.checkpoint.barrier_driver import HANDLERS, MS, BarrierDriver
from tests.checkpoint.vectors import Vector, load, named

NOT_FOR_A_HANDLER = {
    "output_aligned_barrier_blocks_subpartition": "the sending side of a channel",
    "recovery_resume_only_after_all_channels": "channel state is loaded by the runtime",
    "task_abort_notification_before_barrier": "the task protocol, tested below",
}

REASONS = {
    "cancel_marker": "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER",
    "subsumed": "CHECKPOINT_DECLINED_SUBSUMED",
    "end_of_stream": "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM",
}

REPLAYED = [
    vector
    for vector in load("barrier.json")
    if vector["mode"] in HANDLERS and vector["name"] not in NOT_FOR_A_HANDLER
]


def per_channel(events: list[Any], vector: Vector) -> list[list[Any]]:
    """For each channel its records, together with all markers."""
    channel_of = {op[2]: op[1] for op in vector["input"] if op[0] == "rec"}
    return [
        [event for event in events if isinstance(event, list) or channel_of[event] == channel]
        for channel in range(vector["channels"])
    ]


def assert_same_order(expected: list[Any], actual: list[Any], vector: Vector) -> None:
    """Compare in the scope that the vector asks for."""
    if vector["expect"]["output_order_scope"] == "total":
        assert expected == actual
    else:
        assert per_channel(expected, vector) == per_channel(actual, vector)


def test_every_vector_of_our_modes_is_replayed_or_listed() -> None:
    """No recorded scenario of the aligned or at-least-once mode is left out silently."""
    ours = {vector["name"] for vector in load("barrier.json") if vector["mode"] in HANDLERS}

    assert ours == {vector["name"] for vector in REPLAYED} | NOT_FOR_A_HANDLER.keys()
    assert len(REPLAYED) == 23


@pytest.mark.parametrize("vector", REPLAYED, ids=[vector["name"] for vector in REPLAYED])
def test_recorded_scenario(vector: Vector) -> None:
    """The handler decides what Flink's handler decides, in the same order."""
    expect = vector["expect"]
    driver = BarrierDriver(
        vector["mode"],
        vector["channels"],
        vector["checkpoints_after_tasks_finish"],
        eager=vector["delivery"] == "eager",
    )
    blocked_after = dict(expect.get("blocked_after", []))
    for position, operation in enumerate(vector["input"]):
        driver.apply(operation)
        if position in blocked_after:
            assert blocked_after[position] == sorted(driver.blocked), position

    assert expect["triggered"] == driver.triggered
    assert expect["aborted"] == driver.aborted
    assert {int(id_): REASONS[why] for id_, why in expect.get("abort_reasons", {}).items()} == driver.reasons
    assert expect["pending_at_end"] == list(driver.handler.pending_checkpoint_ids)
    assert_same_order(expect["output_order"], driver.output, vector)
    if "event_order" in expect:
        assert_same_order(expect["event_order"], driver.events, vector)
    for id_, metrics in expect.get("metrics", {}).items():
        measured = driver.metrics[int(id_)]
        assert metrics == {
            "alignment_ms": measured.alignment_ns // MS,
            "start_delay_ms": measured.start_delay_ns // MS,
            "bytes_processed_during_alignment": measured.bytes_processed_during_alignment,
        }
    if "rpc_trigger" in vector.get("requires", []):
        assert not driver.ever_resumed


def test_recorded_abort_before_barrier() -> None:
    """An abort notification that came before the barrier turns the snapshot into a cancel marker, once."""
    vector = named("barrier.json")["task_abort_notification_before_barrier"]
    handler, protocol = AlignedBarrierHandler(vector["channels"]), TaskCheckpointProtocol()
    (abort, checkpoint_id), (barrier, channel, barrier_id) = vector["input"]
    assert (abort, barrier) == ("abort_rpc", "barrier")

    protocol.on_abort(checkpoint_id)
    decided = handler.on_barrier(channel, CheckpointBarrier(barrier_id, 0), 0)
    due = [one for one in decided if isinstance(one, TriggerSnapshot)]

    assert [(BroadcastCancelMarker(42),)] == [
        protocol.on_snapshot_due(one.barrier, one.metrics) for one in due
    ]
    assert vector["expect"]["downstream"] == [["cancel_marker", 42]]
    assert protocol.remembered_aborts == ()
