"""A task's reactions to barriers and to the coordinator's notifications."""

from __future__ import annotations

from typing import Any

from engine.checkpoint.barriers import AlignmentMetrics
from engine.checkpoint.coordinator import NONE_COMPLETED
from engine.checkpoint.subtask import (
    AcknowledgeCheckpoint,
    BroadcastCancelMarker,
    CancelSnapshot,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    NotifyOperatorsSubsumed,
    TakeSnapshot,
    TaskCheckpointProtocol,
    TaskInstructions,
)
from engine.checkpoint.subtask.task_protocol import DEFAULT_MAX_RECORDED_ABORTS
from engine.elements.events import AlignmentType, CheckpointBarrier, CheckpointOptions, SnapshotKind
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_EVENTS: dict[str, set[str]] = {
    "checkpoint_state": {"cp", "type", "alignment", "async_blocks"},
    "notify_complete": {"cp"},
    "notify_aborted": {"cp", "latest_completed"},
}


class Recorder:
    """One vector's protocol, and all its instructions."""

    def __init__(self, given: Vector) -> None:
        known = {"events", "events_repeat", "restored_checkpoint", "max_recorded_aborts", "unaligned_enabled"}
        check_fields(given, known, "input")
        self.protocol = TaskCheckpointProtocol(
            given.get("restored_checkpoint"), given.get("max_recorded_aborts", DEFAULT_MAX_RECORDED_ABORTS)
        )
        self._configured = CheckpointOptions.configured(unaligned=given.get("unaligned_enabled", False))
        self._seen: dict[str, Any] = {
            "state_snapshotted": [],
            "acked": [],
            "emitted": [],
            "async_cancelled": [],
            "operator_calls": [],
            "state_manager_told_aborted": [],
            "barrier_is_priority": None,
        }
        if "events_repeat" in given:
            repeat = given["events_repeat"]
            check_fields(repeat, {"e", "cp_from", "cp_to"}, "events_repeat")
            for checkpoint_id in range(repeat["cp_from"], repeat["cp_to"] + 1):
                self._apply({"e": repeat["e"], "cp": checkpoint_id})
        for event in given.get("events", ()):
            self._apply(event)

    @property
    def observed(self) -> dict[str, Any]:
        """The fields that the vectors may expect."""
        remembered = self.protocol.remembered_aborts
        return {**self._seen, "remembered_aborts_after": remembered, "remembered_abort_count": len(remembered)}

    def _apply(self, event: Vector) -> None:
        if event["e"] not in _EVENTS:
            raise MalformedVector(f"unknown event {event['e']!r}")
        check_fields(event, {"e", *_EVENTS[event["e"]]}, f"event {event['e']}")
        checkpoint_id = event["cp"]
        match event["e"]:
            case "checkpoint_state":
                barrier = CheckpointBarrier(checkpoint_id, 0, self._options(event))
                instructions = self.protocol.on_snapshot_due(barrier, AlignmentMetrics())
                self._execute(instructions)
                was_taken = any(isinstance(one, TakeSnapshot) for one in instructions)
                if was_taken and not event.get("async_blocks", False):
                    self._execute(self.protocol.on_snapshot_written(checkpoint_id))
            case "notify_complete":
                self._execute(self.protocol.on_complete(checkpoint_id))
            case "notify_aborted":
                latest = event.get("latest_completed", NONE_COMPLETED)
                self._execute(self.protocol.on_abort(checkpoint_id, latest))

    def _options(self, event: Vector) -> CheckpointOptions:
        kind, alignment = event.get("type", "CHECKPOINT"), event.get("alignment")
        if kind not in SnapshotKind.__members__:
            raise MalformedVector(f"unknown type {kind!r}")
        if alignment is None:
            return self._configured.for_snapshot(SnapshotKind[kind])
        if alignment not in AlignmentType.__members__:
            raise MalformedVector(f"unknown alignment {alignment!r}")
        return CheckpointOptions(AlignmentType[alignment], SnapshotKind[kind])

    def _execute(self, instructions: TaskInstructions) -> None:
        seen = self._seen
        for instruction in instructions:
            match instruction:
                case TakeSnapshot(taken):
                    seen["state_snapshotted"].append(taken.checkpoint_id)
                    seen["emitted"].append({"type": "BARRIER", "cp": taken.checkpoint_id})
                    seen["barrier_is_priority"] = taken.is_priority
                case BroadcastCancelMarker(checkpoint_id):
                    seen["emitted"].append({"type": "CANCEL_MARKER", "cp": checkpoint_id})
                case AcknowledgeCheckpoint(checkpoint_id):
                    seen["acked"].append(checkpoint_id)
                case CancelSnapshot(checkpoint_id):
                    seen["async_cancelled"].append(checkpoint_id)
                case NotifyOperatorsComplete(checkpoint_id):
                    seen["operator_calls"].append(["complete", checkpoint_id])
                case NotifyOperatorsSubsumed(checkpoint_id):
                    seen["operator_calls"].append(["subsumed", checkpoint_id])
                case NotifyOperatorsAborted(checkpoint_id):
                    seen["operator_calls"].append(["aborted", checkpoint_id])
                    seen["state_manager_told_aborted"].append(checkpoint_id)
                case _:
                    raise AssertionError(instruction)
        self.protocol.validate()


def task_checkpoint_protocol(vector: Vector) -> list[str]:
    comparison = Comparison()
    expect, observed = vector["expect"], Recorder(vector["input"]).observed
    check_fields(expect, observed, "expect")
    for name, expected in expect.items():
        comparison.field(name, expected, observed[name], as_set=name == "remembered_aborts_after")
    return comparison.finish()


KINDS = {"task_checkpoint_protocol": task_checkpoint_protocol}
